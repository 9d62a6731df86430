package batch

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// StatusOfCopy returns the status of a job of another member, by its id or its name, from the copy that is kept here;
// NotFound: there is none.
func (b *Buyer) StatusOfCopy(_ context.Context, id string) (jobs.Job, error) {
	return jobs.Job{}, noCopy(id)
}

// ListCopies returns the status of an app's jobs, "" for all, from the copies that are kept here of these members'
// jobs, oldest first; of jobs that have ended only if ended is set.
func (b *Buyer) ListCopies(context.Context, string, bool, []cluster.WorkerID) ([]jobs.Job, error) {
	return nil, nil
}

// TasksOfCopy returns the tasks of a job of another member in order, from the copy that is kept here; next is the index
// to continue at, -1 at the end.
func (b *Buyer) TasksOfCopy(_ context.Context, id string, _ jobs.TaskQuery) (out []jobs.Task, next int, err error) {
	return nil, -1, noCopy(id)
}

func noCopy(id string) error {
	return fault.New(fault.NotFound, fault.CodeJobNotFound, "this member has no copy of job %.80q", id)
}
