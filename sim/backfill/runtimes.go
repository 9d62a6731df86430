package backfill

import (
	"math/bits"
	"slices"

	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/sim/ticks"
)

// runTimes are the last run times of jobs, as parts of their estimates, by the size of the estimate: users ask for
// several times what their jobs need (Tsafrir, Etsion and Feitelson, "Backfilling Using System-Generated Predictions Rather
// than User Runtime Estimates", IEEE TPDS 18(6), 2007).
//
// Those of the job's user count, where there are enough.
type runTimes map[runClass]*parts

// runClass is jobs of one user, or with -1 of all, with about the same estimate: within a factor of four.
type runClass struct {
	user int64
	size int
}

const (
	allUsers  = -1
	enoughOwn = 10 // jobs of a user
)

// parts are parts of estimates, in a ring.
type parts struct {
	last   []float64
	next   int
	sorted []float64 // nil: to be made again
	sums   []float64 // of sorted from an index on
}

// mostParts is how many of the last jobs count.
const mostParts = 512

func (r runTimes) of(user int64, estimate ticks.Time) *parts {
	c := runClass{user, bits.Len64(uint64(estimate/ticks.Second)) / 2}
	if r[c] == nil {
		r[c] = new(parts)
	}
	return r[c]
}

// add counts a job that has ended.
func (r runTimes) add(j *Job) {
	part := float64(j.Run) / float64(j.Estimate)
	r.of(allUsers, j.Estimate).add(part)
	r.of(j.User, j.Estimate).add(part)
}

func (p *parts) add(part float64) {
	if p.sorted = nil; len(p.last) < mostParts {
		p.last = append(p.last, part)
		return
	}
	p.last[p.next] = part
	p.next = (p.next + 1) % mostParts
}

// expected returns the mean run time of jobs like this which have run for so long already.
func (r runTimes) expected(j *Job, ran ticks.Time) ticks.Time {
	p := r.of(j.User, j.Estimate)
	if len(p.last) < enoughOwn {
		p = r.of(allUsers, j.Estimate)
	}
	mean := p.meanAbove(float64(ran) / float64(j.Estimate))
	return max(ticks.Second, ticks.Time(mean*float64(j.Estimate)))
}

// meanAbove returns the mean of the parts that are above one.
func (p *parts) meanAbove(part float64) float64 {
	if p.sorted == nil {
		p.sorted = slices.Sorted(slices.Values(p.last))
		p.sums = make([]float64, len(p.sorted)+1)
		for i := range slices.Backward(p.sorted) {
			p.sums[i] = p.sums[i+1] + p.sorted[i]
		}
	}
	i, _ := slices.BinarySearch(p.sorted, part)
	n := len(p.sorted) - i
	switch {
	case n > 0:
		return p.sums[i] / float64(n)
	case len(p.sorted) == 0:
		return max(1, part)
	}
	return (part + max(part, 1)) / 2 // half of what is left by the estimate
}

// outlook is what a run expects of its jobs.
type outlook struct{ r *run }

// Length implements backfill.Outlook.
func (o outlook) Length(j backfill.Job) int64 { return o.r.etas.runs.expected(&o.r.jobs[j.ID], 0) }

// End implements backfill.Outlook.
func (o outlook) End(now, id, end int64) int64 {
	j := &o.r.jobs[id]
	began := end - j.Estimate
	return began + o.r.etas.runs.expected(j, now-began)
}
