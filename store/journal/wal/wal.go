// Package wal puts a write-ahead log in front of a journal, so that a commit costs one write and one fdatasync.
//
// # What is on disk
//
// Two log files of a fixed size beside the journal, used in turns: while commits are appended to one, what the other
// holds is brought into the journal in a single transaction (a checkpoint), in which a record that was written ten
// times is written once. Logs have a generation; the journal holds, in a bucket of this package, the generation up to
// which it has everything, and the generation up to which logs exist. So neither a log that was taken away nor one that
// was put back from a copy goes unseen.
//
// A third file, the mark, names the newest frame that is on disk: frames that are missing at a log's end cannot be told
// from frames that were never written otherwise.
//
// A log is filled with zeros before it is used, so that appending changes no metadata, and so that what was never
// written can be told from what was damaged. Each write is one frame. A last frame that lacks whole sectors is a commit
// that was under way when the power went, and was promised to nobody; anything else that is not whole is damage, and
// refused.
//
// # Closing
//
// Close brings all into the journal and removes the logs. A journal at rest is the inner journal's file alone.
//
// The idea of the two logs is that of every database since Gray's (Notes on Data Base Operating Systems, 1978, 5.8).
package wal

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// Options adjust Open. The zero value is what a worker uses.
type Options struct {
	Size  int64           // of a log, in bytes; 0: 4 MiB. A batch that fits into none goes into the journal itself.
	Write journal.Writing // carries out a write of a log; nil: once
}

const defaultSize = 4 << 20

// Journal is an inner journal behind a log. Methods may be called from many goroutines.
type Journal struct {
	inner journal.Journal
	base  string // of the logs' paths
	size  int64
	doing journal.Writing

	bodies sync.Pool // of *[]byte: room for batches that are encoded

	mu      sync.Mutex
	change  sync.Cond // of anything below
	waiting []waiting // batches that are not written yet: those of callers that wait
	next    uint64    // number of the next batch
	synced  uint64    // batches below it are durable
	writing bool      // somebody writes, or keeps others from it
	log     *logFile  // appended to by who writes
	standby *logFile  // empty and ready; nil while it is made
	sealed  *logFile  // full; the checkpointer brings it into the journal
	closing bool      // callers are sent away
	drained bool      // the checkpointer has nothing more to do
	failed  error     // the first; nothing is promised after it
	ended   sync.WaitGroup

	marks   *os.File // says which frame is the newest; written by who writes the log
	markBuf []byte
}

var _ journal.Journal = (*Journal)(nil)

// waiting is an encoded batch, and who wants to know when it is written.
type waiting struct {
	body    []byte
	written []func()
}

// Open opens the logs beside path and brings what they hold into inner, which it owns from then on: Close closes both.
// The caller's lock on the inner journal guards the logs too.
//
// Errors: Internal "journal_damaged" when a log is missing or not whole (nothing is changed then), Internal
// "journal_open" when the system refuses.
func Open(inner journal.Journal, path string, o Options) (*Journal, error) {
	if o.Size == 0 {
		o.Size = defaultSize
	}
	if o.Write == nil {
		o.Write = journal.Once
	}
	j := &Journal{inner: inner, base: path, size: o.Size, doing: o.Write, next: 1, synced: 1}
	j.change.L = &j.mu
	known, err := readKnown(inner)
	if err != nil {
		return nil, err
	}
	records, err := j.recoverLogs(known)
	if err != nil {
		return nil, err
	}
	known.Applied = known.Prepared
	if err := inner.Commit(append(records, known.markRecord())); err != nil {
		return nil, err
	}
	first, second := known.Applied+1, known.Applied+2
	if j.log, err = createLog(j.pathOf(first), first, j.size); err != nil {
		return nil, err
	}
	j.log.number = 1
	if j.standby, err = createLog(j.pathOf(second), second, j.size); err != nil {
		return nil, errors.Join(err, j.log.close())
	}
	known.Prepared = second
	if err := inner.Commit([]fsm.Record{known.markRecord()}); err != nil {
		return nil, errors.Join(err, j.log.close(), j.standby.close())
	}
	if err := j.openMark(); err != nil {
		return nil, errors.Join(err, j.log.close(), j.standby.close())
	}
	j.ended.Go(j.runCheckpoints)
	return j, nil
}

