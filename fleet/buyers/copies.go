package buyers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/internal/wait"
)

const (
	// copyTime bounds a search for copies at all members, side by side: the keeper was waited for before.
	copyTime = time.Second
	// copyPoll is how often a wait reads a copy again.
	copyPoll = 500 * time.Millisecond
	// maxKeepers bounds the members whose jobs are asked for in one list of copies.
	maxKeepers = 1000
)

// Copies are the copies of other members' jobs that a member has as their heir. In a copy, Job.Member is the member that
// keeps the job. All errors are *fault.Error.
type Copies interface {
	// StatusOfCopy returns a job by its id, or the newest of its name; NotFound (fault.CodeJobNotFound): there is no copy
	// of it.
	StatusOfCopy(ctx context.Context, job string) (jobs.Job, error)
	// ListCopies lists the jobs of an app, "" for all, that these members keep, oldest first; those that have ended only
	// if ended is set.
	ListCopies(ctx context.Context, app string, ended bool, keepers []cluster.WorkerID) ([]jobs.Job, error)
	// TasksOfCopy lists tasks in order of index; next is the index to continue with; -1 at the end.
	TasksOfCopy(ctx context.Context, job string, q jobs.TaskQuery) (out []jobs.Task, next int, err error)
	// ReportOfCopy returns what a job asked for and used.
	ReportOfCopy(ctx context.Context, job string) (jobs.JobReport, error)
}

// answering lists the members that are not silent, this one first.
func (b *Jobs) answering(silent []find.Unanswered) []Other {
	out := []Other{{ID: b.self, Buyer: b.own}}
	for _, o := range b.others() {
		if !contains(silent, o.ID) {
			out = append(out, o)
		}
	}
	return out
}

func contains(list []find.Unanswered, id cluster.WorkerID) bool {
	return slices.ContainsFunc(list, func(s find.Unanswered) bool { return s.Worker == id })
}

// findCopy looks for a copy of a job at all members that are not silent, side by side. Of the copies of one job that of
// the largest epoch counts, and only while its keeper does not answer: one that answers does not keep the job any more.
// By name, the newest job counts.
func (b *Jobs) findCopy(ctx context.Context, ref string, silent []find.Unanswered) (best place, found bool) {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	asked := b.answering(silent)
	got, errs := find.AskAll(asked, func(o Other) (j jobs.Job, err error) {
		err = b.callOther(ctx, o, func(at Buyer) error {
			j, err = at.StatusOfCopy(ctx, ref)
			return err
		})
		return j, err
	})
	newest := map[string]place{}
	for i, j := range got {
		if errs[i] != nil || j.Member == "" || j.ID != ref && j.Spec.Name != ref {
			continue // a member that does not answer now has no copy, as far as is known
		}
		if old, there := newest[j.ID]; !there || isNewerCopy(j, old.job) {
			newest[j.ID] = place{at: asked[i], job: copyAt(asked[i].ID, j), copied: true}
		}
	}
	for _, p := range newest {
		answers := slices.ContainsFunc(asked, func(o Other) bool { return o.ID == p.job.Member })
		if !answers && (!found || p.isMeantBefore(best, ref)) {
			best, found = p, true
		}
	}
	return best, found
}

// isNewerCopy reports whether a copy of a job counts, not another one.
func isNewerCopy(x, than jobs.Job) bool {
	return cmp.Or(cmp.Compare(x.Epoch, than.Epoch), cmp.Compare(x.Done(), than.Done())) > 0
}

// copyAt returns a job as the copy of a member shows it.
func copyAt(holder cluster.WorkerID, j jobs.Job) jobs.Job {
	if j.Heir = holder; !j.State.Final() {
		j.Why = fmt.Sprintf("%s, which keeps it, does not answer; %s has a copy and takes over when %[1]s is given "+
			"up for dead", j.Member, holder)
	}
	return j
}

