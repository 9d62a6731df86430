package batch

import (
	"context"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/jobs"
	"github.com/soukhq/souk/runtime"
)

// Submit takes a job in. The answer is durable; the same id again is answered with the job that is there.
func (b *Buyer) Submit(ctx context.Context, id string, spec jobs.Spec) (s jobs.Job, err error) {
	err = b.durably(ctx, func(now time.Time) error { return b.desk.Submit(now, id, spec) })
	if err != nil {
		return s, err
	}
	return b.Status(ctx, id)
}

// Status tells of a job.
func (b *Buyer) Status(ctx context.Context, id string) (s jobs.Job, err error) {
	var none error
	if err = b.do(ctx, func(now time.Time) { s, none = b.desk.Status(now, id) }); err == nil {
		err = none
	}
	return s, err
}

// List tells of the jobs of an app, "" for all, oldest first.
func (b *Buyer) List(ctx context.Context, app string) (out []jobs.Job, err error) {
	err = b.do(ctx, func(now time.Time) { out = b.desk.List(now, app) })
	return out, err
}

// Tasks tells of a job's tasks in order; next is the index to go on with, -1 at the end.
func (b *Buyer) Tasks(ctx context.Context, id string, q jobs.TaskQuery) (out []jobs.Task, next int, err error) {
	var none error
	if err = b.do(ctx, func(now time.Time) { out, next, none = b.desk.Tasks(now, id, q) }); err == nil {
		err = none
	}
	return out, next, err
}

// Cancel ends a job. The answer is durable; tasks that ran are given a moment to end.
func (b *Buyer) Cancel(ctx context.Context, id string) (s jobs.Job, err error) {
	err = b.durably(ctx, func(now time.Time) error { return b.desk.Cancel(now, id, "it was cancelled") })
	if err != nil {
		return s, err
	}
	return b.Status(ctx, id)
}

// Wait answers when the job has ended, or more than done of its tasks have, or ctx ends, which is no error.
func (b *Buyer) Wait(ctx context.Context, id string, done int) (jobs.Job, error) {
	first, err := b.Status(ctx, id) // id may be a name
	if err != nil {
		return first, err
	}
	id = first.ID
	for {
		changed := b.changes.next(id)
		s, err := b.Status(context.WithoutCancel(ctx), id)
		if err != nil || s.State.Final() || s.Done() > done {
			return s, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, nil
		case <-b.stopped:
			return s, gone(errStopped)
		}
	}
}

// Logs gives what a task wrote: of the attempt that runs, else of the newest that ended.
func (b *Buyer) Logs(ctx context.Context, id string, index int, q runtime.LogQuery, emit func(runtime.LogLine) error) error {
	var result *jobs.Result
	var live *jobs.Life
	var seat Seat
	var none error
	job, err := b.Status(ctx, id) // id may be a name
	if err != nil {
		return err
	}
	id = job.ID
	err = b.do(ctx, func(time.Time) {
		r, l, worker, err := b.desk.Output(id, index)
		if none = err; r != nil {
			copied := *r
			result = &copied
		}
		live = l
		b.seatsMu.Lock()
		seat = b.seats[worker]
		b.seatsMu.Unlock()
	})
	switch {
	case err != nil:
		return err
	case none != nil:
		return none
	case live != nil && seat != nil:
		if err := seat.Output(ctx, *live, q, emit); !fault.Is(err, fault.NotFound) {
			return err
		}
		return nil // it has not written yet, or has just ended
	case result == nil || result.Bytes == 0:
		return nil
	}
	return b.files.read(id, result.Offset, result.Bytes, q.Tail, emit)
}
