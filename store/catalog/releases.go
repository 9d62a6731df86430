package catalog

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// maxHead bounds the bytes of a head, which is shared as one object; its oldest predecessors are dropped.
const maxHead = registry.MaxPayload - 4<<10

// Change writes a new head for the change want, in one commit with the release that a deploy makes, and removes
// releases that are no longer used. The release gets want.By and want.At unless it has its own. If nothing changes, it
// writes nothing and returns the present head.
//
// It returns a Conflict, code head_moved, if the present head is not want.Parent; and NotFound, code no_service, if
// the service has no release yet, except for a deploy. If a rollback is to a release whose secrets are partly erased,
// a copy of it with the newest ones is made instead, and renewed names those secrets. Other errors are those of
// release.Service.Resolve.
func (c *Services) Change(app string, want release.Change) (h *release.Head, renewed []string, err error) {
	c.write.Lock()
	defer c.write.Unlock()
	old, err := c.headFor(app, want.Parent)
	if err != nil {
		return nil, nil, err
	}
	var made *release.Release
	if want.Why == release.WhyDeploy {
		h, made, err = c.deployed(c.apps.rows.all[app], old, &want)
	} else {
		h, made, renewed, err = c.followed(app, old, &want)
	}
	if err != nil || h == old {
		return h, renewed, err
	}
	return h, renewed, c.commit(c.headed(app, h, made, nil)...)
}

// headed returns the changes that write a head and, unless it is nil, the release that it wants, and that remove what
// is no longer needed. s is their change of the app's secrets; nil: none. The caller holds write.
func (c *Services) headed(app string, h *release.Head, r *release.Release, s *setting) (batch []change) {
	if s == nil {
		s = &setting{}
	}
	kept, erased := c.secrets.keptSecrets(app, c.pinnedBy(app, h, r), s.replaced)
	batch = kept
	if _, there := c.releases.all[app+"/"+h.Release]; r != nil && !there {
		batch = append(batch, c.releases.put(app+"/"+h.Release, newVersioned(r)))
	}
	// The head comes first: a member with the head knows which values and releases it needs, and keeps no others.
	batch = slices.Concat(batch, []change{c.heads.put(app, newVersioned(h))}, s.batch, erased)
	if r == nil {
		return batch
	}
	used := c.used(app, h)
	for _, key := range slices.Sorted(slices.Values(c.releases.byApp[app])) {
		if !used[strings.TrimPrefix(key, app+"/")] {
			batch = append(batch, c.releases.remove(key))
			delete(c.restored, key)
		}
	}
	return batch
}

// deployed returns the release that a deploy makes, and the head for it. The caller holds write.
func (c *Services) deployed(a App, old *release.Head, want *release.Change) (*release.Head, *release.Release, error) {
	r, err := keyed(a, want.New, c.secrets.secretTimes(a.Name))
	if err == nil {
		r, err = settled(r, want.By, want.At)
	}
	if err != nil {
		return nil, nil, err
	}
	h, err := c.following(a.Name, old, r, release.Change{Why: release.WhyDeploy, By: want.By, At: want.At,
		Booking: want.Booking})
	return h, r, err
}

// following returns the head for a new release, which follows old. The caller holds write.
func (c *Services) following(app string, old *release.Head, r *release.Release,
	next release.Change) (*release.Head, error) {
	next.Release = r.ID()
	h, err := old.Next(next, r, c.inForce(app, old), c.tenures.all[app].Progress)
	if err == nil {
		trim(h)
	}
	return h, err
}

