// Package sim runs whole clusters in simulated time: traces through every scheduling architecture, the bounds that no
// architecture beats, and the reports that compare them.
package sim

import (
	"math"
	"slices"
)

// Class is the distribution of the job runtimes of one class, in seconds. A runtime is the end of a job's last task
// minus its submission.
type Class struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`
}

// ClassOf returns the distribution of some runtimes, which it sorts. The percentile p of n values is the one of rank
// ceil(p*n).
func ClassOf(runtimes []float64) Class {
	if len(runtimes) == 0 {
		return Class{}
	}
	slices.Sort(runtimes)
	return Class{P50: nearestRank(runtimes, 0.50), P90: nearestRank(runtimes, 0.90), P99: nearestRank(runtimes, 0.99),
		Mean: meanOf(runtimes)}
}

func nearestRank(sorted []float64, p float64) float64 {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

func meanOf(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}
