package batch

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Submit accepts a job. The answer is durable; submitting the same id again returns the existing job.
func (b *Buyer) Submit(ctx context.Context, id string, spec jobs.Spec) (s jobs.Job, err error) {
	if spec.Scheduler != "" {
		if _, _, err := registry.Parse(spec.Scheduler); err != nil {
			return s, err
		}
	}
	err = b.doDurably(ctx, id, func(now time.Time) error {
		if b.heirs != nil {
			b.giveHeirs(now) // there may be members since a moment ago
		}
		b.readCaps() // one may have been set a moment ago
		err := b.dispatcher.Submit(now, id, spec)
		if err == nil {
			b.files.addJob(id, spec.Namespace, 0)
		}
		return err
	})
	if err != nil {
		return s, err
	}
	return b.Status(ctx, id)
}

// Status returns the status of a job.
func (b *Buyer) Status(ctx context.Context, id string) (jobs.Job, error) {
	return askLoop(ctx, b, func(now time.Time) (jobs.Job, error) { return b.dispatcher.Status(now, id) })
}

// List returns the status of an app's jobs, "" for all, oldest first.
func (b *Buyer) List(ctx context.Context, app string) ([]jobs.Job, error) {
	return askLoop(ctx, b, func(now time.Time) ([]jobs.Job, error) { return b.dispatcher.List(now, app), nil })
}

// SchedulerMessages returns how many messages the schedulers that jobs name have sent from this process, by their names.
func (b *Buyer) SchedulerMessages(ctx context.Context) (map[string]int64, error) {
	return askLoop(ctx, b, func(time.Time) (map[string]int64, error) { return b.schedulers.messages(), nil })
}

// Tasks returns a job's tasks in order; next is the index to continue at, -1 at the end.
func (b *Buyer) Tasks(ctx context.Context, id string, q jobs.TaskQuery) (out []jobs.Task, next int, err error) {
	type page struct {
		tasks []jobs.Task
		next  int
	}
	p, err := askLoop(ctx, b, func(now time.Time) (page, error) {
		tasks, next, err := b.dispatcher.Tasks(now, id, q)
		return page{tasks, next}, err
	})
	return p.tasks, p.next, err
}

// JobReport returns what a job asked for and used.
func (b *Buyer) JobReport(ctx context.Context, id string) (jobs.JobReport, error) {
	return askLoop(ctx, b, func(now time.Time) (jobs.JobReport, error) { return b.dispatcher.JobReport(now, id) })
}

// Accounts returns what each owner's tasks did and used from a day on, as far as this member counts them.
func (b *Buyer) Accounts(ctx context.Context, since accounts.Day) ([]accounts.Entry, error) {
	return askLoop(ctx, b, func(time.Time) ([]accounts.Entry, error) { return b.dispatcher.Accounts(since), nil })
}

// Cancel ends a job. The answer is durable; running tasks get a moment to end.
func (b *Buyer) Cancel(ctx context.Context, id string) (s jobs.Job, err error) {
	err = b.doDurably(ctx, id, func(now time.Time) error { return b.dispatcher.Cancel(now, id, "it was cancelled") })
	if err != nil {
		return s, err
	}
	return b.Status(ctx, id)
}

// SetHold keeps the waiting tasks of a job from starting, or lets them go. The answer is durable.
func (b *Buyer) SetHold(ctx context.Context, id string, hold bool) (s jobs.Job, err error) {
	err = b.doDurably(ctx, id, func(now time.Time) error { return b.dispatcher.SetHold(now, id, hold) })
	if err != nil {
		return s, err
	}
	return b.Status(ctx, id)
}

// Requeue ends running tasks of a job, those in list or all for nil, so that they run anew; it returns how many. The answer
// is durable; the tasks get a moment to end.
func (b *Buyer) Requeue(ctx context.Context, id string, list jobs.Indices) (s jobs.Job, n int, err error) {
	err = b.doDurably(ctx, id, func(now time.Time) (err error) {
		n, err = b.dispatcher.Requeue(now, id, list)
		return err
	})
	if err == nil {
		s, err = b.Status(ctx, id)
	}
	return s, n, err
}

