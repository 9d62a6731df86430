package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// releasesAPI serves what is wanted of apps, and what there is of it.
type releasesAPI struct {
	catalog   releaseCatalog
	broker    releaseBroker
	directory *directory
	stewards  func() []cluster.WorkerID
	lostAfter time.Duration // rollout.Want's
}

// releaseCatalog is what it needs of the catalog.
type releaseCatalog interface {
	App(name string) (catalog.App, error)
	OpenApp(name string) (catalog.App, error)
	Deploy(app string, r *rollout.Release, by string, parent *string, now time.Time) (*rollout.Head, error)
	Scale(app string, counts map[string]int, by string, parent *string, now time.Time) (*rollout.Head, error)
	Restart(app, by string, parent *string, now time.Time) (*rollout.Head, error)
	Releases(app string) ([]catalog.ReleaseEntry, error)
	Service(app string) (catalog.Service, bool)
}

// releaseBroker is what it needs of the broker.
type releaseBroker interface {
	FreeOutside(app string, c *machine.Config) error
}

// handlers returns what it serves.
func (a *releasesAPI) handlers() handlers {
	return handlers{
		api.CreateRelease:  a.create,
		api.ListReleases:   a.list,
		api.GetRelease:     a.get,
		api.ScaleService:   a.scale,
		api.RestartService: a.restart,
		api.GetService:     a.status,
	}
}

func (a *releasesAPI) create(w http.ResponseWriter, r *http.Request) error {
	app, err := a.catalog.OpenApp(r.PathValue("app"))
	if err != nil {
		return err
	}
	var in api.NewRelease
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	release := &rollout.Release{Schema: rollout.Schema, Secrets: app.Secrets, Note: in.Note}
	for _, g := range in.Groups {
		if err := a.group(app.Name, &g); err != nil {
			return fault.Wrap(err, fault.KindOf(err), fault.As(err).Code, "group %s", clip(cmp.Or(g.Name, `""`), 80))
		}
		release.Groups = append(release.Groups, rollout.Group{Name: g.Name, Replicas: *g.Replicas, Config: g.Config,
			Scheduling: g.Scheduling, Region: g.Region, OnLost: onLost(&app, &g), LostAfter: g.LostAfter,
			StopAfter: g.StopAfter, Single: g.Single})
	}
	head, err := a.catalog.Deploy(app.Name, release, caller(r), in.Parent, time.Now())
	if err != nil {
		return err
	}
	answer(w, http.StatusCreated, api.ReleaseMade{Release: head.Release, Head: headAnswer(head)})
	return nil
}

// onLost returns what becomes of a group's machines whose worker cannot be heard: what the group says, or else the app,
// or else "". Nothing takes the place of a machine that has a volume, which is at one worker, or that is single.
func onLost(app *catalog.App, g *api.NewGroup) rollout.OnLost {
	switch {
	case g.OnLost != "" || g.Single || g.Config != nil && len(g.Config.Mounts) > 0:
		return rollout.OnLost(g.OnLost)
	case app.Disconnect == catalog.DisconnectFast:
		return rollout.Replace
	}
	return rollout.OnLost(app.Disconnect) // never, fenced and "" are the same words
}

// group fills in a group of a release, and says what of it cannot be honoured, as of a machine's create.
func (a *releasesAPI) group(app string, g *api.NewGroup) error {
	if g.Replicas == nil {
		one := 1
		g.Replicas = &one
	}
	if err := checkLaunch(&machine.Launch{Config: g.Config, Scheduling: g.Scheduling, Region: g.Region}); err != nil {
		return err
	}
	return a.broker.FreeOutside(app, g.Config)
}

// caller returns the name of the token that a request came with.
func caller(r *http.Request) string {
	for _, t := range of(r).who {
		if t.Name != "" {
			return t.Name
		}
	}
	return ""
}

func headAnswer(h *rollout.Head) api.Head {
	out := api.Head{ID: h.ID(), Number: h.Number, Parent: h.Parent, Release: h.Release, Counts: h.Counts, Why: h.Why,
		By: h.By, At: h.At}
	if out.Counts == nil {
		out.Counts = map[string]int{}
	}
	return out
}

