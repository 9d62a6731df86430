package bolt

import (
	"fmt"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// Bounds of one write, in batches and approximate bytes, so that no caller waits for an endless one.
const (
	groupBatches = 1024
	groupBytes   = 8 << 20
)

// commit is one caller's waiting batch. Its caller is woken once: because it is done, or to lead.
type commit struct {
	batch []fsm.Record
	wake  chan bool // true: lead; false: done, read err
	err   error
}

// Commit makes the batch durable, all or nothing. Callers that arrive during a write wait for it; then the first of
// them writes all their batches together, in order of arrival.
func (j *Journal) Commit(batch []fsm.Record, written ...func()) error {
	if err := journal.Check(batch); err != nil {
		return err
	}
	if err := j.enterCall(); err != nil {
		return err
	}
	defer j.leaveCall()
	if len(batch) == 0 {
		journal.Tell(written)
		return nil
	}
	c := &commit{batch: batch, wake: make(chan bool, 1)}
	j.mu.Lock()
	j.waiting = append(j.waiting, c)
	lead := !j.leading
	j.leading = true
	j.mu.Unlock()
	if lead || <-c.wake {
		j.leadGroup(c)
	}
	if c.err == nil {
		journal.Tell(written)
	}
	return c.err
}

// leadGroup writes the group at the head of the queue, which contains c, and passes the lead to the next waiting
// caller.
func (j *Journal) leadGroup(c *commit) {
	group := j.takeGroup()
	err := j.failed
	if err == nil {
		err = j.writing(func() error { return j.writeGroup(group) })
		j.failed = err
	}
	for _, o := range group {
		o.err = err
		if o != c {
			o.wake <- false
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.waiting) > 0 {
		j.waiting[0].wake <- true
		return
	}
	j.leading = false
}

// takeGroup removes as many batches from the queue as one write may serve, at least one.
func (j *Journal) takeGroup() []*commit {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, bytes := 0, 0
	for n < len(j.waiting) && n < groupBatches && (n == 0 || bytes < groupBytes) {
		for _, r := range j.waiting[n].batch {
			bytes += len(r.Key) + len(r.Value)
		}
		n++
	}
	group := append([]*commit(nil), j.waiting[:n]...)
	rest := copy(j.waiting, j.waiting[n:])
	clear(j.waiting[rest:])
	j.waiting = j.waiting[:rest]
	return group
}

// writeGroup writes a group in one transaction. If that fails before the transaction's last page, which commits it,
// the file is unchanged; if later, the file may be in either state, and must not be written again.
func (j *Journal) writeGroup(group []*commit) (err error) {
	defer j.recoverFault(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	st, id := j.state, 0
	err = j.db.Update(func(tx *bbolt.Tx) error {
		id = tx.ID()
		buckets := map[string]*bbolt.Bucket{}
		for _, c := range group {
			for _, r := range c.batch {
				if err := st.applyRecord(tx, buckets, r); err != nil {
					return err
				}
			}
		}
		return putState(tx, st)
	})
	if err != nil {
		if j.hasBeenApplied(id) {
			err = fmt.Errorf("the transaction was begun: %v", err) //nolint:errorlint // no full disk: it is not repeated
		}
		return fault.Wrap(err, fault.Internal, journal.CodeJournalWrite,
			"the journal %s cannot be written, and what it holds is unknown until it is opened again: see that the "+
				"disk is well and has room, then start souk again", j.path)
	}
	j.state = st
	return nil
}

// hasBeenApplied reports whether a transaction that returned an error may have been applied.
func (j *Journal) hasBeenApplied(id int) bool {
	tx, err := j.db.Begin(false)
	if err != nil {
		return true
	}
	newest := tx.ID()
	return tx.Rollback() != nil || newest >= id
}

// applyRecord writes one record and updates st.
func (st *state) applyRecord(tx *bbolt.Tx, buckets map[string]*bbolt.Bucket, r fsm.Record) error {
	b := buckets[r.Bucket]
	if b == nil {
		if b = tx.Bucket([]byte(r.Bucket)); b == nil {
			if r.Value == nil {
				return nil
			}
			var err error
			if b, err = tx.CreateBucket([]byte(r.Bucket)); err != nil {
				return err
			}
		}
		buckets[r.Bucket] = b
	}
	key := []byte(r.Key)
	if old := b.Get(key); old != nil {
		_, sum, err := splitSealed(old)
		if err != nil {
			return err
		}
		st.forgetSum(sum)
		if r.Value == nil {
			return b.Delete(key)
		}
	}
	if r.Value == nil {
		return nil
	}
	sealed, sum := sealValue(r.Bucket, r.Key, r.Value)
	st.noteSum(sum)
	return b.Put(key, sealed)
}
