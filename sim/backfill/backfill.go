// Package backfill runs rigid parallel jobs of a trace through the policies of core/backfill on one pool of equal
// processors, in simulated time.
package backfill

import (
	"context"

	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/sim/ticks"
)

// BoundedBelow is the shortest run time that a bounded slowdown divides by.
const BoundedBelow = 10 * ticks.Second

// Report is the result of a run. Times are seconds.
type Report struct {
	Jobs        int     `json:"jobs"`    // all but the refused
	Refused     int     `json:"refused"` // need more processors than there are
	MeanWait    float64 `json:"mean_wait"`
	MaxWait     float64 `json:"max_wait"`
	Bounded     float64 `json:"bounded_slowdown"` // mean of max(1, (wait+run)/max(run, 10 s))
	Utilisation float64 `json:"utilisation"`      // from the first submission to the last end
	Backfilled  int     `json:"backfilled"`       // started before a job that was submitted earlier
	Longest     int     `json:"longest_queue"`
	// Starts and Ends are the intervals said at submissions for the start of a job that waits, and for the end of a job;
	// nil: there are none.
	Starts *Intervals `json:"start_intervals,omitempty"`
	Ends   *Intervals `json:"end_intervals,omitempty"`
}

// Config is what jobs run on.
type Config struct {
	Policy     backfill.Policy
	Processors int64
	// Singly is how pyss, the Python scheduling simulator, orders what happens at one moment: each arrival, and then
	// each end before its estimate, has a pass of the policy of its own. Otherwise one pass sees all of them.
	Singly bool
	// Foretell makes forecasts for one of so many jobs; 0: for none.
	Foretell int
}

// run is a run under way.
type run struct {
	Config
	jobs    []Job
	p       *backfill.Planner
	ends    ticks.Heap[int64]
	waits   []ticks.Time // -1: refused
	started []bool       // or refused
	next    int          // the first job that has not arrived
	first   int          // the first that waits or has not arrived
	report  Report
	etas    *forecasts // nil: none are made
}

// Run runs jobs, which are sorted by their submission, and returns their waits too: -1 for a refused job. It ends early
// only with ctx, and then with the cause.
func Run(ctx context.Context, c Config, jobs []Job) (Report, []ticks.Time, error) {
	r := &run{Config: c, jobs: jobs, waits: make([]ticks.Time, len(jobs)), started: make([]bool, len(jobs)),
		p: backfill.NewPlanner(c.Policy, 0, backfill.Vector{c.Processors}, ticks.Second)}
	if c.Foretell > 0 {
		r.etas = newForecasts(c.Foretell)
	}
	wake := ticks.Time(backfill.Never)
	for passes := 0; ; passes++ {
		if passes%1024 == 0 && ctx.Err() != nil {
			return r.report, nil, context.Cause(ctx)
		}
		now := wake
		if at, ok := r.ends.Next(); ok {
			now = min(now, at)
		}
		if r.next < len(jobs) {
			now = min(now, jobs[r.next].Submit)
		}
		if now == backfill.Never {
			break
		}
		r.advance(now)
		wake = r.p.Wake(now)
	}
	if r.etas != nil {
		r.report.Starts, r.report.Ends = r.etas.intervals(startKind), r.etas.intervals(endKind)
	}
	r.report.sumUp(c.Processors, jobs, r.waits)
	return r.report, r.waits, nil
}

// advance carries out what happens at a moment.
func (r *run) advance(now ticks.Time) {
	var early []int64
	for at, ok := r.ends.Next(); ok && at == now; at, ok = r.ends.Next() {
		_, id, _ := r.ends.Pop()
		if j := &r.jobs[id]; r.Singly && j.Run < j.Estimate {
			early = append(early, id)
		} else {
			r.p.End(now, id)
		}
		if r.etas != nil {
			r.etas.score(now, endKind, r.etas.ends, id)
			r.etas.runs.add(&r.jobs[id])
		}
	}
	from := r.next
	for ; r.next < len(r.jobs) && r.jobs[r.next].Submit == now; r.next++ {
		j := &r.jobs[r.next]
		err := r.p.Submit(backfill.Job{ID: int64(r.next), Need: backfill.Vector{j.Processors}, Estimate: j.Estimate})
		if err != nil {
			r.report.Refused++
			r.waits[r.next], r.started[r.next] = -1, true
		}
		if r.Singly {
			r.start(now)
		}
	}
	for _, id := range early {
		r.p.End(now, id)
		r.start(now)
	}
	r.start(now)
	if r.etas != nil {
		r.foretell(now, from)
	}
	r.report.Longest = max(r.report.Longest, r.p.Waiting())
}

// start starts what the policy says.
func (r *run) start(now ticks.Time) {
	began := r.p.Start(now)
	for _, j := range began {
		r.waits[j.ID], r.started[j.ID] = now-r.jobs[j.ID].Submit, true
		r.ends.Push(now+r.jobs[j.ID].Run, j.ID)
		if r.etas != nil {
			r.etas.score(now, startKind, r.etas.starts, j.ID)
		}
	}
	for r.first < len(r.jobs) && r.started[r.first] {
		r.first++
	}
	for _, j := range began {
		if int(j.ID) > r.first {
			r.report.Backfilled++
		}
	}
}

func (r *Report) sumUp(processors int64, jobs []Job, waits []ticks.Time) {
	work, last := 0.0, ticks.Time(0)
	for i, j := range jobs {
		if waits[i] < 0 {
			continue
		}
		r.Jobs++
		r.MeanWait += ticks.Seconds(waits[i])
		r.MaxWait = max(r.MaxWait, ticks.Seconds(waits[i]))
		r.Bounded += max(1, float64(waits[i]+j.Run)/float64(max(j.Run, BoundedBelow)))
		work += ticks.Seconds(j.Run) * float64(j.Processors)
		last = max(last, j.Submit+waits[i]+j.Run)
	}
	if r.Jobs == 0 {
		return
	}
	r.MeanWait /= float64(r.Jobs)
	r.Bounded /= float64(r.Jobs)
	r.Utilisation = work / (ticks.Seconds(last-jobs[0].Submit) * float64(processors))
}