// Foresee returns the service as it would be after a deploy by Change, and the same errors. It writes nothing. The app
// need not exist.
func (c *Services) Foresee(app string, want release.Change) (Service, error) {
	c.write.Lock()
	defer c.write.Unlock()
	s := Service{App: App{Name: app}, Service: release.Service{App: app}}
	var old *release.Head
	var err error
	if a, there := c.apps.rows.all[app]; there {
		s.App, s.Tenure = a, c.tenures.all[app]
		old, err = c.headFor(app, want.Parent)
	} else {
		err = cmp.Or(checkName(app), checkParent(app, nil, want.Parent))
	}
	if err != nil {
		return Service{}, err
	}
	if s.Head, s.Release, err = c.deployed(s.App, old, &want); err != nil {
		return Service{}, err
	}
	if s.Head.Before != nil {
		s.Before = c.releases.get(app + "/" + s.Head.Before.Release)
	}
	return s, nil
}

// settled returns a release in the form in which all members read it, so that its ID is the same for all.
func settled(r *release.Release, by string, now time.Time) (*release.Release, error) {
	said := *r
	said.By = cmp.Or(said.By, by)
	if said.At.IsZero() {
		said.At = now
	}
	said.At = said.At.UTC()
	if err := said.Check(); err != nil {
		return nil, err
	}
	var out release.Release
	if err := json.Unmarshal(encode(said), &out); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, fault.CodeRelease, "the release cannot be kept")
	}
	return &out, nil
}

// followed returns the head that follows old by a change other than a deploy, or old itself if nothing changes; and
// the release that is made for it, or nil. The caller holds write.
func (c *Services) followed(app string, old *release.Head, want *release.Change) (h *release.Head,
	made *release.Release,
	renewed []string, err error) {
	if old == nil {
		return nil, nil, nil, NoService(app)
	}
	stands := c.standing(app, old)
	p := stands.Progress
	to, err := stands.Resolve(*want)
	if err != nil {
		return nil, nil, nil, err
	}
	if reflect.DeepEqual(to, release.Change{}) {
		return old, nil, nil, nil
	}
	to.By, to.At = want.By, want.At
	aim := cmp.Or(to.Release, old.InForce(p).Release)
	if to.Resume {
		aim = old.Release
	}
	r := c.releases.get(app + "/" + aim)
	if r == nil {
		return nil, nil, nil, c.noRelease(app, aim)
	}
	if want.Why == release.WhyBack {
		if made, renewed, err = c.renewed(app, old, r, want.By, want.At); err != nil {
			return nil, nil, nil, err
		}
		if made != nil {
			r, to.Release = made, made.ID()
		}
	}
	h, err = old.Next(to, r, c.inForce(app, old), p)
	if err != nil {
		return nil, nil, nil, err
	}
	if h.Same(old) {
		return old, nil, renewed, nil
	}
	trim(h)
	return h, made, renewed, nil
}

// inForce returns the release that an app's machines are to run at the present progress of the rollout; nil: there is
// none, or it is not here. The caller holds write.
func (c *Services) inForce(app string, h *release.Head) *release.Release {
	if h == nil {
		return nil
	}
	return c.releases.get(app + "/" + h.InForce(c.tenures.all[app].Progress).Release)
}

// headFor returns the present head of an app, for a new one to follow; nil if there is none. The caller holds write.
func (c *Services) headFor(app string, parent *string) (*release.Head, error) {
	a, there := c.apps.rows.all[app]
	if !there || a.Deleting {
		return nil, NoApp()
	}
	v, there := c.heads.all[app]
	if there && v.row == nil {
		return nil, c.unusableHead(app)
	}
	return v.row, checkParent(app, v.row, parent)
}

// checkParent refuses a change if the head is not the one that the caller has seen.
func checkParent(app string, h *release.Head, parent *string) error {
	switch {
	case parent == nil || h == nil && *parent == "" || h != nil && *parent == h.ID():
		return nil
	case h == nil:
		return fault.New(fault.Conflict, codeHeadMoved,
			"the change of the service %s names the parent %s, but the service has no release: read it again, and "+
				"leave the parent out to continue", app, fault.Clip(*parent, 40))
	}
	return fault.New(fault.Conflict, codeHeadMoved,
		"the service %s has changed: number %d (%s of release %s) was written by %s at %s; read it again, then repeat "+
			"what is still wanted", app, h.Number, h.Why, release.Short(h.Release), cmp.Or(h.By, "somebody"),
		h.At.UTC().Format(time.RFC3339))
}

