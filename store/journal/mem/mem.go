// Package mem is a journal in memory, for tests and simulations. It keeps the contract of journal.Journal, except that
// it does not survive the process, and it can crash on demand, before or after the n-th commit, repeatedly.
package mem

import (
	"maps"
	"slices"
	"sync"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// codeJournalCrashed says that a test had the journal crash.
const codeJournalCrashed fault.Code = "journal_crashed"

// Journal is a journal in memory. The zero value is not ready: use New.
type Journal struct {
	mu      sync.Mutex
	live    Snapshot
	closed  bool
	commits int
	crashAt int  // the commit (counted from 1) that crashes; 0: none
	applied bool // whether that commit still takes effect
	crashed bool
	hook    func([]fsm.Record) error
}

// Snapshot is a journal's content: bucket, key, value.
type Snapshot map[string]map[string][]byte

var _ journal.Journal = (*Journal)(nil)

// New makes an empty journal.
func New() *Journal { return &Journal{live: Snapshot{}} }

// FromSnapshot makes a journal with the content of s.
func FromSnapshot(s Snapshot) *Journal { return &Journal{live: s.clone()} }

// FailAfter lets n more commits succeed. The next one fails without effect, and so does everything after it, as if the
// process had been killed just before that write. A negative n cancels this.
func (j *Journal) FailAfter(n int) { j.scheduleCrash(n, false) }

// LoseAnswerAfter lets n more commits succeed. The next one takes effect and yet returns an error, and everything
// after it fails, as if the process had been killed between the write and the answer.
func (j *Journal) LoseAnswerAfter(n int) { j.scheduleCrash(n, true) }

func (j *Journal) scheduleCrash(n int, applied bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.crashAt, j.applied = 0, applied
	if n >= 0 {
		j.crashAt = j.commits + n + 1
	}
}

// Hook has f called before each commit, with its batch; an error from f is the commit's error, and nothing is written.
// f must not call the journal. A nil f removes the hook.
func (j *Journal) Hook(f func(batch []fsm.Record) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hook = f
}

// Commits returns how many commits took effect.
func (j *Journal) Commits() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.commits
}

// Snapshot copies the journal's content.
func (j *Journal) Snapshot() Snapshot {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.live.clone()
}

// Reopen returns a new journal with this one's durable content, as a restart of the process would find it. This one
// returns only errors from then on.
func (j *Journal) Reopen() *Journal {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	return &Journal{live: j.live.clone()}
}

// Commit applies the batch, all or nothing.
func (j *Journal) Commit(batch []fsm.Record, written ...func()) error {
	if err := journal.Check(batch); err != nil {
		return err
	}
	applied, err := j.applyBatch(batch)
	if applied {
		journal.Tell(written)
	}
	return err
}

func (j *Journal) applyBatch(batch []fsm.Record) (applied bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return false, journal.ErrClosed()
	case j.crashed:
		return false, errCrashed()
	}
	if j.hook != nil {
		if err := j.hook(batch); err != nil {
			return false, err
		}
	}
	dies := j.crashAt != 0 && j.commits+1 >= j.crashAt
	j.crashed = dies
	if dies && !j.applied {
		return false, errCrashed()
	}
	for _, r := range batch {
		j.live.applyRecord(r)
	}
	j.commits++
	if dies {
		return true, errCrashed()
	}
	return true, nil
}

// Load calls f for each live record, in order of bucket and key.
func (j *Journal) Load(f func(fsm.Record) error) error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return journal.ErrClosed()
	}
	s := j.live.clone() // f may call the journal
	j.mu.Unlock()
	for _, b := range slices.Sorted(maps.Keys(s)) {
		for _, k := range slices.Sorted(maps.Keys(s[b])) {
			if err := f(fsm.Record{Bucket: b, Key: k, Value: s[b][k]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes the journal. A second Close does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	return nil
}

func (s Snapshot) applyRecord(r fsm.Record) {
	if r.Value == nil {
		delete(s[r.Bucket], r.Key)
		return
	}
	if s[r.Bucket] == nil {
		s[r.Bucket] = map[string][]byte{}
	}
	s[r.Bucket][r.Key] = append([]byte{}, r.Value...)
}

func (s Snapshot) clone() Snapshot {
	out := make(Snapshot, len(s))
	for b, m := range s {
		c := make(map[string][]byte, len(m))
		for k, v := range m {
			c[k] = append([]byte{}, v...)
		}
		out[b] = c
	}
	return out
}

func errCrashed() error {
	return fault.New(fault.Internal, codeJournalCrashed, "the journal was told to crash at this commit: reopen it")
}
