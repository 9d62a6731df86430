package wire

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

const (
	pathJobs        = "/wire/jobs"
	pathJob         = "/wire/job"
	pathJobReport   = "/wire/job-report"
	pathJobStanding = "/wire/job-standing"
	pathJobTasks    = "/wire/job-tasks"
	pathJobCancel   = "/wire/job-cancel"
	pathTasksCancel = "/wire/job-tasks-cancel"
	pathJobHold     = "/wire/job-hold"
	pathJobRequeue  = "/wire/job-requeue"
	pathJobWait     = "/wire/job-wait"
	pathJobLogs     = "/wire/job-logs"
	pathTasksLogs   = "/wire/job-tasks-logs"
)

// Limits of the calls about jobs.
const (
	// jobTime is how long an answer about jobs may take, or the next job of a list: all members are asked at once, and
	// the slowest delays the answer.
	jobTime     = 2 * time.Second
	maxJobWait  = time.Minute
	maxJobTasks = 10_000   // of one page
	maxIndices  = 32 << 10 // bytes of a list of indices
	maxStates   = 16
)

// Jobs are the jobs that one member keeps: those that were submitted there. A job is named by its id, or by its name,
// which means the newest job of that name there. All errors are *fault.Error.
type Jobs interface {
	Status(ctx context.Context, job string) (jobs.Job, error)
	// List lists the jobs of an app, "" for all, oldest first.
	List(ctx context.Context, app string) ([]jobs.Job, error)
	// JobReport returns what a job asked for and used.
	JobReport(ctx context.Context, job string) (jobs.JobReport, error)
	// Standing asks how a job stands with the parties of its scheduler, at all members.
	Standing(ctx context.Context, job string) (jobs.Standing, error)
	// Accounts returns what each owner's tasks did and used from a day on, as far as the member counts them.
	Accounts(ctx context.Context, since accounts.Day) ([]accounts.Entry, error)
	// Tasks lists tasks in order of index; next is the index to continue with; -1 at the end.
	Tasks(ctx context.Context, job string, q jobs.TaskQuery) (out []jobs.Task, next int, err error)
	Cancel(ctx context.Context, job string) (jobs.Job, error)
	CancelTasks(ctx context.Context, job string, list jobs.Indices) (jobs.Job, jobs.TasksCancelled, error)
	// SetHold keeps the waiting tasks of a job from starting, or lets them go.
	SetHold(ctx context.Context, job string, hold bool) (jobs.Job, error)
	// Requeue ends running tasks, those in list or all for nil, so that they run anew, and returns how many.
	Requeue(ctx context.Context, job string, list jobs.Indices) (jobs.Job, int, error)
	// Wait returns when the job has ended, when more than done of its tasks have ended, or at the end of ctx.
	Wait(ctx context.Context, job string, done int) (jobs.Job, error)
	Logs(ctx context.Context, job string, index int, q machine.LogQuery, emit func(machine.LogLine) error) error
	// TaskOutput emits the output of those tasks that have begun, in order of index.
	TaskOutput(ctx context.Context, job string, q jobs.OutputQuery, emit func(jobs.TaskLine) error) error
	JobCopies
}

type jobsArgs struct {
	App   string `json:"app,omitempty"`
	Ended bool   `json:"ended,omitempty"` // jobs that have ended too
}

func (a *jobsArgs) check() error { return checkLengths(a.App) }

type jobArgs struct {
	Job string `json:"job"`
}

func (a *jobArgs) check() error {
	if a.Job == "" {
		return fault.New(fault.Invalid, fault.CodeJob, "a job is named by its id or its name")
	}
	return checkLengths(a.Job)
}

type requeueArgs struct {
	jobArgs
	Tasks string       `json:"tasks,omitempty"` // as jobs.Indices writes them; "": all
	list  jobs.Indices // of Tasks; check sets it
}

func (a *requeueArgs) check() (err error) {
	if a.Tasks != "" {
		if a.list, err = readIndices(a.Tasks); err != nil {
			return err
		}
	}
	return a.jobArgs.check()
}

type requeued struct {
	Job   jobs.Job `json:"job"`
	Tasks int      `json:"tasks"`
}

type jobHoldArgs struct {
	jobArgs
	Hold bool `json:"hold"`
}

type jobTasksArgs struct {
	jobArgs
	From   int      `json:"from,omitempty"`
	Limit  int      `json:"limit"`
	States []string `json:"states,omitempty"`
}