func (a *releasesAPI) list(w http.ResponseWriter, r *http.Request) error {
	app := r.PathValue("app")
	all, err := a.catalog.Releases(app)
	if err != nil {
		return err
	}
	out := api.ReleaseList{App: app, Releases: []api.ReleaseEntry{}}
	for _, e := range all {
		x := api.ReleaseEntry{Number: e.Number, Head: e.Head, Release: e.Release, State: e.State, Why: e.Why, By: e.By,
			At: e.At, Groups: []api.ReleaseGroup{}}
		if e.Body != nil {
			x.Note = e.Body.Note
			h := rollout.Head{Counts: e.Counts}
			for i := range e.Body.Groups {
				g := &e.Body.Groups[i]
				x.Groups = append(x.Groups, api.ReleaseGroup{Name: g.Name, Wanted: h.Count(g), Image: g.Config.Image})
			}
		}
		out.Releases = append(out.Releases, x)
	}
	answer(w, http.StatusOK, out)
	return nil
}

// minDigits is how many digits of a release's id must be said at least.
const minDigits = 6

func (a *releasesAPI) get(w http.ResponseWriter, r *http.Request) error {
	app, ref := r.PathValue("app"), r.PathValue("release")
	all, err := a.catalog.Releases(app)
	if err != nil {
		return err
	}
	if len(ref) < minDigits {
		return fault.New(fault.Invalid, "release", "%q is too short for a release's id; give at least %d digits of it",
			clip(ref, 80), minDigits)
	}
	var found []catalog.ReleaseEntry
	for _, e := range all {
		if strings.HasPrefix(e.Release, ref) && !slices.ContainsFunc(found,
			func(f catalog.ReleaseEntry) bool { return f.Release == e.Release }) {
			found = append(found, e)
		}
	}
	switch {
	case len(found) == 0:
		return fault.New(fault.NotFound, "release_not_found",
			"the app %s has no release %s; \"souk releases %s\" lists them", app, clip(ref, 80), app)
	case len(found) > 1:
		return fault.New(fault.Conflict, "ambiguous", "%d releases of %s begin with %s; give more digits", len(found),
			app, clip(ref, 80))
	case found[0].Body == nil:
		return fault.New(fault.NotFound, "release_body", "what release %s of %s says is not here: it is too old to be "+
			"kept, or another member has it yet", clip(ref, 80), app)
	}
	answer(w, http.StatusOK, releaseAnswer(&found[0]))
	return nil
}

func releaseAnswer(e *catalog.ReleaseEntry) api.Release {
	b := e.Body
	out := api.Release{ID: e.Release, Secrets: b.Secrets, By: b.By, At: b.At, Note: b.Note, State: e.State,
		Groups: []api.NewGroup{}}
	for i := range b.Groups {
		g := &b.Groups[i]
		out.Groups = append(out.Groups, api.NewGroup{Name: g.Name, Replicas: &g.Replicas, Config: g.Config,
			Scheduling: g.Scheduling, Region: g.Region, OnLost: string(g.OnLost), LostAfter: g.LostAfter,
			StopAfter: g.StopAfter, Single: g.Single})
	}
	return out
}

func (a *releasesAPI) scale(w http.ResponseWriter, r *http.Request) error {
	var in api.Scale
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if len(in.Counts) == 0 {
		return fault.New(fault.Invalid, "counts", "no counts were sent; send {\"counts\": {\"GROUP\": N}}")
	}
	head, err := a.catalog.Scale(r.PathValue("app"), in.Counts, caller(r), in.Parent, time.Now())
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, headAnswer(head))
	return nil
}

func (a *releasesAPI) restart(w http.ResponseWriter, r *http.Request) error {
	var in api.ServiceRestart
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	head, err := a.catalog.Restart(r.PathValue("app"), caller(r), in.Parent, time.Now())
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, headAnswer(head))
	return nil
}

func (a *releasesAPI) status(w http.ResponseWriter, r *http.Request) error {
	app := r.PathValue("app")
	if _, err := a.catalog.App(app); err != nil {
		return err
	}
	s, there := a.catalog.Service(app)
	if !there {
		return catalog.NoService(app)
	}
	t := s.Tenure
	out := api.ServiceStatus{App: app, Groups: []api.GroupStatus{}, Steward: api.ServiceSteward{
		Member: rollout.StewardOf(s.App.ID, a.stewards(), t), Term: t.Term.Number, By: t.Term.Member, Busy: t.Busy}}
	if s.Why != nil {
		out.Why = s.Why.Error()
	}
	if s.Head != nil {
		h := headAnswer(s.Head)
		out.Head = &h
	}
	out.Groups = append(out.Groups, a.groups(&s)...)
	answer(w, http.StatusOK, out)
	return nil
}

