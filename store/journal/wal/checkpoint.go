package wal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// ownBucket holds this package's one record in the inner journal: key "logs", value known.
const ownBucket = "wal"

// known is the journal's record of its logs.
type known struct {
	Applied  uint64 `json:"applied"`  // the journal contains this generation and all earlier ones
	Prepared uint64 `json:"prepared"` // generations after Applied, up to this one, exist as files
}

func (k known) markRecord() fsm.Record {
	b, err := json.Marshal(k)
	if err != nil {
		panic("wal: two numbers do not encode: " + err.Error()) // two numbers: cannot fail
	}
	return fsm.Record{Bucket: ownBucket, Key: "logs", Value: b}
}

func readKnown(inner journal.Journal) (k known, err error) {
	err = inner.Load(func(r fsm.Record) error {
		if r.Bucket != ownBucket {
			return nil
		}
		if err := json.Unmarshal(r.Value, &k); err != nil || k.Applied > k.Prepared || k.Prepared-k.Applied > 2 {
			return fault.New(fault.Internal, fault.CodeJournalDamaged,
				"the journal's own record of its logs cannot be read; restore the journal from a backup")
		}
		return nil
	})
	return k, err
}

// recoverLogs returns the records in the logs that the journal does not have.
func (j *Journal) recoverLogs(k known) ([]fsm.Record, error) {
	if err := j.refuseStrays(k); err != nil {
		return nil, err
	}
	m := newMerged()
	for g := k.Applied + 1; g <= k.Prepared; g++ {
		path := j.pathOf(g)
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, damagedLog(path, errors.New("it is missing"))
		}
		if err != nil {
			return nil, openError(err, path)
		}
		if err := m.readLog(raw, g); err != nil {
			return nil, damagedLog(path, err)
		}
	}
	if w := readMark(j.markPath()); w.generation > k.Applied && w.number > m.last {
		return nil, damagedLog(j.pathOf(w.generation),
			fmt.Errorf("frame %d was promised, and the last that is there is %d", w.number, m.last))
	}
	return m.sortedRecords(), nil
}

// refuseStrays refuses logs that are newer than this journal: then it is another journal, or a new one beside old
// logs.
func (j *Journal) refuseStrays(k known) error {
	for g := range uint64(2) {
		raw, err := os.ReadFile(j.pathOf(g))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return openError(err, j.pathOf(g))
		}
		if int64(len(raw)) <= headerSize || allZero(raw[headerSize:]) {
			continue // made for a start that did not finish
		}
		of, whole := decodeHeader(raw)
		if k.Prepared == 0 || whole && of > k.Prepared {
			return mismatchedLog(j.base, j.pathOf(g))
		}
	}
	if w := readMark(j.markPath()); w.generation > k.Prepared {
		return mismatchedLog(j.base, j.markPath())
	}
	return nil
}

// runCheckpoints moves each full log into the journal and makes its file the next standby, until Close or a failure.
func (j *Journal) runCheckpoints() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		for j.sealed == nil && !j.drained && j.failed == nil {
			j.change.Wait()
		}
		if j.failed != nil || j.sealed == nil {
			return
		}
		full, newest := j.sealed, j.log.generation
		j.mu.Unlock()
		next, err := j.checkpointLog(full, newest)
		j.mu.Lock()
		if err != nil {
			j.noteFailure(err)
			return
		}
		j.sealed, j.standby = nil, next
		j.change.Broadcast()
	}
}

func (j *Journal) checkpointLog(full *logFile, newest uint64) (*logFile, error) {
	applied := full.generation
	raw, err := full.readAll()
	if err != nil {
		return nil, err
	}
	m := newMerged()
	err = m.readLog(raw, applied)
	if err == nil && m.last != full.number-1 {
		err = fmt.Errorf("frame %d was promised, and the last that is there is %d", full.number-1, m.last)
	}
	if err != nil {
		return nil, fmt.Errorf("the log %s does not read back as it was written: %w", full.f.Name(), err)
	}
	if err := j.inner.Commit(append(m.sortedRecords(), known{applied, newest}.markRecord())); err != nil {
		return nil, err
	}
	if err := j.doing(func() error { return full.reuseFor(newest + 1) }); err != nil {
		return nil, err
	}
	return full, j.inner.Commit([]fsm.Record{known{applied, newest + 1}.markRecord()})
}

// merged is the result of a sequence of frames: the newest value of each key.
type merged struct {
	at   map[[2]string]int
	list []fsm.Record
	last uint64 // sequence number of the newest frame; 0: none yet
	torn bool   // a frame is incomplete: no other may follow
}

func newMerged() *merged { return &merged{at: map[[2]string]int{}} }

func (m *merged) sortedRecords() []fsm.Record { return m.list }

func (m *merged) addRecord(r fsm.Record) {
	key := [2]string{r.Bucket, r.Key}
	if i, ok := m.at[key]; ok {
		m.list[i] = r
		return
	}
	m.at[key] = len(m.list)
	m.list = append(m.list, r)
}

func damagedLog(path string, cause error) error {
	return fault.Wrap(cause, fault.Internal, fault.CodeJournalDamaged,
		"the journal's log %s is damaged and was left as it is: restore the journal and its logs from one backup, "+
			"or give up all they hold: souk agent without %s", path, strings.TrimSuffix(path, filepath.Ext(path)))
}

// mismatchedLog returns the error for a journal and a log that do not belong together.
func mismatchedLog(base, log string) error {
	return fault.New(fault.Internal, fault.CodeJournalDamaged,
		"the log %s belongs to another journal than %s, which was lost or replaced: put the journal of the same "+
			"time back, restore both from one backup, or give up all they hold: souk agent without %s", log, base, base)
}

func openError(err error, path string) error {
	return fault.Wrap(err, fault.Internal, journal.CodeJournalOpen,
		"the journal's log %s cannot be used: see that its directory exists, is writable and has room", path)
}
