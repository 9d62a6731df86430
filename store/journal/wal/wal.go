// Package wal puts a write-ahead log in front of a journal, so that a commit costs one write and one fdatasync.
//
// # What is on disk
//
// Two log files of a fixed size beside the journal, used in turns: while commits are appended to one, the other's
// records are moved into the journal in a single transaction (a checkpoint), in which a record that was written ten
// times is written once. Logs have a generation; the journal holds, in a bucket of this package, the generation up to
// which it has everything, and the generation up to which logs exist. So it detects a log that was removed, or
// restored from a copy.
//
// A third file, the mark, names the newest frame that is on disk: frames that are missing at a log's end cannot be
// told from frames that were never written otherwise.
//
// A log is filled with zeros before it is used, so that appending changes no metadata, and so that unwritten space can
// be distinguished from damage. Each write is one frame. A last frame that lacks whole sectors is an unacknowledged
// commit during a power loss; any other incomplete frame is damage, and refused.
//
// # Closing
//
// Close moves everything into the journal and removes the logs. A journal at rest is the inner journal's file alone.
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

// Options are settings for Open. The zero value is for production.
type Options struct {
	Size  int64           // bytes of a log; 0: 4 MiB. A batch that fits no log goes directly into the journal.
	Write journal.Writing // carries out a write of a log; nil: once
}

const defaultSize = 4 << 20

// Journal is an inner journal with a log in front. Methods may be called from many goroutines.
type Journal struct {
	inner journal.Journal
	base  string // of the logs' paths
	size  int64
	doing journal.Writing

	bodies sync.Pool // of *[]byte: buffers for encoded batches

	mu      sync.Mutex
	change  sync.Cond // signalled when anything below changes
	waiting []waiting // batches that are not written yet, whose callers wait
	next    uint64    // number of the next batch
	synced  uint64    // batches below it are durable
	writing bool      // a caller writes, or blocks other writers
	log     *logFile  // being appended to, by the writer
	standby *logFile  // empty and ready; nil while it is being made
	sealed  *logFile  // full; the checkpointer moves it into the journal
	closing bool      // new calls are refused
	drained bool      // the checkpointer has finished
	failed  error     // the first failure; nothing is acknowledged after it
	ended   sync.WaitGroup

	marks   *os.File // names the newest frame; written by the writer of the log
	markBuf []byte
}

var _ journal.Journal = (*Journal)(nil)

// waiting is an encoded batch of a waiting caller, and the functions to call when it is written.
type waiting struct {
	body    []byte
	written []func()
}

// Open opens the logs beside path and moves their records into inner, which it owns from then on: Close closes both.
// The caller's lock on the inner journal guards the logs too.
//
// Errors: Internal "journal_damaged" when a log is missing or damaged (nothing is changed then), Internal
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

// pathOf returns the file of a generation: two files alternate.
func (j *Journal) pathOf(generation uint64) string {
	return j.base + [...]string{".log-a", ".log-b"}[generation%2]
}

// Commit makes the batch durable, all or nothing. Callers that arrive during a write share the next one.
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

// whyRefusing returns why calls are refused, or nil. The lock is held.
func (j *Journal) whyRefusing() error {
	if j.closing {
		return journal.ErrClosed()
	}
	return j.failed
}

// writeWaiting writes the waiting batches as one frame of the log, as many as fit. The lock is held, and released
// during the disk write.
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

// appendGroup writes batches to a log as one frame, and waits until it is on disk. The writer of the log calls it.
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
		if again { // pages whose sync failed may no longer be in the page cache
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

// releaseWriter lets the next writer write. The lock is held.
func (j *Journal) releaseWriter() {
	j.writing = false
	j.change.Broadcast()
}

// rotateLogs replaces the log by the standby, once there is one, and passes the full log to the checkpointer. The lock
// is held.
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

// noteFailure records the first failure. The lock is held.
func (j *Journal) noteFailure(err error) {
	if j.failed == nil {
		j.failed = fault.Wrap(err, fault.Internal, journal.CodeJournalWrite,
			"the journal %s cannot be written, and what it holds is unknown until it is opened again: see that the "+
				"disk is well and has room, then start souk again", j.base)
	}
	j.change.Broadcast()
}

// waitForWriter waits until no caller writes, and then blocks other writers; it returns an error if the journal
// refuses calls. The lock is held.
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

// commitLarge writes a batch that fits no log: first all earlier batches, then this one, directly into the journal.
// Batches that wait meanwhile are not answered yet, so their order is free.
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

// drainLogs moves everything in the logs into the journal. The lock is held, and writing is set.
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

// settleCommitted moves everything committed so far into the journal.
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
