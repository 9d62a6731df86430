package buyers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
)

// findTime bounds a search at all members, side by side: those that have not answered by then could not be asked.
const findTime = 5 * time.Second

// lostFindTime is findTime where the job's keeper was waited for before, so that copies are asked for soon.
const lostFindTime = 750 * time.Millisecond

// maxRemembered bounds the jobs of other members whose place is remembered.
const maxRemembered = 10_000

// whereabouts remembers which other member keeps a job. Its zero value is ready.
type whereabouts struct {
	mu sync.Mutex
	at map[string]cluster.WorkerID // by the job's id
}

func (w *whereabouts) remember(job string, at cluster.WorkerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == nil {
		w.at = map[string]cluster.WorkerID{}
	}
	for old := range w.at { // any one: a job that is forgotten is found again
		if len(w.at) < maxRemembered {
			break
		}
		delete(w.at, old)
	}
	w.at[job] = at
}

func (w *whereabouts) forget(job string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.at, job)
}

func (w *whereabouts) of(job string) (cluster.WorkerID, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, known := w.at[job]
	return at, known
}

// place is where a job was found, and the job.
type place struct {
	at     Other
	job    jobs.Job
	copied bool // at has a copy of the job, which job.Member keeps
	lost   bool // the keeper was asked, and its answer was lost: it may have done what it was asked
}

// isMeantBefore reports whether ref means a job rather than another one: ref is its id, or it is the newer of that name.
func (p place) isMeantBefore(other place, ref string) bool {
	return p.job.ID == ref || other.job.ID != ref && submittedBefore(other.job, p.job) < 0
}

// askMember calls f with the buyer that keeps a job, and the job's id. It returns the member that keeps it. surely says
// that f changes the job, so a name must be certain to mean it. If that member does not answer and another has a copy of
// the job, askMember calls ofCopy instead.
func (b *Jobs) askMember(ctx context.Context, ref string, surely bool, f func(at Buyer, id string) error,
	ofCopy func(p place) error) (cluster.WorkerID, error) {
	o, again, err := b.askRemembered(ctx, ref, func(at Buyer) error { return f(at, ref) })
	if !again {
		return o.ID, err
	}
	found, silent, unknown := b.findJob(ctx, ref, lostAt(o, err))
	switch {
	case unknown != nil:
		return "", unknown
	case found.copied:
		found.lost = isAnswerLost(err)
		return found.job.Member, ofCopy(found)
	case surely && found.job.ID != ref && len(silent) > 0:
		return "", withCause(silent[0], fault.New(fault.Unavailable, fault.CodeJobMember,
			"%s could not be asked and may keep a newer job named %.80q, so nothing was changed; name the job by its "+
				"id, as \"souk job ls\" lists it", namesOf(silent), ref))
	}
	err = b.callOther(ctx, found.at, func(at Buyer) error { return f(at, found.job.ID) })
	if found.at.ID != b.self && isSilence(err) && ctx.Err() == nil {
		err = errSilent(found.job.ID, find.Unanswered{Worker: found.at.ID, Err: err})
	}
	return found.at.ID, err
}

// askRemembered calls f with the member at which a job was found before. again says that the job must be looked for: no
// such member is known, it has the job no more, or it does not answer, which is err.
func (b *Jobs) askRemembered(ctx context.Context, ref string, f func(at Buyer) error) (o Other, again bool, err error) {
	id, known := b.known.of(ref)
	if known {
		o, known = b.other(id)
	}
	if !known {
		return o, true, nil
	}
	err = b.callOther(ctx, o, f)
	switch {
	case ctx.Err() != nil:
		return o, false, err
	case keepsNot(err):
		b.known.forget(ref)
		return o, true, nil
	}
	return o, isSilence(err), err
}

// isSilence reports whether an error means that a member did not answer. One that is busy has answered.
func isSilence(err error) bool { return find.NoAnswer(err) && fault.CodeOf(err) != fault.CodeBusy }

// isAnswerLost reports whether a member that did not answer may have done what it was asked.
func isAnswerLost(err error) bool {
	return fault.CodeOf(err) == fault.CodeLost || fault.Is(err, fault.Timeout)
}

// lostAt is a member that was asked for a job and did not answer; nil: none was.
func lostAt(o Other, err error) *find.Unanswered {
	if err == nil {
		return nil
	}
	return &find.Unanswered{Worker: o.ID, Err: err}
}

// callOther calls f with a member's buyer, unless the member is not heard of.
func (b *Jobs) callOther(ctx context.Context, o Other, f func(at Buyer) error) error {
	if o.ID == b.self {
		return f(o.Buyer)
	}
	if _, why := o.Gone(); why != nil {
		return why
	}
	err := f(o.Buyer)
	if silent := isSilence(err); !silent || ctx.Err() == nil {
		b.called(o.ID, !silent)
	}
	return err
}

