package faults

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/registry"
)

// drawScheduler draws the scheduler of a job: the auction for about every second job, else one of the architectures.
func drawScheduler(rng *rand.Rand) string {
	others := Architectures()
	if i := rng.IntN(2 * len(others)); i < len(others) {
		return others[i]
	}
	return ""
}

// Architectures lists the names of the architectures that jobs can have instead of the auction.
func Architectures() []string {
	return slices.DeleteFunc(registry.Names(), func(name string) bool { return name == jobs.Auction })
}

// schedulerName returns the name of a job's scheduler, for which "" is the auction.
func schedulerName(of string) string { return cmp.Or(of, jobs.Auction) }

// CountsText writes counts by name, the most first, then by name: "market 9, central 2".
func CountsText(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
