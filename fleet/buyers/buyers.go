// Package buyers finds jobs at the buyers of tasks of all members, and asks there. Each job is kept by one buyer, at
// first that of the member where it was submitted; any member answers for it.
//
// Where a job is found is remembered, so that a job is looked for once. What is remembered may be wrong at any time: a
// member that answers "not found", or does not answer, makes all others be asked.
//
// The keeper of a job may have a copy of it kept by another member, the job's heir, which takes over when the keeper is
// given up for dead. Until then a job whose keeper does not answer is shown from the copy, and cannot be changed.
package buyers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// Own is the buyer of tasks of this process. A job is named by its id, or by its name, which means the newest job of
// that name there. All errors are *fault.Error.
type Own interface {
	reader
	// Submit accepts a job; the answer is durable. Repeating an id returns the existing job.
	Submit(ctx context.Context, id string, spec jobs.Spec) (jobs.Job, error)
	// List lists the jobs of an app, "" for all, oldest first.
	List(ctx context.Context, app string) ([]jobs.Job, error)
	// Wait returns when the job has ended, when more than done of its tasks have ended, or at the end of ctx.
	Wait(ctx context.Context, job string, done int) (jobs.Job, error)
	// Awaited lists the jobs of other members that jobs of this one wait for, and whether it matters which of their
	// tasks have succeeded. Learn tells of one.
	Awaited(ctx context.Context) (map[string]bool, error)
	Learn(o *jobs.Outcome)
}

// Buyer is the buyer of tasks of another member.
type Buyer interface {
	reader
	// List lists the jobs of an app, "" for all, oldest first; those that have ended only if ended is set.
	List(ctx context.Context, app string, ended bool) ([]jobs.Job, error)
	// Wait returns when the job has ended, when more than done of its tasks have ended, or after limit.
	Wait(ctx context.Context, job string, done int, limit time.Duration) (jobs.Job, error)
}

// reader are the calls that Own and Buyer share.
type reader interface {
	Copies
	Status(ctx context.Context, job string) (jobs.Job, error)
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
	Logs(ctx context.Context, job string, index int, q machine.LogQuery, emit func(machine.LogLine) error) error
	TaskOutput(ctx context.Context, job string, q jobs.OutputQuery, emit func(jobs.TaskLine) error) error
}

// Other is another member.
type Other struct {
	ID    cluster.WorkerID
	Buyer Buyer
	// Gone returns since when the member is not heard of, and why it is not asked; nil: it is asked.
	Gone func() (since time.Time, why error)
}

// Options are what Jobs are made of.
type Options struct {
	Own  Own
	Self cluster.WorkerID // "": this process is alone
	// Others lists the other members, and Other returns one of them; nil: there are none.
	Others func() []Other
	Other  func(id cluster.WorkerID) (Other, bool)
	// Called is called with whether a member answered a call; nil: nobody wants to know.
	Called func(id cluster.WorkerID, answered bool)
}

// Jobs are the jobs of all members. Their methods may be called from many goroutines.
type Jobs struct {
	own    ownBuyer
	self   cluster.WorkerID
	others func() []Other
	other  func(id cluster.WorkerID) (Other, bool)
	called func(id cluster.WorkerID, answered bool)
	known  whereabouts
}

// New makes the jobs of all members.
func New(o Options) *Jobs {
	if o.Others == nil {
		o.Others = func() []Other { return nil }
		o.Other = func(cluster.WorkerID) (Other, bool) { return Other{}, false }
	}
	if o.Called == nil {
		o.Called = func(cluster.WorkerID, bool) {}
	}
	return &Jobs{own: ownBuyer{o.Own}, self: o.Self, others: o.Others, other: o.Other, called: o.Called}
}

// ownBuyer is this process's buyer as a Buyer.
type ownBuyer struct{ Own }

// List lists jobs.
func (o ownBuyer) List(ctx context.Context, app string, ended bool) ([]jobs.Job, error) {
	list, err := o.Own.List(ctx, app)
	return keepListed(list, app, ended), err
}

// Wait waits for a job.
func (o ownBuyer) Wait(ctx context.Context, job string, done int, limit time.Duration) (jobs.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return o.Own.Wait(ctx, job, done)
}

// Submit accepts a job at this member. Repeating an id returns the existing job, if this member keeps it: see
// Submitted.
func (b *Jobs) Submit(ctx context.Context, id string, spec jobs.Spec) (jobs.Job, error) {
	j, err := b.own.Submit(ctx, id, spec)
	j.Member = b.self
	return j, err
}

