package trace

import (
	"errors"
	"io"
	"math"
	"slices"
)

// Spread is a distribution.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Info summarises a trace. Times are seconds.
type Info struct {
	Jobs        int     `json:"jobs"`
	Tasks       int64   `json:"tasks"`
	SlotSeconds float64 `json:"slot_seconds"`
	First       float64 `json:"first"` // first submission
	Last        float64 `json:"last"`
	Means       Spread  `json:"means"` // of the jobs' stated means
	Sizes       Spread  `json:"sizes"` // tasks of a job
	Peak        int64   `json:"peak"`  // most concurrent tasks, if none ever waited
	// concurrent tasks, if none ever waited, in equal parts of the time of submissions
	Load        []float64 `json:"load"`
	Cutoff      float64   `json:"cutoff"`
	LongJobs    float64   `json:"long_jobs"`    // share of the jobs whose mean is above Cutoff
	LongSeconds float64   `json:"long_seconds"` // their share of the slot seconds
}

// parts is the number of parts in Load.
const parts = 40

// Scan reads a trace to its end. cutoff 0 chooses the 90th percentile of the means, like the papers' cutoffs.
func Scan(src Source, cutoff float64) (Info, error) {
	var in Info
	var means, sizes, works, starts, ends []float64
	for {
		j, err := src.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return in, err
		}
		if in.Jobs++; in.Jobs == 1 {
			in.First = j.Submit
		}
		in.Last = j.Submit
		in.Tasks += int64(len(j.Durations))
		work := 0.0
		for _, d := range j.Durations {
			work += d
			starts, ends = append(starts, j.Submit), append(ends, j.Submit+d)
		}
		in.SlotSeconds += work
		means, sizes, works = append(means, j.Mean), append(sizes, float64(len(j.Durations))), append(works, work)
	}
	if in.Jobs == 0 {
		return in, nil
	}
	slices.Sort(ends)
	in.Peak = peakTasks(starts, ends)
	in.Load = meanLoad(starts, ends, in.First, in.Last)
	long, longWork := 0, 0.0
	if in.Cutoff = cutoff; cutoff == 0 {
		in.Cutoff = spreadOf(slices.Clone(means)).P90
	}
	for i, m := range means {
		if m > in.Cutoff {
			long++
			longWork += works[i]
		}
	}
	in.LongJobs = float64(long) / float64(in.Jobs)
	if in.SlotSeconds > 0 {
		in.LongSeconds = longWork / in.SlotSeconds
	}
	in.Means, in.Sizes = spreadOf(means), spreadOf(sizes)
	return in, nil
}

// Reserve returns the percentage of workers that Hawk and Eagle reserve for short jobs: the share of the short jobs in
// the slot seconds, rounded up.
func (in Info) Reserve() float64 { return min(50, math.Ceil(100*(1-in.LongSeconds))) }

func spreadOf(xs []float64) Spread {
	slices.Sort(xs)
	n := len(xs)
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	at := func(p float64) float64 { return xs[max(0, int(math.Ceil(p*float64(n)))-1)] }
	return Spread{Mean: sum / float64(n), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: xs[n-1]}
}

// peakTasks returns the most concurrent tasks; both lists are sorted.
func peakTasks(starts, ends []float64) (most int64) {
	over := 0
	for i, s := range starts {
		for over < len(ends) && ends[over] <= s {
			over++
		}
		most = max(most, int64(i+1-over))
	}
	return most
}

// meanLoad returns the mean number of concurrent tasks in each part of the time from first to last.
func meanLoad(starts, ends []float64, first, last float64) []float64 {
	width := (last - first) / parts
	if width <= 0 {
		return nil
	}
	upTo := func(t float64, at []float64) (sum float64) { // slot seconds until t, of tasks at these moments
		for _, a := range at {
			if a < t {
				sum += t - a
			}
		}
		return sum
	}
	out := make([]float64, parts)
	before := 0.0
	for i := range out {
		t := first + width*float64(i+1)
		now := upTo(t, starts) - upTo(t, ends)
		out[i], before = (now-before)/width, now
	}
	return out
}
