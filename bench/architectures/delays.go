package architectures

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// Delays are what the simulator is given of this host: what a fleet without other work takes for what the simulator
// takes for instantaneous. Times are milliseconds.
type Delays struct {
	Name    string  `json:"name"`       // "delays"
	Message float64 `json:"message_ms"` // one way, between members
	Job     float64 `json:"job_ms"`     // for each job: to accept it, and to record its end
	Idle    float64 `json:"idle_ms"`    // of a slot, from a task's end to the next one's start
	Start   float64 `json:"start_ms"`   // of a task, where as many as there are slots start at once
	Members int     `json:"members"`
	Slots   int     `json:"slots"` // of each member
}

// Text implements bench.Row.
func (d Delays) Text() string {
	return fmt.Sprintf("%d members of %d slots; a message takes %.2f ms, and a job %.2f ms besides; between two tasks "+
		"a slot is idle for %.2f ms; of many tasks at once one starts each %.2f ms", d.Members, d.Slots, d.Message,
		d.Job, d.Idle, d.Start)
}

const (
	idleJobs  = 24   // jobs of one task for each member
	idleTask  = 0.02 // seconds
	bursts    = 5    // jobs that have a task for each slot
	cycleTask = 1.0  // seconds, in the mean
	cycles    = 5    // tasks of each slot
)

// measureDelays measures an idle fleet. Its tasks go to random workers, by one message each.
func measureDelays(ctx context.Context, f *fleet) (Delays, error) {
	d := Delays{Name: "delays", Members: len(f.agents.List), Slots: f.slots}
	one := job{mean: idleTask, tasks: []float64{idleTask}}
	var here, there []time.Duration
	for i := range idleJobs * d.Members {
		id, err := f.submit(ctx, i, "random", &one, 1)
		if err != nil {
			return d, err
		}
		r, err := f.wait(ctx, i, id)
		if err != nil {
			return d, err
		}
		extra := r.ended.Sub(r.submitted) - time.Duration(r.tasks[0].TookMS*float64(time.Millisecond))
		if f.agents.List[i%d.Members].ID() == string(r.tasks[0].Worker) {
			here = append(here, extra)
		} else {
			there = append(there, extra)
		}
	}
	if len(here) == 0 || len(there) == 0 {
		return d, fault.New(fault.Internal, fault.CodeBench,
			"of %d tasks %d ran at the member that keeps them; a delay needs both", len(here)+len(there), len(here))
	}
	// The lower quartile: what comes on top at times has nothing to do with where a task runs.
	inside := quartile(here)
	// A task that runs elsewhere takes one message there, and one back for its end.
	d.Message = max(0, (quartile(there)-inside)/2)
	// The tasks of a slot end at times of their own, as the host cannot start all at once.
	many := job{mean: cycleTask}
	n := cycles * f.allSlots()
	for i := range n {
		many.tasks = append(many.tasks, cycleTask*(0.5+float64(i*7919%n)/float64(n)))
	}
	id, err := f.submit(ctx, 0, "random", &many, 1)
	if err != nil {
		return d, err
	}
	r, err := f.wait(ctx, 0, id)
	if err != nil {
		return d, err
	}
	d.Idle = idleBetween(r.tasks)
	if d.Start, err = measureStarts(ctx, f); err != nil {
		return d, err
	}
	d.Job = inside + d.Message // the simulator counts a message to the task, but none for its end
	return d, nil
}

// measureStarts returns how long the host takes to start a task, in ms, where all slots get one at once: the median of
// some jobs.
func measureStarts(ctx context.Context, f *fleet) (float64, error) {
	burst := job{mean: 1}
	for i := range f.allSlots() { // of unequal tasks, as most jobs of traces are
		burst.tasks = append(burst.tasks, 1+float64(i)/1000)
	}
	var each []time.Duration
	for i := range bursts {
		id, err := f.submit(ctx, i, "monolithic", &burst, 1)
		if err != nil {
			return 0, err
		}
		r, err := f.wait(ctx, i, id)
		if err != nil {
			return 0, err
		}
		first, last := *r.tasks[0].BeganAt, *r.tasks[0].BeganAt
		for _, t := range r.tasks {
			if t.BeganAt.Before(first) {
				first = *t.BeganAt
			}
			if t.BeganAt.After(last) {
				last = *t.BeganAt
			}
		}
		each = append(each, last.Sub(first)/time.Duration(max(1, len(r.tasks)-1)))
	}
	return bench.Quantile(each, 0.5), nil
}

// idleBetween returns the median time, in ms, from the end of a task to the beginning of the next one in its slot, where
// tasks always wait: the slot of a task is the one that became free last before it began.
func idleBetween(list []jobs.Task) float64 {
	byWorker := map[string][]jobs.Task{}
	for _, t := range list {
		byWorker[string(t.Worker)] = append(byWorker[string(t.Worker)], t)
	}
	var gaps []time.Duration
	for _, mine := range byWorker {
		slices.SortFunc(mine, func(a, b jobs.Task) int { return a.BeganAt.Compare(*b.BeganAt) })
		var free []time.Time // ends of tasks, in order
		for _, t := range mine {
			at, _ := slices.BinarySearchFunc(free, *t.BeganAt, func(a, b time.Time) int { return a.Compare(b) })
			if at > 0 {
				gaps = append(gaps, t.BeganAt.Sub(free[at-1]))
				free = slices.Delete(free, at-1, at)
			}
			at, _ = slices.BinarySearchFunc(free, *t.EndedAt, func(a, b time.Time) int { return a.Compare(b) })
			free = slices.Insert(free, at, *t.EndedAt)
		}
	}
	if len(gaps) == 0 {
		return 0
	}
	return bench.Quantile(gaps, 0.5)
}

func quartile(ds []time.Duration) float64 { return bench.Quantile(ds, 0.25) }
