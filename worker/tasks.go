package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Tasks runs short tasks on a worker beside its machines, with the same runtime and ledger. The worker passes on what
// the runtime reports about tasks. Its methods must not wait for the worker.
type Tasks interface {
	// Occupies reports whether a name of the runtime is a task's, and what it occupies while it runs.
	Occupies(name string) (want cluster.Resources, mine bool)
	// Known reports the runtime's task lives at asked: once before Run, then now and then.
	Known(asked time.Time, lives []runtime.Status)
	Exited(x runtime.Exit)
	// Changed reports that the worker's record has changed.
	Changed(rec *cluster.Record)
	// Evict ends a task, for a machine or a drain, and returns it to its queue. It may be called twice. The runner
	// calls ReleaseTask when the task has ended.
	Evict(p machine.Preemption)
}

// AdmitTask gives a task its room until ReleaseTask; see lifecycle.Supervisor for the refusal.
func (w *Worker) AdmitTask(ctx context.Context, t lifecycle.Task) error {
	var refused error
	err := w.loop.changeState(ctx, func(now time.Time) (out lifecycle.Out) {
		out, refused = w.loop.sup.AdmitTask(now, t)
		return out
	})
	if err != nil {
		return err // refused belongs to the loop then
	}
	return refused
}

// TaskDevices returns a task's GPU devices, by number and by the host's IDs.
func (w *Worker) TaskDevices(ctx context.Context, name string) (numbers []int, ids []string, err error) {
	_, err = readState(ctx, w.loop, func(time.Time) (any, error) {
		numbers, ids = w.loop.sup.TaskDevices(name)
		return nil, nil
	})
	return numbers, ids, err
}

// AdoptTask describes a task that has run since before this process.
func (w *Worker) AdoptTask(ctx context.Context, t lifecycle.Task) error {
	return w.loop.changeState(ctx, func(now time.Time) lifecycle.Out { return w.loop.sup.AdoptTask(now, t) })
}

// ReleaseTask frees a task's room.
func (w *Worker) ReleaseTask(ctx context.Context, name string) error {
	return w.loop.changeState(ctx, func(now time.Time) lifecycle.Out { return w.loop.sup.ReleaseTask(now, name) })
}

// RunningTasks lists the tasks that have room here, by name: running ones, and those about to run.
func (w *Worker) RunningTasks(ctx context.Context) ([]lifecycle.Task, error) {
	return readState(ctx, w.loop, func(time.Time) ([]lifecycle.Task, error) { return w.loop.sup.Tasks(), nil })
}

// taskHost is the loop's view of Tasks, which may be nil.
type taskHost struct{ Tasks }

// taskOccupies reports whether a name of the runtime is a task's, and what it occupies while it runs.
func (h taskHost) taskOccupies(name string) (want cluster.Resources, mine bool) {
	if h.Tasks == nil {
		return cluster.Resources{}, false
	}
	return h.Occupies(name)
}

// splitLives separates the lives of machines from those of tasks.
func (h taskHost) splitLives(known []runtime.Status) (machines, tasks []runtime.Status) {
	for _, s := range known {
		if _, mine := h.taskOccupies(s.Machine); mine {
			tasks = append(tasks, s)
		} else {
			machines = append(machines, s)
		}
	}
	return machines, tasks
}

// reportKnown passes the runtime's task lives to Tasks.
func (h taskHost) reportKnown(asked time.Time, lives []runtime.Status) {
	if h.Tasks != nil {
		h.Known(asked, lives)
	}
}

// forwardExit passes a task's exit to Tasks; false: it is no task's.
func (h taskHost) forwardExit(x runtime.Exit) bool {
	_, mine := h.taskOccupies(x.Machine)
	if mine {
		h.Exited(x)
	}
	return mine
}

// reportChanged passes the worker's changed record to Tasks.
func (h taskHost) reportChanged(rec *cluster.Record) {
	if h.Tasks != nil {
		h.Changed(rec)
	}
}
