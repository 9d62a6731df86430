package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Tasks is who runs short tasks on a worker beside its machines, with the same runtime and out of the same ledger. The
// worker tells it what the runtime says of its names. Its methods must not wait for the worker.
type Tasks interface {
	// Occupies reports whether a name of the runtime is a task's, and what it occupies while it runs.
	Occupies(name string) (want cluster.Resources, mine bool)
	// Known tells what the runtime had of tasks at asked: once before Run, then now and then.
	Known(asked time.Time, lives []runtime.Status)
	Exited(x runtime.Exit)
	// Changed tells that the worker's record is another.
	Changed(rec *cluster.Record)
	// Evict has a task go, for a machine or a drain, and be handed back to its queue. It may be told twice. ReleaseTask
	// is the answer.
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
		return err // and refused is still the loop's
	}
	return refused
}

// TaskDevices returns the GPU devices that a task has, by number, and by what their host knows them.
func (w *Worker) TaskDevices(ctx context.Context, name string) (numbers []int, ids []string, err error) {
	_, err = readState(ctx, w.loop, func(time.Time) (any, error) {
		numbers, ids = w.loop.sup.TaskDevices(name)
		return nil, nil
	})
	return numbers, ids, err
}

// AdoptTask tells whose a task is that has run since before this process.
func (w *Worker) AdoptTask(ctx context.Context, t lifecycle.Task) error {
	return w.loop.changeState(ctx, func(now time.Time) lifecycle.Out { return w.loop.sup.AdoptTask(now, t) })
}

// ReleaseTask gives a task's room back.
func (w *Worker) ReleaseTask(ctx context.Context, name string) error {
	return w.loop.changeState(ctx, func(now time.Time) lifecycle.Out { return w.loop.sup.ReleaseTask(now, name) })
}

// RunningTasks lists the tasks that have room here, by name: those that run, and those that are about to.
func (w *Worker) RunningTasks(ctx context.Context) ([]lifecycle.Task, error) {
	return readState(ctx, w.loop, func(time.Time) ([]lifecycle.Task, error) { return w.loop.sup.Tasks(), nil })
}

// taskHost is who runs tasks, as the loop sees it; nobody may.
type taskHost struct{ Tasks }

// taskOccupies reports whether a name of the runtime is a task's, and what it occupies while it runs.
func (h taskHost) taskOccupies(name string) (want cluster.Resources, mine bool) {
	if h.Tasks == nil {
		return cluster.Resources{}, false
	}
	return h.Occupies(name)
}

// splitLives parts the lives of machines from those of tasks.
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

// reportKnown tells what the runtime has of tasks.
func (h taskHost) reportKnown(asked time.Time, lives []runtime.Status) {
	if h.Tasks != nil {
		h.Known(asked, lives)
	}
}

// forwardExit hands a task's exit on; false: it is no task's.
func (h taskHost) forwardExit(x runtime.Exit) bool {
	_, mine := h.taskOccupies(x.Machine)
	if mine {
		h.Exited(x)
	}
	return mine
}

// reportChanged tells that the worker's record is another.
func (h taskHost) reportChanged(rec *cluster.Record) {
	if h.Tasks != nil {
		h.Changed(rec)
	}
}