// groups tells of each group that is wanted or has machines.
func (a *releasesAPI) groups(s *catalog.Service) (out []api.GroupStatus) {
	slots := a.slots(s)
	names := make([]string, 0, len(slots))
	for name := range slots {
		names = append(names, name)
	}
	slices.Sort(names)
	if s.Release != nil {
		names = slices.DeleteFunc(names, func(n string) bool { return s.Release.Group(n) != nil })
		for i := range s.Release.Groups {
			names = slices.Insert(names, i, s.Release.Groups[i].Name)
		}
	}
	for _, name := range names {
		g := api.GroupStatus{Name: name, Slots: slots[name]}
		if s.Release != nil {
			if group := s.Release.Group(name); group != nil {
				g.Wanted, g.Image, g.Lost = s.Head.Count(group), group.Config.Image, group.Tells(a.lostAfter)
			}
		}
		count(&g, s.Release != nil)
		a.waits(s, &g)
		g.Blamed = blamed(&g, s.Tenure.Held)
		out = append(out, g)
	}
	return out
}

// waits says of each replica of a group that lacks a machine which workers that waits for.
func (a *releasesAPI) waits(s *catalog.Service, g *api.GroupStatus) {
	if s.Release == nil || s.Release.Group(g.Name) == nil {
		return
	}
	var workers []rollout.Peer
	for w := range a.directory.fleet.Snapshot().Workers() {
		workers = append(workers, rollout.Peer{ID: w.ID, Heard: w.Reachable()})
	}
	silent := s.Release.Group(g.Name).Silent(workers)
	for i := range g.Slots {
		x := &g.Slots[i]
		slot := rollout.Slot{Group: g.Name, Index: x.Index}
		switch {
		case len(silent) > 0 && x.Machine == "":
			x.Waits = rollout.Awaits(slot, silent)
		case x.Unheard && slices.Contains(silent, x.Worker):
			x.Waits = rollout.Awaits(slot, []cluster.WorkerID{x.Worker})
		}
	}
}

// blamed reports whether the machines of a group that are held say that its release is at fault.
func blamed(g *api.GroupStatus, held []rollout.Held) bool {
	at := map[string]cluster.WorkerID{}
	for _, x := range g.Slots {
		if !x.Old {
			at[x.Machine] = x.Worker
		}
	}
	return rollout.Blamed(held, func(machine string) cluster.WorkerID { return at[machine] })
}

// slots lists the machines of a service by group.
func (a *releasesAPI) slots(s *catalog.Service) map[string][]api.SlotStatus {
	known, out := a.directory.fleet.Snapshot(), map[string][]api.SlotStatus{}
	for m := range known.MachinesOf(s.App.Name) {
		of := m.Replica
		if of == nil || m.State == machine.Destroyed || m.State == machine.Destroying {
			continue
		}
		x := api.SlotStatus{Index: of.Index, Machine: m.ID, Name: m.Name, Worker: m.Worker, State: m.State,
			Ready: m.Ready && !m.Failing, Release: of.Release}
		if i := slices.IndexFunc(s.Tenure.Held, func(h rollout.Held) bool { return h.Machine == m.ID }); i >= 0 {
			x.Held = s.Tenure.Held[i].Why
		}
		if w, told := known.Worker(m.Worker); !told || !w.Reachable() {
			x.Unheard, x.Ready = true, false
		}
		if s.Release != nil {
			g := s.Release.Group(of.Group)
			x.Old = g == nil || of.Spec != g.Spec(s.Release.Secrets, s.Head.Restarted)
		}
		out[of.Group] = append(out[of.Group], x)
	}
	return out
}

// count fills in the numbers of a group and the replicas that have no machine. known is false where nothing says how
// many are wanted.
func count(g *api.GroupStatus, known bool) {
	best := func(x api.SlotStatus) int { // of several machines of a replica the one that stays is first
		switch {
		case x.Ready && !x.Old:
			return 0
		case x.Ready:
			return 1
		case !x.Old:
			return 2
		}
		return 3
	}
	byIndex := func(a, b api.SlotStatus) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), best(a)-best(b), strings.Compare(a.Machine, b.Machine))
	}
	slices.SortFunc(g.Slots, byIndex)
	have := map[int]bool{}
	for i := range g.Slots {
		x := &g.Slots[i]
		x.Extra = known && (x.Index >= g.Wanted || have[x.Index])
		if !x.Extra && !have[x.Index] {
			g.There++
			if x.Ready && !x.Old {
				g.Ready++
			}
		}
		have[x.Index] = true
	}
	for i := range g.Wanted {
		if !have[i] {
			g.Slots = append(g.Slots, api.SlotStatus{Index: i})
		}
	}
	slices.SortStableFunc(g.Slots, byIndex)
	g.Slots = append([]api.SlotStatus{}, g.Slots...)
}