// Submitted returns the job that a client may have submitted before under an id, whichever member keeps it; NotFound:
// there is none. drawn is when the client drew the id; zero: unknown. A member that was given up for dead before that
// cannot keep it. With an unknown time, one that was given up find.PatienceUnheard ago is not waited for.
//
// Two submissions of one id that reach two members within milliseconds may still make two jobs: each is looked for
// before the other is entered.
func (b *Jobs) Submitted(ctx context.Context, id string, drawn time.Time) (jobs.Job, error) {
	if drawn.IsZero() {
		drawn = time.Now().Add(-find.PatienceUnheard)
	}
	at, silent, err := b.findJob(ctx, id, nil)
	switch {
	case err == nil && at.job.ID == id:
		return at.job, nil
	case err != nil && len(silent) == 0:
		return jobs.Job{}, err
	}
	silent = slices.DeleteFunc(silent, func(s find.Unanswered) bool {
		o, known := b.other(s.Worker)
		if !known {
			return false
		}
		since, why := o.Gone()
		return why != nil && !since.IsZero() && since.Before(drawn)
	})
	if len(silent) > 0 {
		return jobs.Job{}, withCause(silent[0], fault.New(fault.Unavailable, fault.CodeJobMember,
			"job %.80q may have been submitted already to %s, which could not be asked; ask again when it answers, or "+
				"submit the job under another id", id, namesOf(silent)))
	}
	return jobs.Job{}, errNoJob(id)
}

// Status returns a job, from a copy while the member that keeps it does not answer. For a job that is named by its name it also returns the members that could not be asked: they
// may keep a newer one.
func (b *Jobs) Status(ctx context.Context, ref string) (j jobs.Job, silent []find.Unanswered, err error) {
	o, again, err := b.askRemembered(ctx, ref, func(at Buyer) (err error) {
		j, err = at.Status(ctx, ref)
		return err
	})
	if !again {
		j.Member = o.ID
		return j, nil, err
	}
	at, silent, err := b.findJob(ctx, ref, lostAt(o, err))
	if err == nil && at.job.ID == ref {
		silent = nil
	}
	return at.job, silent, err
}

// answer is what a member has said.
type answer[T any] struct {
	by   cluster.WorkerID
	said T
}

// askKeepers asks all other members that keep jobs. It also returns those that could not be asked.
func askKeepers[T any](ctx context.Context, b *Jobs, ask func(at Buyer) (T, error)) ([]answer[T], []find.Unanswered,
	error) {
	others := b.others()
	all, errs := find.AskAll(others, func(o Other) (said T, err error) {
		err = b.callOther(ctx, o, func(at Buyer) error {
			said, err = ask(at)
			return err
		})
		return said, err
	})
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var answers []answer[T]
	var silent []find.Unanswered
	for i, o := range others {
		switch {
		case errs[i] == nil:
			answers = append(answers, answer[T]{o.ID, all[i]})
		case !keepsNot(errs[i]):
			silent = append(silent, find.Unanswered{Worker: o.ID, Err: errs[i]})
		}
	}
	return answers, silent, nil
}

// List lists the jobs of an app, "" for all, of all members, oldest first; those that have ended only if ended is set.
// It also returns the members that could not be asked, of whose jobs it lists the copies that others have.
func (b *Jobs) List(ctx context.Context, app string, ended bool) ([]jobs.Job, []find.Unanswered, error) {
	all, err := b.own.List(ctx, app, ended)
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		all[i].Member = b.self
	}
	answers, silent, err := askKeepers(ctx, b, func(at Buyer) ([]jobs.Job, error) { return at.List(ctx, app, ended) })
	if err != nil {
		return nil, nil, err
	}
	for _, a := range answers {
		for _, j := range keepListed(a.said, app, ended) { // whatever the other member took the question for
			j.Member = a.by
			all = append(all, j)
		}
	}
	copies := b.listCopies(ctx, app, ended, silent)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	for i := range all {
		delete(copies, all[i].ID) // its keeper answers
	}
	all = slices.AppendSeq(all, maps.Values(copies))
	slices.SortFunc(all, submittedBefore)
	return all, silent, nil
}

// Tasks lists a job's tasks in order of index; next is the index to continue with; -1 at the end.
func (b *Jobs) Tasks(ctx context.Context, ref string, q jobs.TaskQuery) (out []jobs.Task, next int, err error) {
	_, err = b.askMember(ctx, ref, false, func(at Buyer, id string) (err error) {
		out, next, err = at.Tasks(ctx, id, q)
		return err
	}, func(p place) (err error) {
		out, next, err = b.tasksOfCopy(ctx, p, q)
		return err
	})
	return out, next, err
}

// JobReport returns what a job asked for and used.
func (b *Jobs) JobReport(ctx context.Context, ref string) (r jobs.JobReport, err error) {
	member, err := b.askMember(ctx, ref, false, func(at Buyer, id string) (err error) {
		r, err = at.JobReport(ctx, id)
		return err
	}, func(p place) (err error) {
		r, err = b.reportOfCopy(ctx, p)
		return err
	})
	r.Job.Member = member
	return r, err
}

