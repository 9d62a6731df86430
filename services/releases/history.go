package releases

import (
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/catalog"
)

// List lists the releases of an app: the current one, then the others, newest first.
func (a *Releases) List(app string) (out api.ReleaseList, err error) {
	all, err := a.Catalog.Releases(app)
	if err != nil {
		return out, err
	}
	out = api.ReleaseList{App: app, Releases: []api.ReleaseEntry{}}
	for _, e := range all {
		x := api.ReleaseEntry{Number: e.Number, Head: e.Head, Release: e.Release, State: e.State, Why: e.Why, By: e.By,
			At: e.At, Failed: e.Failed, Groups: []api.ReleaseGroup{}}
		if e.Body != nil {
			x.Note = e.Body.Note
			h := release.Head{Counts: e.Counts}
			for i := range e.Body.Groups {
				g := &e.Body.Groups[i]
				one := api.ReleaseGroup{Name: g.Name, Wanted: h.Count(g), Image: g.Config.Image}
				if h.Scales(g) {
					one.Min, one.Max = g.Autoscale.Min, g.Autoscale.Max
				}
				x.Groups = append(x.Groups, one)
			}
		}
		out.Releases = append(out.Releases, x)
	}
	return out, nil
}

// Get returns a whole release. ref is as for Find.
func (a *Releases) Get(app, ref string) (api.Release, error) {
	e, err := a.Find(app, ref)
	if err != nil {
		return api.Release{}, err
	}
	return releaseAnswer(&e), nil
}

// minDigits is the least length of a prefix of a release's id.
const minDigits = 6

// Find finds a stored release of an app by its number, its id or a prefix of the id.
func (a *Releases) Find(app, ref string) (catalog.ReleaseEntry, error) {
	var none catalog.ReleaseEntry
	all, err := a.Catalog.Releases(app)
	if err != nil {
		return none, err
	}
	number, _ := strconv.ParseUint(ref, 10, 64)
	isNumber := strconv.FormatUint(number, 10) == ref
	if !isNumber && len(ref) < minDigits {
		return none, fault.New(fault.Invalid, fault.CodeRelease,
			"%q is no release's number, and too short for its id; give "+
				"at least %d digits of it", fault.Clip(ref, 80), minDigits)
	}
	var found []catalog.ReleaseEntry
	for _, e := range all {
		is := isNumber && number > 0 && e.Number == number || len(ref) >= minDigits && strings.HasPrefix(e.Release, ref)
		if is && !slices.ContainsFunc(found,
			func(f catalog.ReleaseEntry) bool { return f.Release == e.Release }) {
			found = append(found, e)
		}
	}
	switch {
	case len(found) == 0:
		return none, fault.New(fault.NotFound, codeReleaseNotFound,
			"the app %s has no release %s; \"souk releases %s\" lists them", app, fault.Clip(ref, 80), app)
	case len(found) > 1:
		return none, fault.New(fault.Conflict, fault.CodeAmbiguous, "%d releases of %s begin with %s; give more digits",
			len(found), app, fault.Clip(ref, 80))
	case found[0].Body == nil:
		return none, fault.New(fault.NotFound, codeReleaseBody,
			"the content of release %s of %s is not here: it is too old to be kept, or only another member has it "+
				"so far", fault.Clip(ref, 80), app)
	}
	return found[0], nil
}

func releaseAnswer(e *catalog.ReleaseEntry) api.Release {
	b := e.Body
	out := api.Release{ID: e.Release, Secrets: b.Secrets, Keys: b.Keys, By: b.By, At: b.At, Note: b.Note,
		State: e.State, Groups: []api.NewGroup{}}
	if c := b.Command; c != nil {
		out.ReleaseCommand, out.ReleaseCommandGroup, out.ReleaseCommandTimeout = c.Exec, c.Group, c.Timeout
	}
	for i := range b.Groups {
		g := &b.Groups[i]
		out.Groups = append(out.Groups, api.NewGroup{Replicas: &g.Replicas, Group: *g})
	}
	return out
}
