package gateway

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
)

// A job that runs as a Unix user is his: only he and admins change it, or read its environment, what its tasks wrote
// and what they used. Any other job is its app's. Every Unix user sees the jobs of the others in the list, as in any
// queue.

// sight is how much of a job a request may see.
type sight int

const (
	hidden sight = iota
	listed       // that it is there, whose, how large and how far
	whole
)

// sightOf returns how much of a job a request may see, or with whole change.
func sightOf(r *http.Request, s *jobs.Spec) (best sight) {
	q := of(r)
	for i := range q.who {
		t := &q.who[i]
		if !t.Role.May(q.to) {
			continue
		}
		within := t.App == "" || t.App == s.App
		switch owner := s.Owner.User; {
		case within && (owner == nil || t.Role == api.RoleAdmin || t.UnixUser != nil && *t.UnixUser == *owner):
			return whole
		case t.App == "", owner != nil && t.UnixUser != nil:
			best = listed
		}
	}
	return best
}

// limitSight removes from a job what a request may not see.
func limitSight(r *http.Request, j jobs.Job) jobs.Job {
	if sightOf(r, &j.Spec) == whole {
		return j
	}
	shown := min(1, len(j.Spec.Command)) // an image may have its own
	j.Spec.Command, j.Spec.Env, j.Spec.Files = j.Spec.Command[:shown:shown], nil, jobs.Files{}
	j.Spec.TaskSecrets, j.Usage = jobs.TaskSecrets{}, nil
	if j.FirstFail != nil {
		j.FirstFail = &jobs.FirstFail{Index: j.FirstFail.Index, ExitCode: j.FirstFail.ExitCode}
	}
	return j
}

// findJob returns the job that a request names, if the request may see it. Of several jobs of one name, those that it
// may change go before those of others.
func (a *jobsAPI) findJob(r *http.Request) (jobs.Job, []find.Unanswered, error) {
	return a.findJobNamed(r, r.PathValue("job"))
}

// findJobNamed is findJob for a job that is named elsewhere in a request.
func (a *jobsAPI) findJobNamed(r *http.Request, ref string) (jobs.Job, []find.Unanswered, error) {
	b, err := a.buyerOrError()
	if err != nil {
		return jobs.Job{}, nil, err
	}
	if j, silent, ok := a.findOwnJob(r, b, ref); ok {
		return j, silent, nil
	}
	j, silent, err := b.Status(r.Context(), ref)
	if err == nil && sightOf(r, &j.Spec) == hidden {
		err = fault.New(fault.NotFound, fault.CodeJobNotFound, "job %.80q not found; \"souk job ls\" lists them", ref)
	}
	return j, silent, err
}

// findAwaited replaces the names of the jobs that a job is to wait for by their IDs. It refuses jobs that the request
// may not see, as if they were not there.
func (a *jobsAPI) findAwaited(r *http.Request, s *jobs.Spec) error {
	for i := range s.After {
		x := &s.After[i]
		j, silent, err := a.findJobNamed(r, x.Job)
		switch {
		case err != nil:
			return fault.Wrap(err, fault.KindOf(err), fault.CodeOf(err), "the job is to run %s after another one",
				x.Kind)
		case len(silent) > 0:
			return fault.New(fault.Unavailable, fault.CodeJobMember, "members that do not answer may keep a newer job "+
				"%.80q than %s: name the job to wait for by its id", x.Job, j.ID)
		}
		x.Job = j.ID
	}
	return nil
}