func (a *jobTasksArgs) check() error {
	if a.From < 0 || a.From > jobs.MaxIndex || a.Limit < 1 || a.Limit > maxJobTasks || len(a.States) > maxStates {
		return fault.New(fault.Invalid, fault.CodeJob, "a page of tasks begins at an index from 0 to %d, has 1 to %d "+
			"tasks and is of at most %d states", jobs.MaxIndex, maxJobTasks, maxStates)
	}
	if err := checkLengths(a.States...); err != nil {
		return err
	}
	return a.jobArgs.check()
}

func (a *jobTasksArgs) query() jobs.TaskQuery {
	return jobs.TaskQuery{From: a.From, Limit: a.Limit, States: a.States}
}

type jobTasksPage struct {
	Tasks []jobs.Task `json:"tasks"`
	Next  int         `json:"next"` // -1 at the end
}

type tasksCancelArgs struct {
	jobArgs
	Tasks string       `json:"tasks"` // as jobs.Indices writes them
	list  jobs.Indices // of Tasks; check sets it
}

func (a *tasksCancelArgs) check() (err error) {
	if a.list, err = readIndices(a.Tasks); err != nil {
		return err
	}
	return a.jobArgs.check()
}

func readIndices(text string) (jobs.Indices, error) {
	if len(text) > maxIndices {
		return nil, fault.New(fault.Invalid, fault.CodeJob, "a list of indices has %d bytes; at most %d", len(text),
			maxIndices)
	}
	return jobs.ParseIndices(text)
}

type tasksCancelled struct {
	Job  jobs.Job            `json:"job"`
	Done jobs.TasksCancelled `json:"done"`
}

type jobWaitArgs struct {
	jobArgs
	Done  int           `json:"done"`
	Limit time.Duration `json:"limit_ns"`
}

func (a *jobWaitArgs) check() error {
	if a.Done < 0 || a.Limit <= 0 || a.Limit > maxJobWait {
		return fault.New(fault.Invalid, fault.CodeJob, "a wait for a job counts from 0 tasks on and takes at most %v, "+
			"not %d and %v", maxJobWait, a.Done, a.Limit)
	}
	return a.jobArgs.check()
}

type jobLogArgs struct {
	jobArgs
	Index  int  `json:"index"`
	Tail   *int `json:"tail,omitempty"`
	Follow bool `json:"follow,omitempty"`
}

func (a *jobLogArgs) check() error {
	if a.Index < 0 || a.Index > jobs.MaxIndex || a.Tail != nil && *a.Tail < 0 {
		return fault.New(fault.Invalid, fault.CodeJob, "a task has an index from 0 to %d, and of its output the last "+
			"0 or more lines are read", jobs.MaxIndex)
	}
	return a.jobArgs.check()
}

type tasksLogArgs struct {
	jobArgs
	Tasks string       `json:"tasks,omitempty"` // as jobs.Indices writes them; "": all
	Tail  *int         `json:"tail,omitempty"`
	list  jobs.Indices // of Tasks; check sets it
}

func (a *tasksLogArgs) check() (err error) {
	if a.Tail != nil && *a.Tail < 0 {
		return fault.New(fault.Invalid, fault.CodeJob, "of a task's output the last 0 or more lines are read, not %d",
			*a.Tail)
	}
	if a.Tasks != "" {
		if a.list, err = readIndices(a.Tasks); err != nil {
			return err
		}
	}
	return a.jobArgs.check()
}

// jobsOrError returns the jobs of this member.
func (s *Server) jobsOrError() (Jobs, error) {
	if s.o.Jobs == nil {
		return nil, fault.New(fault.Unimplemented, jobs.CodeJobs, "%s keeps no jobs", s.o.Identity.Name().ID)
	}
	return s.o.Jobs, nil
}

