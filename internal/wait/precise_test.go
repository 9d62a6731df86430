package wait_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait"
)

// TestPreciseWaitsExactlyOrUntilCancelled waits as long as it was told to, also where its context has ended.
func TestPreciseWaitsExactlyOrUntilCancelled(t *testing.T) {
	var p wait.Precise
	defer p.Close()
	for _, d := range []time.Duration{-1, 0, 1, 100 * time.Microsecond, 2 * time.Millisecond, 6 * time.Millisecond} {
		begin := time.Now()
		if err := p.For(t.Context(), d); err != nil || time.Since(begin) < d {
			t.Errorf("%v: %v after %v", d, err, time.Since(begin))
		}
	}
	late := errors.New("late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	for _, d := range []time.Duration{0, time.Millisecond, time.Hour} {
		if err := p.For(ctx, d); d > 0 && !errors.Is(err, late) {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// BenchmarkPreciseAgainstGoTimer shows what a pause of 0.1 ms takes, and what Go's own timer makes of it.
func BenchmarkPreciseAgainstGoTimer(b *testing.B) {
	const d = 100 * time.Microsecond
	b.Run("precise", func(b *testing.B) {
		var p wait.Precise
		defer p.Close()
		for b.Loop() {
			_ = p.For(b.Context(), d)
		}
	})
	b.Run("timer", func(b *testing.B) {
		for b.Loop() {
			_ = wait.For(b.Context(), d)
		}
	})
}