// pathOf gives the file of a generation: two take turns.
func (j *Journal) pathOf(generation uint64) string {
	return j.base + [...]string{".log-a", ".log-b"}[generation%2]
}

// Commit makes the batch durable, all or nothing. Callers that come while a write is under way share the next one.
func (j *Journal) Commit(batch []fsm.Record, written ...func()) error {
	if err := checkBatch(batch); err != nil {
		return err
	}
	if len(batch) == 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		if err := j.whyRefusing(); err != nil {
			return err
		}
		journal.Tell(written)
		return nil
	}
	room, _ := j.bodies.Get().(*[]byte)
	if room == nil {
		room = new([]byte)
	}
	body := encodeBody(*room, batch)
	if frameSize(len(body)) > j.size-headerSize {
		return j.commitLarge(batch, written)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.whyRefusing(); err != nil {
		return err
	}
	mine := j.next
	j.next++
	j.waiting = append(j.waiting, waiting{body, written})
	for j.synced <= mine && j.failed == nil {
		if j.writing {
			j.change.Wait()
			continue
		}
		j.writeWaiting()
	}
	if j.synced <= mine {
		return j.failed
	}
	if cap(body) <= keptBuffer {
		*room = body
		j.bodies.Put(room)
	}
	return nil
}

func checkBatch(batch []fsm.Record) error {
	for _, r := range batch {
		if r.Bucket == ownBucket {
			return fault.New(fault.Invalid, journal.CodeJournalRecord,
				"a record's bucket may not be named %q, which the journal uses itself", ownBucket)
		}
	}
	return journal.Check(batch)
}

// whyRefusing says why nothing is taken any more; nil when it is. The lock is held.
func (j *Journal) whyRefusing() error {
	if j.closing {
		return journal.ErrClosed()
	}
	return j.failed
}

// writeWaiting puts the waiting batches into one frame of the log, as many as fit. The lock is held, and let go of
// while the disk works.
func (j *Journal) writeWaiting() {
	j.writing = true
	defer j.releaseWriter()
	n, bytes := 0, 0
	for n < len(j.waiting) && frameSize(bytes+len(j.waiting[n].body)) <= j.log.freeBytes() {
		bytes += len(j.waiting[n].body)
		n++
	}
	if n == 0 {
		j.rotateLogs()
		return
	}
	group, l := j.waiting[:n], j.log
	j.waiting = slices.Clone(j.waiting[n:])
	j.mu.Unlock()
	err := j.appendGroup(l, group)
	j.mu.Lock()
	if err != nil {
		j.noteFailure(err)
		return
	}
	j.synced += uint64(n)
}

// appendGroup writes batches to a log as one frame, and waits until it is on disk. Whoever writes the log calls it.
func (j *Journal) appendGroup(l *logFile, group []waiting) error {
	bodies := make([][]byte, len(group))
	for i, w := range group {
		bodies[i] = w.body
	}
	if err := j.doing(func() error { return l.writeFrame(bodies) }); err != nil {
		return err
	}
	for _, w := range group {
		journal.Tell(w.written)
	}
	again := false
	err := j.doing(func() error {
		if again { // what could not be synced is not in the page cache for certain
			if err := l.writeFrame(bodies); err != nil {
				return err
			}
		}
		again = true
		return l.commitFrame()
	})
	if err != nil {
		return err
	}
	return j.doing(func() error { return j.noteMark(mark{l.generation, l.number - 1}) })
}

// releaseWriter lets the next one write. The lock is held.
func (j *Journal) releaseWriter() {
	j.writing = false
	j.change.Broadcast()
}

