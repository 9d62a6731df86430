package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/core/trial"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// jobsFlags are the flags of souk sim ab --jobs.
type jobsFlags struct {
	jobs           bool
	schedulers     []string
	since          string
	workers, slots int
	delay          float64
	seed           uint64
}

// jobsReport is souk sim ab --jobs --json.
type jobsReport struct {
	A        string          `json:"scheduler_a"`
	B        string          `json:"scheduler_b"`
	Jobs     int             `json:"jobs"`
	Tasks    int             `json:"tasks"`
	LeftOut  int             `json:"left_out"` // jobs that had not ended, or without a task that ran
	Workers  int             `json:"workers"`
	Slots    int             `json:"slots"`
	From     time.Time       `json:"from"`
	To       time.Time       `json:"to"`
	Measures []trial.Measure `json:"measures"`
}

// mostSlots bounds the slots of a worker.
const mostSlots = 1024

// abJobs compares two schedulers on the jobs that the cluster ran.
func abJobs(ctx context.Context, c *cli.Env, o *jobsFlags) error {
	if len(o.schedulers) != 2 {
		return cli.Usagef("--schedulers names two, such as --schedulers market,sparrow, not %d", len(o.schedulers))
	}
	names, err := registry.ParseList(o.schedulers)
	if err != nil {
		return err
	}
	if o.delay < 0 || o.delay > 1e6 || o.workers < 0 || o.workers > 1<<22 || o.slots < 0 || o.slots > mostSlots {
		return cli.Usagef("--delay is from 0 to 1000000, --workers from 0 to %d, --slots from 0 to %d", 1<<22,
			mostSlots)
	}
	since, err := cli.Since(o.since, time.Now())
	if err != nil {
		return err
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	r := jobsReport{A: names[0], B: names[1], Workers: o.workers, Slots: o.slots}
	list, shape, err := r.readJobs(ctx, c, cl, since)
	if err != nil {
		return err
	}
	if err := r.sizeFleet(ctx, cl, shape); err != nil {
		return err
	}
	if err := r.runBoth(list, o); err != nil {
		return err
	}
	r.print(c)
	return nil
}

// sizeFleet counts the cluster's workers, and how many tasks of a shape the mean one has room for, where no flag says
// otherwise.
func (r *jobsReport) sizeFleet(ctx context.Context, cl *client.Client, shape cluster.Resources) error {
	if r.Workers > 0 && r.Slots > 0 {
		return nil
	}
	all, err := cl.Workers(ctx)
	if err != nil {
		return err
	}
	ready, tasks := 0, int64(0)
	for _, w := range all.Workers {
		if w.State == cluster.Ready {
			ready++
			tasks += min(w.Capacity.CPU/max(1, shape.CPU), w.Capacity.Memory/max(1, shape.Memory))
		}
	}
	r.Workers = cmp.Or(r.Workers, ready)
	if r.Slots == 0 && ready > 0 {
		r.Slots = int(min(max(1, tasks/int64(ready)), mostSlots))
	}
	if r.Workers == 0 {
		return fault.New(fault.Unavailable, fault.CodeNoCapacity,
			"no worker is ready, so the fleet has no size; give --workers and --slots")
	}
	return nil
}

// readJobs returns the jobs that were submitted since a time and have ended, as a trace, and what their mean task takes.
func (r *jobsReport) readJobs(ctx context.Context, c *cli.Env, cl *client.Client,
	since time.Time) (list []trace.Job, mean cluster.Resources, err error) {
	all, err := cl.Jobs(ctx, c.AppNamed())
	if err != nil {
		return nil, mean, err
	}
	all = slices.DeleteFunc(all, func(j jobs.Job) bool { return j.Submitted.Before(since) })
	slices.SortStableFunc(all, func(a, b jobs.Job) int { return a.Submitted.Compare(b.Submitted) })
	for _, j := range all {
		durations := []float64(nil)
		if j.Ended != nil {
			tasks, err := cl.JobTasks(ctx, j.ID)
			if err != nil {
				return nil, mean, err
			}
			durations = durationsOf(tasks)
		}
		if len(durations) == 0 {
			r.LeftOut++
			continue
		}
		if len(list) == 0 {
			r.From = j.Submitted
		}
		r.To = j.Submitted
		t := trace.Job{Submit: j.Submitted.Sub(r.From).Seconds(), Durations: durations}
		for _, d := range durations {
			t.Mean += d / float64(len(durations))
		}
		list = append(list, t)
		r.Jobs, r.Tasks = r.Jobs+1, r.Tasks+len(durations)
		shape, n := j.Spec.Shape(), int64(len(durations))
		mean.CPU, mean.Memory = mean.CPU+n*shape.CPU, mean.Memory+n*shape.Memory
	}
	switch {
	case len(all) == 0:
		return nil, mean, fault.New(fault.NotFound, fault.CodeJobNotFound,
			"no job that is still kept was submitted in that time; give an earlier --since, or submit some")
	case len(list) == 0:
		return nil, mean, fault.New(fault.NotFound, fault.CodeJobNotFound,
			"none of the %s submitted in that time has ended with a task that ran; wait, or give an earlier --since",
			cli.NumberOf(len(all), "job", "jobs"))
	}
	mean.CPU, mean.Memory = mean.CPU/int64(r.Tasks), mean.Memory/int64(r.Tasks)
	return list, mean, nil
}

// durationsOf returns how long the tasks ran that ran, in seconds.
func durationsOf(tasks []jobs.Task) (out []float64) {
	for _, t := range tasks {
		if t.BeganAt != nil && t.EndedAt != nil {
			out = append(out, max(0, t.EndedAt.Sub(*t.BeganAt).Seconds()))
		}
	}
	return out
}

// runBoth simulates both schedulers. A job is long, and a part of the workers is kept for the others, as in sim compare.
func (r *jobsReport) runBoth(list []trace.Job, o *jobsFlags) error {
	open := sim.FromJobs(list)
	src, _, err := open(0)
	if err != nil {
		return err
	}
	info, err := trace.Scan(src, 0)
	if err != nil {
		return err
	}
	s := sim.Setup{Workers: r.Workers, Slots: r.Slots, Reserve: info.Reserve(), Options: slots.Options{Seed: o.seed,
		Cutoff: info.Cutoff, Delay: ticks.Time(o.delay * float64(ticks.Millisecond))}}
	if s.Delay == 0 {
		s.Delay = -1 // none, and not the default
	}
	var outcomes [2][]trial.Outcome
	for i, name := range []string{r.A, r.B} {
		s.Scheduler = name
		if outcomes[i], err = sim.Try(open, s); err != nil {
			return err
		}
	}
	r.Measures = trial.Compare(outcomes[0], outcomes[1])
	return nil
}

func (r *jobsReport) print(c *cli.Env) {
	if c.JSON {
		c.JSONLine(c.Out, r)
		return
	}
	fmt.Fprintf(c.Out, "%s against %s: %s, %s, submitted from %s to %s, on %s of %s\n", r.B, r.A,
		cli.NumberOf(r.Jobs, "job", "jobs"), cli.NumberOf(r.Tasks, "task", "tasks"),
		r.From.Local().Format(time.DateTime), r.To.Local().Format(time.DateTime),
		cli.NumberOf(r.Workers, "worker", "workers"), cli.NumberOf(r.Slots, "slot", "slots"))
	if r.LeftOut > 0 {
		fmt.Fprintf(c.Out, "  %d more have not ended, or none of their tasks ran\n", r.LeftOut)
	}
	cli.PrintMeasures(c, r.A, r.B, r.Measures)
}