// listCopies lists the copies of silent members' jobs at all others, by the job's id.
func (b *Jobs) listCopies(ctx context.Context, app string, ended bool,
	silent []find.Unanswered) map[string]jobs.Job {
	if len(silent) == 0 {
		return nil
	}
	var keepers []cluster.WorkerID
	for _, s := range silent[:min(len(silent), maxKeepers)] {
		keepers = append(keepers, s.Worker)
	}
	asked := b.answering(silent)
	lists, errs := find.AskAll(asked, func(o Other) (list []jobs.Job, err error) {
		err = b.callOther(ctx, o, func(at Buyer) error {
			list, err = at.ListCopies(ctx, app, ended, keepers)
			return err
		})
		return list, err
	})
	newest := map[string]jobs.Job{}
	for i, list := range lists {
		if errs[i] != nil {
			continue
		}
		for _, j := range keepListed(list, app, ended) {
			old, there := newest[j.ID]
			if contains(silent, j.Member) && (!there || isNewerCopy(j, old)) {
				newest[j.ID] = copyAt(asked[i].ID, j)
			}
		}
	}
	return newest
}

// tasksOfCopy asks for tasks where a copy was found.
func (b *Jobs) tasksOfCopy(ctx context.Context, p place, q jobs.TaskQuery) (out []jobs.Task, next int, err error) {
	err = b.callOther(ctx, p.at, func(at Buyer) (err error) {
		out, next, err = at.TasksOfCopy(ctx, p.job.ID, q)
		return err
	})
	if ctx.Err() == nil && (keepsNot(err) || isSilence(err)) { // it has just taken the job over, or died, too
		err = errSilent(p.job.ID, find.Unanswered{Worker: p.job.Member, Err: err})
	}
	return out, next, err
}

// reportOfCopy asks for a report where a copy was found.
func (b *Jobs) reportOfCopy(ctx context.Context, p place) (r jobs.JobReport, err error) {
	err = b.callOther(ctx, p.at, func(at Buyer) (err error) {
		r, err = at.ReportOfCopy(ctx, p.job.ID)
		return err
	})
	if ctx.Err() == nil && (keepsNot(err) || isSilence(err)) { // it has just taken the job over, or died, too
		err = errSilent(p.job.ID, find.Unanswered{Worker: p.job.Member, Err: err})
	}
	r.Job = copyAt(p.at.ID, r.Job)
	return r, err
}

// errCopied is the error where only a copy of a job can be asked, which is not enough: why says so.
func errCopied(p place, why string) error {
	return fault.New(fault.Unavailable, fault.CodeJobMember,
		"job %.80q is kept by %s, which does not answer; %s; %s takes the job over when %s is given up for dead, so "+
			"ask again in a few seconds", p.job.ID, p.job.Member, why, p.at.ID, p.job.Member)
}

// waitAtCopy waits for a job of which only a copy was found, as Wait does. ended is unset if the job must be looked for
// again: its keeper answers, or the copy is gone.
func (b *Jobs) waitAtCopy(ctx context.Context, p place, done int, end time.Time) (j jobs.Job, ended bool) {
	for j = p.job; ; {
		left := time.Until(end)
		if j.State.Final() || j.Done() > done || left <= 0 {
			return j, true
		}
		if wait.For(ctx, min(copyPoll, left)) != nil {
			return j, true // the caller has gone
		}
		if keeper, known := b.other(j.Member); known && b.answersSoon(ctx, keeper, j.ID) {
			return j, false
		}
		err := b.callOther(ctx, p.at, func(at Buyer) (err error) {
			j, err = at.StatusOfCopy(ctx, p.job.ID)
			return err
		})
		if err != nil || j.Member != p.job.Member {
			return p.job, false
		}
		j = copyAt(p.at.ID, j)
	}
}

// answersSoon reports whether a member says within copyTime whether it keeps a job.
func (b *Jobs) answersSoon(ctx context.Context, o Other, job string) bool {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	err := b.callOther(ctx, o, func(at Buyer) error {
		_, err := at.Status(ctx, job)
		return err
	})
	return err == nil || keepsNot(err)
}
