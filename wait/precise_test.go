package wait_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/wait"
)

// TestPrecise waits as long as it was told to, also where its context has ended, and no longer than Go's own timer at its best.
func TestPrecise(t *testing.T) {
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
	var took []time.Duration
	for range 200 {
		begin := time.Now()
		_ = p.For(t.Context(), 100*time.Microsecond)
		took = append(took, time.Since(begin))
	}
	if best := slices.Min(took); best >= 900*time.Microsecond { // the best of many: a busy host delays most of them
		t.Errorf("a pause of 0.1 ms takes %v at the least", best)
	}
}
