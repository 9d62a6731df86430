package faults

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/soukhq/souk/core/scheduler/registry"
)

// TestSchedulersAreDrawnFromTheSeed: a seed repeats them, half are the auction, and each architecture is drawn.
func TestSchedulersAreDrawnFromTheSeed(t *testing.T) {
	const n = 4000
	draw := func() (list []string) {
		rng := rand.New(rand.NewPCG(7, 2001))
		for range n {
			list = append(list, drawScheduler(rng))
		}
		return list
	}
	list := draw()
	if !slices.Equal(list, draw()) {
		t.Error("the same seed draws others")
	}
	counts := map[string]int{}
	for _, name := range list {
		counts[name]++
	}
	if counts[""] < n*4/10 || counts[""] > n*6/10 || len(counts) != len(registry.Names()) {
		t.Errorf("drawn were %v", counts)
	}
}
