package wire

import (
	"context"
	"io"
	"sync"
)

// outbox sends frames in order, so that nobody waits for the other end.
type outbox struct {
	mu      sync.Mutex
	pending []byte // frames, one after the other
	unsent  int    // bytes of pending, and of what is being written
	ended   bool
	ready   chan struct{}
	tooMuch func() // ends the connection
}

func newOutbox(tooMuch func()) *outbox {
	return &outbox{ready: make(chan struct{}, 1), tooMuch: tooMuch}
}

// putFrame adds a message. One that cannot be encoded, or one too many, ends the connection.
func (b *outbox) putFrame(kind byte, v any) {
	raw, err := marshal(v)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	if err != nil || b.unsent+len(raw) > maxPending {
		b.ended = true
		b.tooMuch()
		return
	}
	before := len(b.pending)
	b.pending = appendFrame(b.pending, kind, raw)
	b.unsent += len(b.pending) - before
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// sendFrames writes frames until ctx ends. flush sends what was written.
func (b *outbox) sendFrames(ctx context.Context, w io.Writer, flush func() error) error {
	for {
		b.mu.Lock()
		frames := b.pending
		b.pending = nil
		b.mu.Unlock()
		if len(frames) > 0 {
			if _, err := w.Write(frames); err != nil {
				return err
			}
			if err := flush(); err != nil {
				return err
			}
			b.mu.Lock()
			b.unsent -= len(frames)
			b.mu.Unlock()
		}
		select {
		case <-b.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