// rotateLogs makes the standby the log, once there is one, and hands the full one to the checkpointer. The lock is held.
func (j *Journal) rotateLogs() {
	for (j.standby == nil || j.sealed != nil) && j.failed == nil {
		j.change.Wait()
	}
	if j.failed != nil {
		return
	}
	j.standby.number = j.log.number
	j.sealed, j.log, j.standby = j.log, j.standby, nil
	j.change.Broadcast()
}

// noteFailure notes the first failure. The lock is held.
func (j *Journal) noteFailure(err error) {
	if j.failed == nil {
		j.failed = fault.Wrap(err, fault.Internal, journal.CodeJournalWrite,
			"the journal %s cannot be written, and what it holds is unknown until it is opened again: see that the "+
				"disk is well and has room, then start souk again", j.base)
	}
	j.change.Broadcast()
}

// waitForWriter waits until nobody writes, keeps it so until written, and says why not where the journal takes nothing
// more. The lock is held.
func (j *Journal) waitForWriter() error {
	for j.writing {
		j.change.Wait()
	}
	if err := j.whyRefusing(); err != nil {
		return err
	}
	j.writing = true
	return nil
}

// commitLarge writes a batch that fits into no log: all before it first, then itself, straight into the journal.
// Batches that wait meanwhile have not been answered, so their order is open.
func (j *Journal) commitLarge(batch []fsm.Record, written []func()) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.waitForWriter(); err != nil {
		return err
	}
	defer j.releaseWriter()
	if err := j.drainLogs(); err != nil {
		return err
	}
	if err := j.inner.Commit(batch, written...); err != nil {
		j.noteFailure(err)
		return j.failed
	}
	return nil
}

// drainLogs brings everything that is in the logs into the journal. The lock is held, and writing is set.
func (j *Journal) drainLogs() error {
	if j.log.end > headerSize {
		j.rotateLogs()
	}
	for j.sealed != nil && j.failed == nil {
		j.change.Wait()
	}
	return j.failed
}

// Load calls f for each live record in order of bucket and key.
func (j *Journal) Load(f func(fsm.Record) error) error {
	if err := j.settleCommitted(); err != nil {
		return err
	}
	return j.inner.Load(func(r fsm.Record) error {
		if r.Bucket == ownBucket {
			return nil
		}
		return f(r)
	})
}

// settleCommitted brings all that was committed so far into the journal.
func (j *Journal) settleCommitted() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.waitForWriter(); err != nil {
		return err
	}
	defer j.releaseWriter()
	return j.drainLogs()
}

// Close waits for the commits under way, brings all into the journal, and removes the logs. A second Close does
// nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closing {
		j.mu.Unlock()
		return nil
	}
	j.closing = true
	for j.failed == nil && (j.writing || len(j.waiting) > 0) {
		j.change.Wait()
	}
	err := j.failed
	if err == nil {
		j.writing = true
		err = j.drainLogs()
	}
	j.drained = true
	j.releaseWriter()
	j.mu.Unlock()
	j.ended.Wait()
	return errors.Join(err, j.endLogs(err == nil), j.inner.Close())
}

// endLogs lets go of the logs, and removes them when the journal has all they held.
func (j *Journal) endLogs(whole bool) error {
	var errs []error
	for _, l := range []*logFile{j.log, j.standby, j.sealed} {
		if l != nil {
			errs = append(errs, l.close())
		}
	}
	if !whole {
		return errors.Join(append(errs, j.endMark(false))...)
	}
	known := known{Applied: j.log.generation + 1, Prepared: j.log.generation + 1} // the standby is empty
	if err := j.inner.Commit([]fsm.Record{known.markRecord()}); err != nil {
		return errors.Join(append(errs, err, j.endMark(false))...)
	}
	errs = append(errs, j.endMark(true))
	for g := range uint64(2) {
		if err := os.Remove(j.pathOf(g)); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fault.Wrap(err, fault.Internal, journal.CodeJournalOpen,
				"the journal's log %s cannot be removed", j.pathOf(g)))
		}
	}
	return errors.Join(errs...)
}