// NoService returns the error for an app without a release.
func NoService(app string) error {
	return fault.New(fault.NotFound, fault.CodeNoService,
		"the app %s has no release, so nothing is kept of it; make one with \"souk run --replicas N --app %s IMAGE\"",
		app, app)
}

func (c *Services) noRelease(app, id string) error {
	if v, there := c.releases.all[app+"/"+id]; there {
		return fault.Wrap(v.unusable(), fault.Precondition, fault.CodeSchema, "release %s of %s cannot be used",
			release.Short(id), app)
	}
	return fault.New(fault.Unavailable, fault.CodeReleaseMissing,
		"release %s of %s is not here yet: another member made it; ask again in a moment", release.Short(id), app)
}

func (c *Services) unusableHead(app string) error {
	v := c.heads.all[app]
	return fault.Wrap(v.unusable(), fault.Precondition, fault.CodeSchema,
		"the wanted state of %s cannot be used", app)
}

// trim removes the oldest predecessors from a head that is too large to share.
func trim(h *release.Head) {
	for len(h.Past) > 0 && len(encode(h)) > maxHead {
		h.Past = h.Past[:len(h.Past)-1]
	}
}

// used lists the releases of an app that are needed with head h.
func (c *Services) used(app string, h *release.Head) map[string]bool {
	out := map[string]bool{}
	for _, id := range h.Kept() {
		out[id] = true
	}
	for _, key := range c.forks.byApp[app] {
		if lost := c.forks.get(key); lost != nil {
			out[lost.Release] = true
		}
	}
	return out
}

// needsRelease reports whether a release that another member removed is used here, and so is shared again: that member
// did not know the head that wants it. The caller holds write.
func (c *Services) needsRelease(key string) (tell []change, stays bool) {
	app := appOf(key)
	a, there := c.apps.rows.all[app]
	h := c.heads.get(app)
	if !there || a.Deleting || h == nil || !c.used(app, h)[strings.TrimPrefix(key, app+"/")] {
		return nil, false
	}
	c.restored[key] = app
	return []change{c.releases.put(key, c.releases.all[key])}, true
}

// forgetRestored removes, on all members, the releases shared again of an app that has been deleted.
func (c *Services) forgetRestored(app string) {
	for key, of := range c.restored {
		if of == app {
			c.tell(c.releases.remove(key).record)
			delete(c.restored, key)
		}
	}
}

// The states of a head.
const (
	ReleaseCurrent   = "current"   // it is wanted
	ReleasePast      = "past"      // another head followed it
	ReleaseUndone    = "undone"    // its rollout failed, so the target before it is wanted again
	ReleaseOvertaken = "overtaken" // an independently written head has replaced it
)

// ReleaseEntry is one entry of the history of a service: a head, and the release that it wanted.
type ReleaseEntry struct {
	Number  uint64           // of the head; 0: no kept head names the release
	Head    string           // its id
	Release string           // id
	Body    *release.Release // nil: no longer kept, not here yet, or of a newer souk
	Counts  map[string]int
	Why, By string
	At      time.Time
	State   string // one of the above
	Failed  string // of an undone one: why it failed
}

