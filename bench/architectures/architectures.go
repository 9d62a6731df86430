// Package architectures runs the jobs of a trace by each scheduling architecture on workers of this host, and the same
// jobs in the simulator, and holds the two together. Tasks are sleep processes. The simulator is given the delays and
// the submission times that were measured in the same run, so what is left between the two is what the simulator does
// not know: work that takes longer when much is done at once.
package architectures

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/core/scheduler/shell"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// Options say what is measured.
type Options struct {
	Schedulers []string  // NAME or NAME:N of package registry
	Traces     []string  // files that package trace reads
	Loads      []float64 // shares of all slots, above 0 and below 1
	Members    int       // agents
	Slots      int       // of each: tasks that it runs at once
	Jobs       int       // of each trace, from its beginning
	Scales     []float64 // of all times: one for all traces, or one for each
	// Cutoff is the mean task duration in seconds, before scaling, above which a job is long; 0: the 90th percentile.
	Cutoff float64
	Rounds int // of each measurement
	Seeds  int // of the simulator, for each round
}

// Check refuses what cannot be measured.
func (o *Options) Check() (err error) {
	no := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeBench, format, args...)
	}
	switch {
	case len(o.Traces) == 0:
		return no("a trace is missing; name its file")
	case o.Members < 2 || o.Members > 64 || o.Slots < 1 || o.Slots > 64:
		return no("there are 2 to 64 members of 1 to 64 slots, not %d of %d", o.Members, o.Slots)
	case o.Jobs < 2 || o.Jobs > maxJobs || o.Rounds < 1 || o.Seeds < 1:
		return no("there are 2 to %d jobs, at least 1 round and 1 seed; not %d, %d, %d", maxJobs, o.Jobs, o.Rounds,
			o.Seeds)
	case len(o.Scales) != 1 && len(o.Scales) != len(o.Traces):
		return no("there is one scale, or one for each of %d traces; got %d", len(o.Traces), len(o.Scales))
	case slices.ContainsFunc(o.Scales, func(x float64) bool { return !(x > 0 && x <= 1000) }) || o.Cutoff < 0:
		return no("a scale is above 0 and up to 1000; got %v; the cutoff is 0 or more, not %g", o.Scales, o.Cutoff)
	case len(o.Loads) == 0 || slices.ContainsFunc(o.Loads, func(x float64) bool { return !(x > 0 && x < 1) }):
		return no("a load is a share of all slots between 0 and 1; got %v", o.Loads)
	}
	o.Schedulers, err = registry.ParseList(o.Schedulers)
	return err
}

// Ratios are of live to simulated figures.
type Ratios = sim.Class

// Row is one architecture under one load. Times are seconds: of a job, from its submission until its end.
type Row struct {
	Name      string    `json:"name"` // "architecture"
	Trace     string    `json:"trace"`
	Load      float64   `json:"load"`
	Scheduler string    `json:"scheduler"`
	Jobs      int       `json:"jobs"`
	Tasks     int       `json:"tasks"`
	Live      sim.Class `json:"live"`      // medians over the rounds
	Simulated sim.Class `json:"simulated"` // medians over rounds and seeds
	Ratio     Ratios    `json:"ratio"`     // live / simulated
	Launch    float64   `json:"launch_ms"` // by how much a task took longer than it sleeps: mean
	// Messages are the messages a task, live and simulated; 0 live: the auction's are not counted.
	Messages          float64 `json:"messages_per_task,omitempty"`
	SimulatedMessages float64 `json:"simulated_messages_per_task"`
	first             bool    // of its trace and load
}

// Text implements bench.Row.
func (r Row) Text() string {
	head := ""
	if r.first {
		head = fmt.Sprintf("\n%s at %.0f %%: %d jobs, %d tasks; seconds live, and live / simulated\n"+
			"%-14s%9s%6s%9s%6s%9s%6s%9s%6s%6s%6s\n",
			r.Trace, 100*r.Load, r.Jobs, r.Tasks, "SCHEDULER", "P50", "", "P90", "", "P99", "", "MEAN", "", "MSGS", "")
	}
	pair := func(x, ratio float64) string { return fmt.Sprintf("%9.2f%6.2f", x, ratio) }
	messages := fmt.Sprintf("%6s%6.1f", "-", r.SimulatedMessages)
	if r.Messages > 0 {
		messages = fmt.Sprintf("%6.1f%6.2f", r.Messages, r.Messages/r.SimulatedMessages)
	}
	return head + fmt.Sprintf("%-14s", r.Scheduler) + pair(r.Live.P50, r.Ratio.P50) + pair(r.Live.P90, r.Ratio.P90) +
		pair(r.Live.P99, r.Ratio.P99) + pair(r.Live.Mean, r.Ratio.Mean) + messages
}

// Measure measures what Options say, which Check has passed, on a fleet of its own.
func Measure(ctx context.Context, o *Options, to bench.Reporter) error {
	loads := make([]load, len(o.Traces))
	for i, path := range o.Traces {
		var err error
		if loads[i], err = readLoad(path, o.Jobs, o.Scales[i%len(o.Scales)], o.Cutoff); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "souk-bench-*")
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeBench, "no temporary directory can be made")
	}
	defer os.RemoveAll(dir)
	done := to.Working("starting %d agents", o.Members)
	f, err := startFleet(ctx, dir, o.Members, o.Slots, to.Stderr())
	done()
	if err != nil {
		return err
	}
	defer f.agents.Close()
	done = to.Working("measuring the delays")
	delays, err := measureDelays(ctx, f)
	done()
	if err != nil {
		return err
	}
	to.Row(delays)
	for i := range loads {
		for _, share := range o.Loads {
			for k, name := range o.Schedulers {
				row, err := measureOne(ctx, o, f, &loads[i], share, name, delays, to)
				if err != nil {
					return err
				}
				row.first = k == 0
				to.Row(row)
			}
		}
	}
	return nil
}

