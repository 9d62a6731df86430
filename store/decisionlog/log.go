// Package decisionlog keeps decisions on disk: NDJSON lines (decision.Line) in zstd frames, in files that are rotated
// by size and bounded in total. Decisions are written behind the back of whoever makes them, through a bounded queue;
// one that finds it full is counted and not recorded. A crash loses what had not been written, a quarter of a second at
// the most, and never what had.
package decisionlog

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	codeDecisionLog fault.Code = "decision_log" // the decision log cannot be used
	CodeLogDamaged  fault.Code = "log_damaged"  // the decision log is damaged
	codeLogVersion  fault.Code = "log_version"  // the decision log is of another format
)

// Defaults and bounds.
const (
	DefaultMaxBytes = 256 << 20
	MinMaxBytes     = 1 << 20
	DefaultQueue    = 8192
	filesPerLog     = 8 // a file is an eighth of the whole, so that an eighth at most is dropped at once
	frameBytes      = 256 << 10
	flushAfter      = 250 * time.Millisecond
)

// Options are what a log is made of.
type Options struct {
	Dir      string       // its own directory; made when it is not there
	MaxBytes int64        // of all files together; 0 is DefaultMaxBytes
	Queue    int          // decisions that wait to be written; 0 is DefaultQueue
	Log      *slog.Logger // nil: nothing is logged
}

// Log writes decisions. Its methods may be called from many goroutines.
type Log struct {
	dir   string
	queue chan item
	done  chan struct{}
	log   *slog.Logger

	mu     sync.RWMutex // closed and the queue's end
	closed bool

	recorded, dropped, failed atomic.Uint64
	bytes, files              atomic.Int64
}

// item is one thing for the writer: a decision, an end, or somebody who waits until all before is on disk.
type item struct {
	decision *decision.Decision
	end      *decision.End
	flushed  chan error
}

// Stats are the log's counters, for /metrics.
type Stats struct {
	Recorded uint64 // decisions written
	Dropped  uint64 // decisions not recorded: the queue was full
	Failed   uint64 // decisions not recorded: the disk refused
	Bytes    int64  // of all files
	Files    int64
}

// Open opens a log's directory and begins to write. Files from before stay as they are, up to the bound.
func Open(o Options) (*Log, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	if o.Dir == "" || o.MaxBytes < MinMaxBytes {
		return nil, fault.New(fault.Invalid, codeDecisionLog,
			"the decision log needs a directory and at least %d bytes, not %d", MinMaxBytes, o.MaxBytes)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeDecisionLog,
			"the directory %s of the decision log cannot be made", o.Dir)
	}
	l := &Log{dir: o.Dir, queue: make(chan item, cmp.Or(o.Queue, DefaultQueue)), done: make(chan struct{}), log: o.Log}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	w, err := newWriter(l, o.MaxBytes)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(l.done)
		w.run(l.queue)
	}()
	return l, nil
}

// Append hands over a decision, which must not change any more. It does not wait: false says that it was not recorded.
func (l *Log) Append(d *decision.Decision) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.closed {
		select {
		case l.queue <- item{decision: d}:
			return true
		default:
		}
	}
	l.dropped.Add(1)
	return false
}

// End notes that a machine is over. It does not wait either.
func (l *Log) End(e decision.End) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return
	}
	select {
	case l.queue <- item{end: &e}:
	default:
	}
}

// Flush waits until all that was appended before can be read. It returns an error when the last of it was dropped,
// because the disk does not take it.
func (l *Log) Flush(ctx context.Context) error {
	ask := item{flushed: make(chan error, 1)}
	l.mu.RLock()
	if l.closed {
		l.mu.RUnlock()
		return nil
	}
	select {
	case l.queue <- ask:
		l.mu.RUnlock()
	case <-ctx.Done():
		l.mu.RUnlock()
		return context.Cause(ctx)
	}
	select {
	case err := <-ask.flushed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close writes what is left and ends the file in order.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	<-l.done
	return nil
}

// Dir is where the log lies.
func (l *Log) Dir() string { return l.dir }

// Stats gives the counters.
func (l *Log) Stats() Stats {
	return Stats{l.recorded.Load(), l.dropped.Load(), l.failed.Load(), l.bytes.Load(), l.files.Load()}
}

// Files lists a log's files, oldest first. path may be a log's directory or one of its files.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, codeDecisionLog, "there is no decision log at %s", path)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	names, err := filepath.Glob(filepath.Join(path, "decisions-*"+Suffix))
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeDecisionLog, "%s cannot be listed", path)
	}
	return names, nil // Glob sorts, and the names sort by time
}

// Suffix ends the names of a log's files.
const Suffix = ".ndjson.zst"
