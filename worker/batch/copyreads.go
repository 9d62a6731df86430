package batch

import (
	"context"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// StatusOfCopy returns the status of a job of another member, by its id or its name, from the copy that is kept here;
// NotFound: there is none.
func (b *Buyer) StatusOfCopy(ctx context.Context, id string) (jobs.Job, error) {
	if b.heirs == nil {
		return jobs.Job{}, noCopy(id)
	}
	return askLoop(ctx, b, func(now time.Time) (jobs.Job, error) { return b.heirs.Copies.Status(now, b.o.Member, id) })
}

// ListCopies returns the status of an app's jobs, "" for all, from the copies that are kept here of these members'
// jobs, oldest first; of jobs that have ended only if ended is set.
func (b *Buyer) ListCopies(ctx context.Context, app string, ended bool, keepers []cluster.WorkerID) ([]jobs.Job,
	error) {
	if b.heirs == nil {
		return nil, nil
	}
	list, err := askLoop(ctx, b, func(now time.Time) ([]jobs.Job, error) {
		return b.heirs.Copies.List(now, b.o.Member, app, keepers), nil
	})
	return slices.DeleteFunc(list, func(j jobs.Job) bool { return !ended && j.State.Final() }), err
}

// TasksOfCopy returns the tasks of a job of another member in order, from the copy that is kept here; next is the index
// to continue at, -1 at the end.
func (b *Buyer) TasksOfCopy(ctx context.Context, id string, q jobs.TaskQuery) (out []jobs.Task, next int, err error) {
	if b.heirs == nil {
		return nil, -1, noCopy(id)
	}
	type page struct {
		tasks []jobs.Task
		next  int
	}
	p, err := askLoop(ctx, b, func(now time.Time) (page, error) {
		tasks, next, err := b.heirs.Copies.Tasks(now, id, q)
		return page{tasks, next}, err
	})
	return p.tasks, p.next, err
}

// ReportOfCopy returns what a job of another member asked for and used, from the copy that is kept here.
func (b *Buyer) ReportOfCopy(ctx context.Context, id string) (jobs.JobReport, error) {
	if b.heirs == nil {
		return jobs.JobReport{}, noCopy(id)
	}
	return askLoop(ctx, b, func(now time.Time) (jobs.JobReport, error) {
		return b.heirs.Copies.JobReport(now, b.o.Member, id)
	})
}

func noCopy(id string) error {
	return fault.New(fault.NotFound, fault.CodeJobNotFound, "this member has no copy of job %.80q", id)
}
