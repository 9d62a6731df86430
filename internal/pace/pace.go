// Package pace flushes slow output at once, and batches fast output.
package pace

import (
	"errors"
	"io"
	"sync"
	"time"
)

// delay is how long written data may wait for more: too short for a person to notice, and long enough for hundreds of
// lines.
const delay = time.Millisecond

// errClosed is the error of a write to a closed Writer.
var errClosed = errors.New("pace: it is closed")

// Writer writes to a buffered writer and flushes it: at once if the last flush is a millisecond ago, else together with
// what comes until then. Its methods may be called from many goroutines.
type Writer struct {
	w     io.Writer
	flush func() error

	mu      sync.Mutex
	at      time.Time // of the last flush
	timer   *time.Timer
	waiting bool // a timer will flush
	closed  bool
	err     error // of the timer's flush
}

// New returns a Writer for w, which flush flushes.
func New(w io.Writer, flush func() error) *Writer { return &Writer{w: w, flush: flush} }

// Write writes p. The error may be that of an earlier write.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return 0, w.err
	case w.closed:
		return 0, errClosed
	}
	n, err := w.w.Write(p)
	if err != nil || w.waiting {
		return n, err
	}
	now := time.Now()
	if now.Sub(w.at) >= delay {
		return n, w.send(now)
	}
	w.waiting = true
	if w.timer == nil {
		w.timer = time.AfterFunc(delay, w.due)
	} else {
		w.timer.Reset(delay)
	}
	return n, nil
}

func (w *Writer) send(now time.Time) error {
	w.waiting, w.at = false, now
	if w.err == nil {
		w.err = w.flush()
	}
	return w.err
}

// due flushes after the delay.
func (w *Writer) due() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting && !w.closed {
		_ = w.send(time.Now()) // the next write returns the error
	}
}

// Flush sends what waits.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.waiting || w.closed {
		return w.err
	}
	return w.send(time.Now())
}

// Close sends what waits. The other writer is not used any more, and not closed.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.waiting {
		return w.send(time.Now())
	}
	return w.err
}
