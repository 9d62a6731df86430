package backfill

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// Job is a rigid job of a trace. Its times are whole seconds, in ticks.
type Job struct {
	Submit     ticks.Time // after the first job's
	Run        ticks.Time // a second or more
	Estimate   ticks.Time // a second or more
	Processors int64
	User       int64 // whose it is: a number, or 0 where the trace does not say
}

// Reading says how jobs are made of a trace.
type Reading struct {
	Load  float64 // jobs come so many times as fast; 0: 1
	Every int     // one of so many jobs of the trace is read; 0: 1
	Over  float64 // ByFactor: how much of its run time an estimate may be above it
	Seed  uint64  // ByFactor: decides the estimates
	Estimates
}

// Estimates says where estimates come from.
type Estimates int

// The sources of estimates.
const (
	FromTrace Estimates = iota // the time that the trace says was asked for; the run time where it says nothing
	Exact                      // the run time
	ByFactor                   // uniform from the run time to 1+Over times it: Mu'alem and Feitelson's model, TPDS 2001
)

// Read makes jobs of a trace. A job of many tasks is a gang, which occupies one processor a task until its longest task
// has ended. Times are rounded to whole seconds, the resolution of a log in SWF: submissions down, run times and
// estimates up, to one second at least.
func Read(src trace.Source, o Reading) ([]Job, error) {
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	var jobs []Job
	first := 0.0
	for n := 0; ; n++ {
		j, err := src.Next()
		if errors.Is(err, io.EOF) {
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			first = j.Submit
		}
		if o.Every > 1 && n%o.Every != 0 {
			continue
		}
		submit := j.Submit - first
		if o.Load > 0 {
			submit /= o.Load
		}
		run := slices.Max(j.Durations)
		estimate := j.Mean
		switch o.Estimates {
		case Exact:
			estimate = run
		case ByFactor:
			estimate = run * (1 + o.Over*rng.Float64())
		}
		jobs = append(jobs, Job{Submit: ticks.Time(math.Floor(submit)) * ticks.Second, Run: wholeSeconds(run),
			Estimate: wholeSeconds(estimate), Processors: int64(len(j.Durations)), User: j.User})
	}
}

func wholeSeconds(s float64) ticks.Time { return max(1, ticks.Time(math.Ceil(s))) * ticks.Second }

// WriteSWF writes jobs in the Standard Workload Format, with their waits from a run, so that other simulators can run
// the same: -1 is the wait of a refused job.
func WriteSWF(w io.Writer, jobs []Job, waits []ticks.Time, processors int64) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "; Version: 2.2\n; MaxJobs: %d\n; MaxProcs: %d\n", len(jobs), processors)
	for i, j := range jobs {
		wait, status := waits[i], 1
		if wait < 0 {
			wait, status = -ticks.Second, 0
		}
		user := j.User
		if user == 0 {
			user = -1
		}
		fmt.Fprintf(out, "%d %d %d %d %d -1 -1 %d %d -1 %d %d -1 -1 -1 -1 -1 -1\n", i+1, j.Submit/ticks.Second,
			wait/ticks.Second, j.Run/ticks.Second, j.Processors, j.Processors, j.Estimate/ticks.Second, status, user)
	}
	return out.Flush()
}
