package worker

import (
	"cmp"
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Tasks is who runs short tasks on a worker beside its machines, with the same runtime and out of the same ledger. The
// worker tells it what the runtime says of its names. Its methods must not wait for the worker.
type Tasks interface {
	// Occupies says whether a name of the runtime is a task's, and what it occupies while it runs.
	Occupies(name string) (want cluster.Resources, mine bool)
	// Known tells what the runtime had of tasks at asked: once before Run, then now and then.
	Known(asked time.Time, lives []runtime.Status)
	Exited(x runtime.Exit)
	// Changed tells that the worker's record is another.
	Changed(rec *cluster.Record)
	// Evict has a task go for a machine, and be handed back to its queue. It may be told twice. TaskGone is the answer.
	Evict(p machine.Preemption)
}

// TaskRoom gives a task its room until TaskGone; see lifecycle.Supervisor for the refusal.
func (w *Worker) TaskRoom(ctx context.Context, t lifecycle.Task) error {
	var refused error
	err := w.change(ctx, func(now time.Time) (out lifecycle.Out) {
		out, refused = w.sup.TaskRoom(now, t)
		return out
	})
	return cmp.Or(err, refused)
}

// TaskTold tells whose a task is that has run since before this process.
func (w *Worker) TaskTold(ctx context.Context, t lifecycle.Task) error {
	return w.change(ctx, func(now time.Time) lifecycle.Out { return w.sup.TaskTold(now, t) })
}

// TaskGone gives a task's room back.
func (w *Worker) TaskGone(ctx context.Context, name string) error {
	return w.change(ctx, func(now time.Time) lifecycle.Out { return w.sup.TaskGone(now, name) })
}

// split parts the lives of machines from those of tasks.
func (w *Worker) split(known []runtime.Status) (machines, tasks []runtime.Status) {
	if w.o.Tasks == nil {
		return known, nil
	}
	for _, s := range known {
		if _, mine := w.o.Tasks.Occupies(s.Machine); mine {
			tasks = append(tasks, s)
		} else {
			machines = append(machines, s)
		}
	}
	return machines, tasks
}

// recoverTasks enters the room of tasks that run since before, and tells of them.
func (w *Worker) recoverTasks(asked time.Time, lives []runtime.Status) {
	if w.o.Tasks == nil {
		return
	}
	for _, s := range lives {
		if want, _ := w.o.Tasks.Occupies(s.Machine); s.Exit == nil { // it runs, or is about to
			w.sup.TaskKnown(s.Machine, want)
		}
	}
	w.o.Tasks.Known(asked, lives)
}

// taskExit hands a task's exit on; it is no input of the supervisor.
func (w *Worker) taskExit(x runtime.Exit) bool {
	if w.o.Tasks == nil {
		return false
	}
	if _, mine := w.o.Tasks.Occupies(x.Machine); !mine {
		return false
	}
	w.o.Tasks.Exited(x)
	return true
}

// nothing is an input that changes nothing.
func nothing(time.Time) lifecycle.Out { return lifecycle.Out{} }