// jobVerbs are the calls about the jobs that this member keeps.
func jobVerbs() map[string]route {
	return map[string]route{
		pathJob: jobVerb(read, func(ctx context.Context, k Jobs, a jobArgs) (jobs.Job, error) {
			return k.Status(ctx, a.Job)
		}),
		pathJobReport: jobVerb(read, func(ctx context.Context, k Jobs, a jobArgs) (jobs.JobReport, error) {
			return k.JobReport(ctx, a.Job)
		}),
		pathJobStanding: jobVerb(read, func(ctx context.Context, k Jobs, a jobArgs) (jobs.Standing, error) {
			return k.Standing(ctx, a.Job)
		}),
		pathJobTasks: jobVerb(read, func(ctx context.Context, k Jobs, a jobTasksArgs) (jobTasksPage, error) {
			list, next, err := k.Tasks(ctx, a.Job, a.query())
			return jobTasksPage{list, next}, err
		}),
		pathJobCancel: jobVerb(change, func(ctx context.Context, k Jobs, a jobArgs) (jobs.Job, error) {
			return k.Cancel(ctx, a.Job)
		}),
		pathTasksCancel: jobVerb(change, func(ctx context.Context, k Jobs, a tasksCancelArgs) (tasksCancelled, error) {
			j, done, err := k.CancelTasks(ctx, a.Job, a.list)
			return tasksCancelled{j, done}, err
		}),
		pathJobHold: jobVerb(change, func(ctx context.Context, k Jobs, a jobHoldArgs) (jobs.Job, error) {
			return k.SetHold(ctx, a.Job, a.Hold)
		}),
		pathJobRequeue: jobVerb(change, func(ctx context.Context, k Jobs, a requeueArgs) (requeued, error) {
			j, n, err := k.Requeue(ctx, a.Job, a.list)
			return requeued{j, n}, err
		}),
		pathJobs: jobStream(func(ctx context.Context, k Jobs, a jobsArgs, emit func(jobs.Job) error) error {
			list, err := k.List(ctx, a.App)
			for i := range list {
				if err == nil && (a.Ended || !list[i].State.Final()) {
					err = emit(list[i])
				}
			}
			return err
		}),
		// a stream, so that many waits keep nobody from asking what is answered at once
		pathJobWait: jobStream(func(ctx context.Context, k Jobs, a jobWaitArgs, emit func(jobs.Job) error) error {
			ctx, cancel := context.WithTimeout(ctx, a.Limit)
			defer cancel()
			j, err := k.Wait(ctx, a.Job, a.Done)
			if err != nil {
				return err
			}
			return emit(j)
		}),
		pathJobLogs: jobStream(func(ctx context.Context, k Jobs, a jobLogArgs,
			emit func(machine.LogLine) error) error {
			return k.Logs(ctx, a.Job, a.Index, machine.LogQuery{Tail: a.Tail, Follow: a.Follow}, emit)
		}),
		pathTasksLogs: jobStream(func(ctx context.Context, k Jobs, a tasksLogArgs,
			emit func(jobs.TaskLine) error) error {
			return k.TaskOutput(ctx, a.Job, jobs.OutputQuery{Tasks: a.list, Tail: a.Tail}, emit)
		}),
	}
}

// jobVerb is a call about jobs with one answer.
func jobVerb[In, Out any](c class, f func(ctx context.Context, k Jobs, in In) (Out, error)) route {
	return unaryOf(c, func(ctx context.Context, s *Server, _ Peer, in In) (out Out, err error) {
		k, err := s.jobsOrError()
		if err != nil {
			return out, err
		}
		return f(ctx, k, in)
	})
}

// jobStream is a call about jobs that answers piece by piece.
func jobStream[In, T any](f func(ctx context.Context, k Jobs, in In, emit func(T) error) error) route {
	return streamOf(func(ctx context.Context, s *Server, in In, emit func(T) error) error {
		k, err := s.jobsOrError()
		if err != nil {
			return err
		}
		return f(ctx, k, in, emit)
	})
}

// FarJobs are the jobs that another member keeps. A call whose answer takes too long is Unavailable "lost".
type FarJobs struct{ link *Link }

// Jobs returns the jobs that the member keeps.
func (l *Link) Jobs() FarJobs { return FarJobs{l} }

// Status returns a job.
func (f FarJobs) Status(ctx context.Context, job string) (j jobs.Job, err error) {
	err = f.link.callMember(ctx, pathJob, jobTime, jobArgs{job}, &j)
	return j, err
}

// List lists the jobs of an app, "" for all, oldest first; those that have ended only if ended is set.
func (f FarJobs) List(ctx context.Context, app string, ended bool) ([]jobs.Job, error) {
	return f.gatherJobs(ctx, pathJobs, jobTime, jobsArgs{app, ended})
}

