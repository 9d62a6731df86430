package strangers

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Few is a logger for events that strangers can cause: atOnce lines in a burst, and then one per every. The number of
// omitted lines is in the next line, or in a line of its own a while after.
func Few(log *slog.Logger, atOnce int, every time.Duration) *slog.Logger {
	return slog.New(few{log.Handler(), &bucket{most: atOnce, left: atOnce, every: every}})
}

// few is a handler that leaves lines out.
type few struct {
	slog.Handler
	b *bucket
}

// bucket has a token for each line that may be written; one more comes each time that every goes by.
type bucket struct {
	most  int
	every time.Duration

	mu      sync.Mutex
	left    int
	since   time.Time // when the last token was added
	omitted int
	timer   *time.Timer // not nil: it will log how many were omitted
}

// tellAfter is when omitted lines are reported at the latest.
const tellAfter = 10 * time.Second

// Handle writes a line, or leaves it out.
func (h few) Handle(ctx context.Context, r slog.Record) error {
	omitted, may := h.b.take(r.Time, func() { h.tell(r) })
	if !may {
		return nil
	}
	if omitted > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", omitted))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns the handler with more attributes; they share the bound.
func (h few) WithAttrs(as []slog.Attr) slog.Handler { return few{h.Handler.WithAttrs(as), h.b} }

// WithGroup returns the handler within a group; they share the bound.
func (h few) WithGroup(name string) slog.Handler { return few{h.Handler.WithGroup(name), h.b} }

// take reports whether one more line may be written now, and how many were omitted since the last one. If one is
// omitted, tell is called later.
func (b *bucket) take(now time.Time, tell func()) (omitted int, may bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == b.most {
		b.since = now
	}
	if n := int(now.Sub(b.since) / b.every); n > 0 {
		b.left, b.since = min(b.most, b.left+n), b.since.Add(time.Duration(n)*b.every)
	}
	if b.left == 0 {
		b.omitted++
		if b.timer == nil {
			b.timer = time.AfterFunc(tellAfter, tell)
		}
		return 0, false
	}
	b.left--
	omitted, b.omitted = b.omitted, 0
	return omitted, true
}

// tell writes how many lines were omitted, unless a line has said so since.
func (h few) tell(like slog.Record) {
	h.b.mu.Lock()
	omitted := h.b.omitted
	h.b.omitted, h.b.timer = 0, nil
	h.b.mu.Unlock()
	if omitted == 0 {
		return
	}
	r := slog.NewRecord(time.Now(), like.Level, "more lines like others before were left out", like.PC)
	r.AddAttrs(slog.Int("left_out", omitted))
	_ = h.Handler.Handle(context.Background(), r) // an error of the log itself cannot be reported
}