// findOwnJob returns the newest job of a name among those of the Unix user who asks, or else among those that the
// request may change, where it may not change all.
func (a *jobsAPI) findOwnJob(r *http.Request, b Jobs, name string) (own jobs.Job, silent []find.Unanswered, ok bool) {
	limited := func(t api.Token) bool { return t.App != "" || t.UnixUser != nil }
	if jobs.ValidID(name) || !slices.ContainsFunc(of(r).who, limited) {
		return own, nil, false
	}
	found := false // own is of the Unix user who asks
	apps := map[string]bool{}
	for _, t := range of(r).who {
		apps[t.App] = true
	}
	if apps[""] {
		apps = map[string]bool{"": true} // all of them
	}
	for app := range apps {
		list, lacking, err := b.List(r.Context(), app, true)
		if err != nil {
			return own, nil, false
		}
		silent = append(silent, lacking...)
		for _, j := range list {
			if j.Spec.Name != name || sightOf(r, &j.Spec) != whole {
				continue
			}
			mine := isOwnedBySender(r, &j.Spec)
			if !ok || mine && !found || mine == found && !j.Submitted.Before(own.Submitted) {
				own, ok, found = j, true, mine
			}
		}
	}
	if !ok {
		return own, nil, false
	}
	if j, lacking, err := b.Status(r.Context(), own.ID); err == nil { // a list says less of each
		return j, append(silent, lacking...), true
	}
	return own, silent, true
}

// isOwnedBySender reports whether a job is of the Unix user who sent a request.
func isOwnedBySender(r *http.Request, s *jobs.Spec) bool {
	return s.Owner.User != nil && slices.ContainsFunc(of(r).who, func(t api.Token) bool {
		return t.UnixUser != nil && *t.UnixUser == *s.Owner.User
	})
}

// findWhole returns the id or name to ask for the job that a request names, for operations that take the whole job.
func (a *jobsAPI) findWhole(r *http.Request) (ref string, err error) {
	if _, err := a.buyerOrError(); err != nil {
		return "", err
	}
	if slices.ContainsFunc(of(r).who, func(t api.Token) bool { return t.Role == api.RoleAdmin && t.UnixUser == nil }) {
		return r.PathValue("job"), nil // whatever job it is
	}
	j, _, err := a.findJob(r)
	if err != nil {
		return "", err
	}
	return j.ID, checkWhole(r, &j)
}

func checkWhole(r *http.Request, j *jobs.Job) error {
	if sightOf(r, &j.Spec) == whole {
		return nil
	}
	return fault.New(fault.Denied, fault.CodeOwner, "job %s belongs to the Unix user %s: only %s and a token with the "+
		"role admin may do this", j.ID, j.Spec.Owner.Name(), j.Spec.Owner.Name())
}

// fillApp sets the app of a job that names none: the one that the token is valid for, else the default one.
func fillApp(r *http.Request, s *jobs.Spec) {
	q := of(r)
	for _, t := range q.who {
		if s.App == "" && t.Role.May(q.to) {
			s.App = cmp.Or(t.App, defaultApp)
		}
	}
}

// defaultApp is the app of jobs for which nobody named one.
const defaultApp = "default"

// settleOwner sets in a job whose it is, by the token that may submit it.
func settleOwner(r *http.Request, s *jobs.Spec) error {
	q := of(r)
	i := slices.IndexFunc(q.who, func(t api.Token) bool {
		return t.May(q.to, s.App) && (t.App == "" || t.App == s.App)
	})
	if i < 0 && api.IsUserApp(s.App) {
		return errUsersApp(q.to, s.App)
	}
	if i < 0 {
		t := q.who[max(0, slices.IndexFunc(q.who, func(t api.Token) bool { return t.Role.May(q.to) }))]
		return fault.New(fault.Denied, codeTokenApp,
			"the token %s is valid for the app %s only, and the job is one of %s: submit it with --app %s", t.Name,
			t.App, s.App, t.App)
	}
	s.Owner = jobs.Owner{User: q.who[i].UnixUser, By: q.who[i].Name}
	if s.Owner.User == nil {
		s.Propagated = jobs.Propagated{} // each task has a user of its own, which inherits nothing
	}
	s.StartInSharedDir()
	return nil
}

// listedJobs lists the jobs that a request may see, as far as it may.
func (a *jobsAPI) listedJobs(ctx context.Context, r *http.Request, app string, ended bool) ([]jobs.Job,
	[]find.Unanswered, error) {
	list, silent, err := a.jobs.List(ctx, app, ended)
	out := []jobs.Job{}
	for _, j := range list {
		if sightOf(r, &j.Spec) != hidden {
			out = append(out, limitSight(r, j))
		}
	}
	return out, silent, err
}