// Standing asks how a job stands with the parties of its scheduler. While its keeper does not answer, no party has its
// tasks.
func (b *Jobs) Standing(ctx context.Context, ref string) (s jobs.Standing, err error) {
	_, err = b.askMember(ctx, ref, false, func(at Buyer, id string) (err error) {
		s, err = at.Standing(ctx, id)
		return err
	}, func(p place) error {
		s = jobs.Standing{Scheduler: p.job.Spec.Scheduler, Silent: []cluster.WorkerID{p.job.Member}}
		return nil
	})
	return s, err
}

// Cancel drops the job's tasks that wait and ends those that run. A job that is named by its name is cancelled only if
// all members answer: one that does not may keep a newer one.
func (b *Jobs) Cancel(ctx context.Context, ref string) (j jobs.Job, err error) {
	member, err := b.askMember(ctx, ref, true, func(at Buyer, id string) (err error) {
		j, err = at.Cancel(ctx, id)
		return err
	}, refuseChange)
	j.Member = member
	return j, err
}

// SetHold keeps the waiting tasks of a job from starting, or lets them go. See Cancel for names.
func (b *Jobs) SetHold(ctx context.Context, ref string, hold bool) (j jobs.Job, err error) {
	member, err := b.askMember(ctx, ref, true, func(at Buyer, id string) (err error) {
		j, err = at.SetHold(ctx, id, hold)
		return err
	}, refuseChange)
	j.Member = member
	return j, err
}

// Requeue ends running tasks, those in list or all for nil, so that they run anew, and returns how many. See Cancel for
// names.
func (b *Jobs) Requeue(ctx context.Context, ref string, list jobs.Indices) (j jobs.Job, n int, err error) {
	member, err := b.askMember(ctx, ref, true, func(at Buyer, id string) (err error) {
		j, n, err = at.Requeue(ctx, id, list)
		return err
	}, refuseChange)
	j.Member = member
	return j, n, err
}

// CancelTasks cancels some tasks of a job. See Cancel for names.
func (b *Jobs) CancelTasks(ctx context.Context, ref string, list jobs.Indices) (j jobs.Job, out jobs.TasksCancelled,
	err error) {
	member, err := b.askMember(ctx, ref, true, func(at Buyer, id string) (err error) {
		j, out, err = at.CancelTasks(ctx, id, list)
		return err
	}, refuseChange)
	j.Member = member
	return j, out, err
}

// refuseChange is the answer to a change of a job whose keeper does not answer.
func refuseChange(p place) error {
	if p.lost {
		return errCopied(p, "whether it was changed is not known")
	}
	return errCopied(p, "nothing was changed")
}

// Wait returns when the job has ended, when more than done of its tasks have ended, or after limit.
func (b *Jobs) Wait(ctx context.Context, ref string, done int, limit time.Duration) (jobs.Job, error) {
	end := time.Now().Add(limit)
	for {
		var j jobs.Job
		var p place
		member, err := b.askMember(ctx, ref, false, func(at Buyer, id string) (err error) {
			j, err = at.Wait(ctx, id, done, max(time.Until(end), time.Millisecond))
			return err
		}, func(found place) error { p = found; return nil })
		if !p.copied {
			j.Member = member
			return j, err
		}
		if j, ended := b.waitAtCopy(ctx, p, done, end); ended {
			return j, nil
		}
		ref = p.job.ID
	}
}

// Logs calls emit with each line of a task's output.
func (b *Jobs) Logs(ctx context.Context, ref string, index int, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	return readStream(ctx, b, ref, emit, func(at Buyer, id string, emit func(machine.LogLine) error) error {
		return at.Logs(ctx, id, index, q, emit)
	})
}

// TaskOutput calls emit with each line of the output of those tasks that have begun, in order of index.
func (b *Jobs) TaskOutput(ctx context.Context, ref string, q jobs.OutputQuery, emit func(jobs.TaskLine) error) error {
	return readStream(ctx, b, ref, emit, func(at Buyer, id string, emit func(jobs.TaskLine) error) error {
		return at.TaskOutput(ctx, id, q, emit)
	})
}

// readStream reads a stream of output with the buyer that keeps a job. One that breaks off is not begun again.
func readStream[T any](ctx context.Context, b *Jobs, ref string, emit func(T) error,
	read func(at Buyer, id string, emit func(T) error) error) error {
	emitted, broke := false, error(nil)
	_, err := b.askMember(ctx, ref, false, func(at Buyer, id string) error {
		err := read(at, id, func(l T) error {
			emitted = true
			return emit(l)
		})
		if emitted { // no other member may begin anew
			broke = err
			return nil
		}
		return err
	}, func(p place) error { return errCopied(p, "the output of its tasks is there") })
	return cmp.Or(err, broke)
}
