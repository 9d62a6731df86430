// Package trial compares two schedulers by how the same jobs fared under each of them.
package trial

import (
	"math"
	"slices"
)

// Outcome is how a job fared. Times are seconds.
type Outcome struct {
	Wait    float64 // from its submission until its first task began
	Runtime float64 // from its submission until its last task ended
	Longest float64 // its longest task
}

// short is the run time below which a job's slow-down does not count in full: the usual bound of Feitelson's (Metrics
// and benchmarking for parallel job scheduling, JSSPP'98), in seconds.
const short = 10

// Slowdown returns the bounded slow-down: how many times as long the job took as its longest task, or as 10 s where that
// is shorter; at least 1.
func (o Outcome) Slowdown() float64 { return max(1, o.Runtime/max(o.Longest, short)) }

// Distribution is a measure over the jobs: percentiles by nearest rank, and the mean.
type Distribution struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`
}

// Measure is one measure under both schedulers.
type Measure struct {
	Name string       `json:"measure"` // wait, runtime or slowdown
	A    Distribution `json:"a"`
	B    Distribution `json:"b"`
	// Difference is the mean over the jobs of B's value less A's, and Half half the width of its 95 % interval; it is 0
	// with one job
	Difference float64 `json:"difference"`
	Half       float64 `json:"half_width"`
}

// Compare compares the outcomes of the same jobs, in the same order, under two schedulers.
func Compare(a, b []Outcome) []Measure {
	of := func(name string, value func(Outcome) float64) Measure {
		x, y, diffs := make([]float64, len(a)), make([]float64, len(a)), make([]float64, len(a))
		for i := range a {
			x[i], y[i] = value(a[i]), value(b[i])
			diffs[i] = y[i] - x[i]
		}
		m := Measure{Name: name, A: distributionOf(x), B: distributionOf(y)}
		m.Difference, m.Half = interval(diffs)
		return m
	}
	return []Measure{of("wait", func(o Outcome) float64 { return o.Wait }),
		of("runtime", func(o Outcome) float64 { return o.Runtime }), of("slowdown", Outcome.Slowdown)}
}

// distributionOf sorts xs.
func distributionOf(xs []float64) (s Distribution) {
	n := len(xs)
	if n == 0 {
		return s
	}
	slices.Sort(xs)
	at := func(p float64) float64 { return xs[max(0, int(math.Ceil(p*float64(n)))-1)] }
	return Distribution{at(0.5), at(0.9), at(0.99), meanOf(xs)}
}

func meanOf(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// z95 is the 97.5 % point of the normal distribution.
const z95 = 1.959964

// interval returns the mean, and half the width of its 95 % interval.
func interval(xs []float64) (mean, half float64) {
	n := float64(len(xs))
	if n == 0 {
		return 0, 0
	}
	mean = meanOf(xs)
	if n == 1 {
		return mean, 0
	}
	squares := 0.0
	for _, x := range xs {
		squares += (x - mean) * (x - mean)
	}
	return mean, z95 * math.Sqrt(squares/(n-1)/n)
}
