package tarcil_test

import (
	"math"
	"testing"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/tarcil"
)

// TestSampleSizeFindsAGoodSlotSurely: it is the least number with which one of the sampled workers has a good slot with
// probability 0.95, between 2 and 32.
func TestSampleSizeFindsAGoodSlotSurely(t *testing.T) {
	s := tarcil.New(scheduler.Fleet{Workers: 100}, tarcil.Options{})
	for good, want := range map[float64]int{1: 2, 0.96: 2, 0.9: 2, 0.5: 5, 0.2: 14, 0.1: 29, 0.01: 32, 0: 32} {
		n := s.SampleSize(good)
		if n != want {
			t.Errorf("%d workers are sampled where %.2f of them have a good slot, not %d", n, good, want)
		}
		if n > 2 && n < 32 && (1-math.Pow(1-good, float64(n)) < 0.95 || 1-math.Pow(1-good, float64(n-1)) >= 0.95) {
			t.Errorf("%d is not the least number for %.2f", n, good)
		}
	}
}
