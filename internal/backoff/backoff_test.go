package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/backoff"
)

func TestPauseDoublesUpToItsBound(t *testing.T) {
	d := backoff.Doubling{Base: 100 * time.Millisecond, Most: time.Second}
	for tries, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if got := d.After(tries); got != want*time.Millisecond {
			t.Errorf("after %d tries: %v, want %v", tries, got, want*time.Millisecond)
		}
	}
	for _, d := range []backoff.Doubling{{1, math.MaxInt64 / 2}, {5, 3}, {0, 0}} {
		if got := d.After(math.MaxInt); got < 0 || got > d.Most {
			t.Errorf("%v after all tries: %v", d, got)
		}
	}
}