// gatherJobs collects the jobs of a stream, the next of which may take so long.
func (f FarJobs) gatherJobs(ctx context.Context, path string, within time.Duration, in any) ([]jobs.Job, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(within, func() { cancel(errSlow(within)) })
	defer slow.Stop()
	list := []jobs.Job{}
	err := followStream(ctx, f.link, path, in, func(j jobs.Job) error {
		slow.Reset(within)
		if list = append(list, j); len(list) > maxItems {
			return fault.New(fault.Unavailable, fault.CodeTooLarge, "%s lists more than %d jobs", f.link.memberName(),
				maxItems)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// JobReport returns what a job asked for and used.
func (f FarJobs) JobReport(ctx context.Context, job string) (r jobs.JobReport, err error) {
	err = f.link.callMember(ctx, pathJobReport, readTime, jobArgs{job}, &r)
	return r, f.explainOlder(err, "makes no reports of jobs; upgrade it, or read \"souk job tasks --json\"")
}

// Standing asks how a job stands with the parties of its scheduler.
func (f FarJobs) Standing(ctx context.Context, job string) (s jobs.Standing, err error) {
	err = f.link.callMember(ctx, pathJobStanding, readTime, jobArgs{job}, &s)
	return s, f.explainOlder(err, "does not say how a job stands with its scheduler; upgrade it")
}

// explainOlder is the error where the other member has no such call. lacks ends the sentence "HOST runs an older souk,
// which".
//
// Compatible until 0.3.0: an older member has no reports, holds and requeues.
func (f FarJobs) explainOlder(err error, lacks string) error {
	code := fault.CodeOf(err)
	if code == fault.CodeJobNotFound || code == jobs.CodeJobs || code == jobs.CodeTaskNotFound || // it has the call
		!fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unimplemented) {
		return err
	}
	return fault.Wrap(err, fault.Precondition, jobs.CodeJobs, "%s runs an older souk, which %s", f.link.memberName(),
		lacks)
}

// Tasks lists tasks in order of index; next is the index to continue with; -1 at the end.
func (f FarJobs) Tasks(ctx context.Context, job string, q jobs.TaskQuery) (out []jobs.Task, next int, err error) {
	return f.tasksBy(ctx, pathJobTasks, job, q)
}

func (f FarJobs) tasksBy(ctx context.Context, path, job string, q jobs.TaskQuery) (out []jobs.Task, next int,
	err error) {
	var p jobTasksPage
	err = f.link.callMember(ctx, path, readTime, jobTasksArgs{jobArgs{job}, q.From, q.Limit, q.States}, &p)
	if err != nil {
		return nil, -1, err
	}
	return p.Tasks, p.Next, nil
}

// Cancel drops the job's tasks that wait and ends those that run. The answer is durable.
func (f FarJobs) Cancel(ctx context.Context, job string) (j jobs.Job, err error) {
	err = f.link.callMember(ctx, pathJobCancel, changeTime, jobArgs{job}, &j)
	return j, err
}

// SetHold keeps the waiting tasks of a job from starting, or lets them go. The answer is durable.
func (f FarJobs) SetHold(ctx context.Context, job string, hold bool) (j jobs.Job, err error) {
	err = f.link.callMember(ctx, pathJobHold, changeTime, jobHoldArgs{jobArgs{job}, hold}, &j)
	return j, f.explainOlder(err, "holds no jobs; upgrade it")
}

// Requeue ends running tasks, those in list or all for nil, so that they run anew. The answer is durable.
func (f FarJobs) Requeue(ctx context.Context, job string, list jobs.Indices) (jobs.Job, int, error) {
	var out requeued
	err := f.link.callMember(ctx, pathJobRequeue, changeTime, requeueArgs{jobArgs: jobArgs{job}, Tasks: list.String()},
		&out)
	return out.Job, out.Tasks, f.explainOlder(err, "requeues no tasks; upgrade it")
}

// CancelTasks cancels some tasks of a job. The answer is durable.
func (f FarJobs) CancelTasks(ctx context.Context, job string, list jobs.Indices) (jobs.Job, jobs.TasksCancelled,
	error) {
	var out tasksCancelled
	err := f.link.callMember(ctx, pathTasksCancel, changeTime,
		tasksCancelArgs{jobArgs: jobArgs{job}, Tasks: list.String()}, &out)
	return out.Job, out.Done, err
}

// Wait returns when the job has ended, when more than done of its tasks have ended, or after limit.
func (f FarJobs) Wait(ctx context.Context, job string, done int, limit time.Duration) (j jobs.Job, err error) {
	within := limit + readTime
	ctx, cancel := context.WithTimeoutCause(ctx, within, errSlow(within))
	defer cancel()
	there := false
	err = followStream(ctx, f.link, pathJobWait, jobWaitArgs{jobArgs{job}, done, limit}, func(x jobs.Job) error {
		j, there = x, true
		return nil
	})
	if err == nil && !there {
		err = fault.New(fault.Unavailable, fault.CodeLost, "%s answers a wait for a job without the job",
			f.link.memberName())
	}
	return j, err
}

// Logs calls emit with each line of a task's output.
func (f FarJobs) Logs(ctx context.Context, job string, index int, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	return followStream(ctx, f.link, pathJobLogs, jobLogArgs{jobArgs{job}, index, q.Tail, q.Follow}, emit)
}

// TaskOutput calls emit with each line of the output of those tasks that have begun, in order of index.
func (f FarJobs) TaskOutput(ctx context.Context, job string, q jobs.OutputQuery,
	emit func(jobs.TaskLine) error) error {
	return followStream(ctx, f.link, pathTasksLogs,
		tasksLogArgs{jobArgs: jobArgs{job}, Tasks: q.Tasks.String(), Tail: q.Tail}, emit)
}
