package wire

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

const (
	pathJobCopy      = "/wire/job-copy"
	pathJobCopies    = "/wire/job-copies"
	pathJobCopyTasks = "/wire/job-copy-tasks"

	pathJobCopyReport = "/wire/job-copy-report"
)

const (
	// copyTime is how long an answer about copies may take, or the next job of a list: the member that keeps the job
	// was waited for before.
	copyTime   = time.Second
	maxKeepers = 1000
)

// JobCopies are the copies of other members' jobs that one member has as their heir. Each names the member that keeps
// the job. All errors are *fault.Error.
type JobCopies interface {
	// StatusOfCopy returns a job by its id, or the newest of its name; NotFound: there is no copy of it.
	StatusOfCopy(ctx context.Context, job string) (jobs.Job, error)
	// ListCopies lists the jobs of an app, "" for all, that these members keep, oldest first; those that have ended only
	// if ended is set.
	ListCopies(ctx context.Context, app string, ended bool, keepers []cluster.WorkerID) ([]jobs.Job, error)
	// TasksOfCopy lists tasks in order of index; next is the index to continue with; -1 at the end.
	TasksOfCopy(ctx context.Context, job string, q jobs.TaskQuery) (out []jobs.Task, next int, err error)
	// ReportOfCopy returns what a job asked for and used.
	ReportOfCopy(ctx context.Context, job string) (jobs.JobReport, error)
}

type jobCopiesArgs struct {
	jobsArgs
	Keepers []cluster.WorkerID `json:"keepers"`
}

func (a *jobCopiesArgs) check() error {
	if n := len(a.Keepers); n < 1 || n > maxKeepers {
		return fault.New(fault.Invalid, fault.CodeJob, "a list of copies names from 1 to %d keepers, not %d",
			maxKeepers, n)
	}
	for _, id := range a.Keepers {
		if err := checkLengths(string(id)); err != nil {
			return err
		}
	}
	return a.jobsArgs.check()
}

// copyVerbs are the calls about the copies that this member has.
func copyVerbs() map[string]route {
	return map[string]route{
		pathJobCopy: jobVerb(read, func(ctx context.Context, k Jobs, a jobArgs) (jobs.Job, error) {
			return k.StatusOfCopy(ctx, a.Job)
		}),
		pathJobCopies: jobStream(func(ctx context.Context, k Jobs, a jobCopiesArgs, emit func(jobs.Job) error) error {
			list, err := k.ListCopies(ctx, a.App, a.Ended, a.Keepers)
			for i := range list {
				if err == nil {
					err = emit(list[i])
				}
			}
			return err
		}),
		pathJobCopyTasks: jobVerb(read, func(ctx context.Context, k Jobs, a jobTasksArgs) (jobTasksPage, error) {
			list, next, err := k.TasksOfCopy(ctx, a.Job, a.query())
			return jobTasksPage{list, next}, err
		}),
		pathJobCopyReport: jobVerb(read, func(ctx context.Context, k Jobs, a jobArgs) (jobs.JobReport, error) {
			return k.ReportOfCopy(ctx, a.Job)
		}),
	}
}

// StatusOfCopy returns a job from the member's copy; NotFound: it has none.
func (f FarJobs) StatusOfCopy(ctx context.Context, job string) (j jobs.Job, err error) {
	err = f.link.callMember(ctx, pathJobCopy, copyTime, jobArgs{job}, &j)
	return j, noCopies(err)
}

// ListCopies lists the jobs of an app, "" for all, that these members keep and that the member has copies of; those
// that have ended only if ended is set. At most maxKeepers members are named.
func (f FarJobs) ListCopies(ctx context.Context, app string, ended bool, keepers []cluster.WorkerID) ([]jobs.Job,
	error) {
	list, err := f.gatherJobs(ctx, pathJobCopies, copyTime, jobCopiesArgs{jobsArgs{app, ended}, keepers})
	return list, noCopies(err)
}

// TasksOfCopy lists tasks from the member's copy, in order of index; next is the index to continue with; -1 at the end.
func (f FarJobs) TasksOfCopy(ctx context.Context, job string, q jobs.TaskQuery) (out []jobs.Task, next int,
	err error) {
	out, next, err = f.tasksBy(ctx, pathJobCopyTasks, job, q)
	return out, next, noCopies(err)
}

// ReportOfCopy returns what a job asked for and used, from the member's copy.
func (f FarJobs) ReportOfCopy(ctx context.Context, job string) (r jobs.JobReport, err error) {
	err = f.link.callMember(ctx, pathJobCopyReport, readTime, jobArgs{job}, &r)
	return r, noCopies(err)
}

// noCopies is the error that there is no copy where a souk of the previous release, or a member without jobs, says that
// it has no such call.
func noCopies(err error) error {
	switch code := fault.CodeOf(err); {
	case code == fault.CodeJobNotFound:
		return err
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Unimplemented):
		return fault.Wrap(err, fault.NotFound, fault.CodeJobNotFound, "the member has no copies of jobs")
	}
	return err
}