// Awaited lists the jobs of other members that jobs of this one wait for; see jobs.Dispatcher.
func (b *Buyer) Awaited(ctx context.Context) (map[string]bool, error) {
	return askLoop(ctx, b, func(time.Time) (map[string]bool, error) { return b.dispatcher.Awaited(), nil })
}

// Learn takes the outcome of a job that another member keeps.
func (b *Buyer) Learn(o *jobs.Outcome) {
	b.postFunc(func(now time.Time) { b.dispatcher.Learn(now, o) })
}

// CancelTasks ends tasks of a job. The answer is durable; running tasks get a moment to end.
func (b *Buyer) CancelTasks(ctx context.Context, id string, list jobs.Indices) (s jobs.Job, out jobs.TasksCancelled,
	err error) {
	err = b.doDurably(ctx, id, func(now time.Time) (err error) {
		out, err = b.dispatcher.CancelTasks(now, id, list)
		return err
	})
	if err == nil {
		s, err = b.Status(ctx, id)
	}
	return s, out, err
}

// Wait returns when the job has ended, or more than done of its tasks have, or ctx ends, which is no error.
func (b *Buyer) Wait(ctx context.Context, id string, done int) (jobs.Job, error) {
	over := ctx.Done()
	p, err := b.progress(ctx, id) // id may be a name
	if err != nil {
		return jobs.Job{}, err
	}
	id, ctx = p.ID, context.WithoutCancel(ctx)
	for {
		changed := b.changes.nextChange(id)
		p, err := b.progress(ctx, id)
		if err != nil || p.Over {
			b.changes.forgetJob(id)
		}
		if err != nil || p.Over || p.Done > done {
			return b.Status(ctx, id)
		}
		select {
		case <-changed:
		case <-over:
			return b.Status(ctx, id)
		case <-b.stopped:
			return jobs.Job{}, goneError(errStopped)
		}
	}
}

func (b *Buyer) progress(ctx context.Context, ref string) (jobs.Progress, error) {
	return askLoop(ctx, b, func(time.Time) (jobs.Progress, error) { return b.dispatcher.Progress(ref) })
}

// Logs emits a task's output: of the running attempt, else of the newest that ended.
func (b *Buyer) Logs(ctx context.Context, id string, index int, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	job, err := b.Status(ctx, id) // id may be a name
	if err != nil {
		return err
	}
	id = job.ID
	type place struct {
		result *jobs.Result
		live   *jobs.Life
		conn   RunnerConn
	}
	p, err := askLoop(ctx, b, func(time.Time) (p place, err error) {
		r, live, worker, err := b.dispatcher.Output(id, index)
		if r != nil {
			copied := *r
			p.result = &copied
		}
		b.connsMu.Lock()
		defer b.connsMu.Unlock()
		p.live, p.conn = live, b.conns[worker]
		return p, err
	})
	switch {
	case err != nil:
		return err
	case p.live != nil && p.conn != nil:
		if err := p.conn.Output(ctx, *p.live, q, emit); !fault.Is(err, fault.NotFound) {
			return err
		}
		return nil // it has no output yet, or has just ended
	case p.result == nil:
		return nil
	}
	return b.files.readOutput(p.result, id, q.Tail, emit)
}

// Unfinished returns the specs of the unfinished jobs that this member keeps, or has a copy of.
func (b *Buyer) Unfinished(ctx context.Context) ([]jobs.Spec, error) {
	return askLoop(ctx, b, func(now time.Time) (out []jobs.Spec, err error) {
		list := b.dispatcher.List(now, "")
		if b.heirs != nil {
			list = append(list, b.heirs.Copies.All(now)...)
		}
		for i := range list {
			if !list[i].State.Final() {
				out = append(out, list[i].Spec)
			}
		}
		return out, nil
	})
}
