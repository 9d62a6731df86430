// Package decisionlog keeps decisions on disk: NDJSON lines (decision.Line) in zstd frames, in files that are rotated
// by size and bounded in total. Decisions are written asynchronously through a bounded queue; if it is full, a
// decision is counted and not recorded. A crash loses at most the decisions of the last quarter of a second, and no
// written ones.
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
	filesPerLog     = 8 // a file is an eighth of the whole, so at most an eighth is dropped at once
	frameBytes      = 256 << 10
	flushAfter      = 250 * time.Millisecond
)

// Options are a log's settings.
type Options struct {
	Dir      string       // its own directory; made if it does not exist
	MaxBytes int64        // of all files together; 0 is DefaultMaxBytes
	Queue    int          // decisions waiting to be written; 0 is DefaultQueue
	Log      *slog.Logger // nil: nothing is logged
}

// Log writes decisions. Its methods may be called from many goroutines.
type Log struct {
	dir   string
	queue chan item
	done  chan struct{}
	log   *slog.Logger

	mu     sync.RWMutex // guards closed and the queue's close
	closed bool

	recorded, dropped, failed atomic.Uint64
	bytes, files              atomic.Int64
}

// item is one input of the writer: a decision, an end, or a caller that waits until all earlier items are on disk.
type item struct {
	decision *decision.Decision
	end      *decision.End
	flushed  chan error
}

// Stats are the log's counters, for /metrics.
type Stats struct {
	Recorded uint64 // decisions written
	Dropped  uint64 // decisions not recorded: the queue was full
	Failed   uint64 // decisions not recorded: the write failed
	Bytes    int64  // of all files
	Files    int64
}

// Open opens a log's directory and starts the writer. Existing files stay, up to the bound.
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

// Append queues a decision, which must not change any more. It does not wait; false: the decision is not recorded.
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

// End queues the end of a machine, without waiting.
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

// Flush waits until everything appended before can be read. It returns an error if the last of it was dropped because
// the write failed.
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

// Close writes the rest and closes the file cleanly.
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

// Dir returns the log's directory.
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

// Suffix is the suffix of a log's files.
const Suffix = ".ndjson.zst"