// measureOne measures one architecture under one load.
func measureOne(ctx context.Context, o *Options, f *fleet, l *load, share float64, name string, d Delays,
	to bench.Reporter) (Row, error) {
	row := Row{Name: "architecture", Trace: l.name, Load: share, Scheduler: name, Jobs: len(l.jobs), Tasks: l.tasks()}
	at := l.space(share, f.allSlots())
	var liveRuns, simRuns []sim.Class
	launch := 0.0
	for round := range o.Rounds {
		done := to.Working("%s at %.0f %%: %s, round %d of %d", l.name, 100*share, name, round+1, o.Rounds)
		before, err := f.messages(ctx, name)
		if err != nil {
			return row, err
		}
		runs, err := f.replay(ctx, name, l, at)
		done()
		if err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
		after, err := f.messages(ctx, name)
		if err != nil {
			return row, err
		}
		row.Messages += float64(after-before) / float64(row.Tasks*o.Rounds)
		took := make([]float64, len(runs))
		for i := range runs {
			took[i] = runs[i].took()
		}
		liveRuns = append(liveRuns, sim.ClassOf(took))
		extra := launchOf(l, runs)
		launch += extra * 1000 / float64(o.Rounds)
		for seed := range o.Seeds {
			c, messages, err := simulate(l, runs, f, name, d, extra, uint64(seed+1))
			if err != nil {
				return row, err
			}
			simRuns = append(simRuns, c)
			row.SimulatedMessages += messages / float64(o.Rounds*o.Seeds)
		}
	}
	row.Live, row.Simulated, row.Launch = medians(liveRuns), medians(simRuns), launch
	row.Ratio = Ratios{P50: row.Live.P50 / row.Simulated.P50, P90: row.Live.P90 / row.Simulated.P90,
		P99: row.Live.P99 / row.Simulated.P99, Mean: row.Live.Mean / row.Simulated.Mean}
	return row, nil
}

// launchOf returns the mean time, in seconds, by which a task took longer than it sleeps.
func launchOf(l *load, runs []ran) float64 {
	sum, n := 0.0, 0
	for i := range runs {
		for _, t := range runs[i].tasks {
			sum += t.TookMS/1000 - l.jobs[i].tasks[t.Index]
			n++
		}
	}
	return sum / float64(n)
}

// simulate runs jobs in the simulator, which come when they came live. It also returns the messages a task.
func simulate(l *load, runs []ran, f *fleet, name string, d Delays, launch float64, seed uint64) (sim.Class, float64,
	error) {
	src := &arrivals{jobs: l.jobs, longer: launch + d.Idle/1000}
	for i := range runs {
		src.order = append(src.order, i)
		src.at = append(src.at, runs[i].submitted.Sub(runs[0].submitted).Seconds())
	}
	slices.SortStableFunc(src.order, func(a, b int) int { return cmp.Compare(src.at[a], src.at[b]) })
	src.first = src.at[src.order[0]]
	members := len(f.agents.List)
	var took []float64
	// The cutoff is of means that are not longer by the launch: arrivals gives those.
	s := sim.Setup{Scheduler: name, Workers: members, Slots: f.slots, Reserve: shell.HawkShare,
		Options: slots.Options{Seed: seed, Cutoff: l.cutoff, Buyers: members,
			Delay:  max(1, ticks.Time(d.Message*float64(ticks.Millisecond))),
			Starts: ticks.Time(d.Start * float64(ticks.Millisecond)),
			Each: func(r slots.Result) {
				took = append(took, ticks.Seconds(r.Ended-r.Submitted)+d.Job/1000)
			}}}
	if name == "market" { // each member is a buyer, and no worker is reserved
		s.Scheduler, s.Reserve = fmt.Sprintf("market:%d", members), 0
	}
	got, err := sim.Run(src, s)
	if err == nil && len(took) < len(runs) {
		err = fault.New(fault.Internal, fault.CodeBench, "%s left %d of %d jobs unfinished in the simulator", name,
			len(runs)-len(took), len(runs))
	}
	return sim.ClassOf(took), got.Messages, err
}

// arrivals yields jobs as they were submitted.
type arrivals struct {
	jobs   []job
	at     []float64 // by job
	order  []int
	next   int
	first  float64
	longer float64 // of each task, in seconds
}

// Next implements trace.Source.
func (a *arrivals) Next() (trace.Job, error) {
	if a.next == len(a.order) {
		return trace.Job{}, io.EOF
	}
	i := a.order[a.next]
	a.next++
	j := &a.jobs[i]
	durations := make([]float64, len(j.tasks))
	for k, t := range j.tasks {
		durations[k] = t + a.longer
	}
	return trace.Job{Submit: a.at[i] - a.first, Mean: j.mean, Durations: durations}, nil
}

// medians returns the median of each figure.
func medians(list []sim.Class) sim.Class {
	of := func(f func(sim.Class) float64) float64 {
		xs := make([]float64, len(list))
		for i, c := range list {
			xs[i] = f(c)
		}
		slices.Sort(xs)
		return xs[len(xs)/2]
	}
	return sim.Class{P50: of(func(c sim.Class) float64 { return c.P50 }),
		P90:  of(func(c sim.Class) float64 { return c.P90 }),
		P99:  of(func(c sim.Class) float64 { return c.P99 }),
		Mean: of(func(c sim.Class) float64 { return c.Mean })}
}