// keepsNot reports whether an error says that a member does not keep the job.
func keepsNot(err error) bool {
	return fault.CodeOf(err) == fault.CodeJobNotFound || fault.Is(err, fault.Unimplemented)
}

// findJob looks for a job at this member, then at all others, side by side. The job with this id counts, else the newest
// with this name. It also returns the members that could not be asked, all the same where there is an error. lost is
// one that keeps the job as far as is known, and did not answer just now; nil: there is none. While nobody who answers
// keeps the job and a member is silent, a copy of it counts.
func (b *Jobs) findJob(ctx context.Context, ref string, lost *find.Unanswered) (place, []find.Unanswered, error) {
	var none, best place
	j, missing := b.own.Status(ctx, ref)
	switch {
	case missing == nil:
		j.Member = b.self
		best = place{at: Other{ID: b.self, Buyer: b.own}, job: j}
		if j.ID == ref {
			return best, nil, nil
		}
	case !keepsNot(missing):
		return none, nil, missing
	}
	found, silent := b.askOthers(ctx, ref, lost)
	if err := ctx.Err(); err != nil {
		return none, nil, err
	}
	for _, x := range found {
		if best.job.ID == "" || x.isMeantBefore(best, ref) {
			best = x
		}
	}
	if best.job.ID != ref && (len(silent) > 0 || lost != nil) {
		c, there := b.findCopy(ctx, ref, silent)
		if err := ctx.Err(); err != nil {
			return none, nil, err
		}
		if there && c.job.ID != best.job.ID && (best.job.ID == "" || c.isMeantBefore(best, ref)) {
			best = c
		}
	}
	switch {
	case best.job.ID != "":
		if best.at.ID != b.self && !best.copied {
			b.known.remember(best.job.ID, best.at.ID)
		}
		return best, silent, nil
	case lost != nil:
		return none, silent, errSilent(ref, *lost)
	case len(silent) > 0:
		return none, silent, withCause(silent[0], fault.New(fault.Unavailable, fault.CodeJobMember,
			"no member that answers keeps job %.80q, and %s could not be asked; ask again when it answers", ref,
			namesOf(silent)))
	}
	return none, nil, missing
}

// askOthers asks all other members for a job, but for the lost one. It ends as soon as one has the job with this id.
func (b *Jobs) askOthers(ctx context.Context, ref string, lost *find.Unanswered) (found []place,
	silent []find.Unanswered) {
	within := findTime
	if lost != nil {
		within = lostFindTime
	}
	ctx, enough := context.WithTimeout(ctx, within)
	defer enough()
	others := b.others()
	got, errs := find.AskAll(others, func(o Other) (j jobs.Job, err error) {
		if lost != nil && o.ID == lost.Worker {
			return j, lost.Err
		}
		if ctx.Err() != nil {
			return j, fault.Wrap(ctx.Err(), fault.Unavailable, fault.CodeDeadline, "%s was not asked within %v", o.ID,
				within)
		}
		err = b.callOther(ctx, o, func(at Buyer) error {
			j, err = at.Status(ctx, ref)
			return err
		})
		switch {
		case err == nil && j.ID == ref:
			enough()
		case err == nil && j.Spec.Name != ref:
			err = errNoJob(ref) // it answered with another job
		}
		return j, err
	})
	for i, err := range errs {
		switch {
		case err == nil:
			got[i].Member = others[i].ID
			found = append(found, place{at: others[i], job: got[i]})
		case !keepsNot(err):
			silent = append(silent, find.Unanswered{Worker: others[i].ID, Err: err})
		}
	}
	return found, silent
}

func errNoJob(id string) error {
	return fault.New(fault.NotFound, fault.CodeJobNotFound, "no member keeps job %.80q", id)
}

// errSilent is the error where the member that keeps a job does not answer.
func errSilent(job string, at find.Unanswered) error {
	return withCause(at, fault.New(fault.Unavailable, fault.CodeJobMember,
		"job %.80q is kept by %s, which does not answer; ask again when it does", job, at.Worker))
}

// withCause adds why a member could not be asked, unless it just did not answer, which e says.
func withCause(at find.Unanswered, e *fault.Error) error {
	if !isSilence(at.Err) {
		e.Err = at.Err
	}
	return e
}

// namesOf lists the members that could not be asked, as a sentence has them.
func namesOf(silent []find.Unanswered) string {
	names := make([]string, 0, find.MaxNamed)
	for _, s := range silent[:min(len(silent), find.MaxNamed)] {
		names = append(names, string(s.Worker))
	}
	return strings.Join(names, ", ")
}

// keepListed returns the jobs of a list that are of an app, "" for any, and unless ended is set have not ended.
func keepListed(list []jobs.Job, app string, ended bool) []jobs.Job {
	return slices.DeleteFunc(list, func(j jobs.Job) bool {
		return app != "" && j.Spec.App != app || !ended && j.State.Final()
	})
}

// submittedBefore orders jobs by their submission.
func submittedBefore(a, b jobs.Job) int {
	return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Member, b.Member))
}