// Releases returns the history of a service: the wanted release, then the others from the newest on. NotFound, code
// no_service, if there is none.
func (c *Services) Releases(app string) ([]ReleaseEntry, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if _, there := c.apps.rows.all[app]; !there {
		return nil, NoApp()
	}
	l := lister{c: c, app: app, seen: map[string]bool{}, named: map[string]bool{}}
	if h := c.heads.get(app); h != nil {
		l.current(h)
	}
	for _, key := range c.forks.byApp[app] {
		if h := c.forks.get(key); h != nil {
			l.head(h, ReleaseOvertaken, ReleaseOvertaken)
		}
	}
	for _, key := range c.releases.byApp[app] {
		id := strings.TrimPrefix(key, app+"/")
		if r := c.releases.get(key); r != nil && !l.named[id] {
			l.out = append(l.out, ReleaseEntry{Release: id, Body: r, Why: release.WhyDeploy, By: r.By, At: r.At,
				State: ReleaseOvertaken})
		}
	}
	if len(l.out) == 0 {
		if _, there := c.heads.all[app]; there {
			return nil, c.unusableHead(app)
		}
		return nil, NoService(app)
	}
	current := func(e ReleaseEntry) int {
		if e.State == ReleaseCurrent {
			return 0
		}
		return 1
	}
	slices.SortFunc(l.out, func(a, b ReleaseEntry) int {
		return cmp.Or(current(a)-current(b), b.At.Compare(a.At), cmp.Compare(b.Number, a.Number),
			strings.Compare(a.Head+a.Release, b.Head+b.Release))
	})
	return l.out, nil
}

// lister builds the entries of heads, each head once.
type lister struct {
	c           *Services
	app         string
	seen, named map[string]bool // heads, and the releases that they name
	out         []ReleaseEntry
}

// head adds a head, and its predecessors that are not listed yet.
func (l *lister) head(h *release.Head, state, before string) {
	l.add(ReleaseEntry{Number: h.Number, Head: h.ID(), Release: h.Release, Counts: h.Counts, Why: h.Why, By: h.By,
		At: h.At, State: state})
	for _, p := range h.Past {
		e := ReleaseEntry{Number: p.Number, Head: p.ID, Release: p.Release, Counts: p.Counts, Why: p.Why, By: p.By,
			At: p.At, State: before, Failed: p.Undone}
		if p.Undone != "" && before == ReleasePast {
			e.State = ReleaseUndone
		}
		l.add(e)
	}
}

// current adds the present head and its predecessors. Once its rollout is undone, the newest head with the previous
// target is the wanted one.
func (l *lister) current(h *release.Head) {
	in := h.InForce(l.c.tenures.all[l.app].Progress)
	if in.Release == h.Release {
		l.head(h, ReleaseCurrent, ReleasePast)
		return
	}
	l.head(h, ReleaseUndone, ReleasePast)
	for i := range l.out {
		if l.out[i].Head == h.ID() {
			l.out[i].Failed = l.c.tenures.all[l.app].Progress.Why
		}
	}
	i := slices.IndexFunc(l.out, func(e ReleaseEntry) bool { return e.Release == in.Release })
	if i >= 0 {
		l.out[i].State, l.out[i].Failed = ReleaseCurrent, ""
		return
	}
	if r := l.c.releases.get(l.app + "/" + in.Release); r != nil { // its heads are too old to be kept
		l.add(ReleaseEntry{Release: in.Release, Why: release.WhyDeploy, By: r.By, At: r.At, State: ReleaseCurrent})
	}
}

func (l *lister) add(e ReleaseEntry) {
	if l.seen[e.Head] {
		return
	}
	l.seen[e.Head], l.named[e.Release] = true, true
	e.Body = l.c.releases.get(l.app + "/" + e.Release)
	l.out = append(l.out, e)
}

func checkRelease(key, sum string, r *release.Release) error {
	if err := namedInApp(key, sum, r.ID()); err != nil {
		return err
	}
	return r.Check()
}

// namedInApp refuses a row whose key does not end with the ID of the text as written, or of the value as read here:
// two builds may encode the same value differently.
func namedInApp(key, sum, id string) error {
	app, last, _ := strings.Cut(key, "/")
	if !machine.ValidLabel(app) || last != sum && last != id {
		return fault.New(fault.Invalid, fault.CodeCatalog, "the key of the row is not an app's name and %q", sum)
	}
	return nil
}
