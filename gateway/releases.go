package gateway

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// releasesAPI serves what is wanted of apps, and what there is of it.
type releasesAPI struct {
	catalog   releaseCatalog
	broker    releaseBroker
	directory *directory
	self      cluster.WorkerID
	stewards  func() []cluster.WorkerID
	lostAfter time.Duration // rollout.Want's
	images    Images        // nil: names of images stay as they are
	agree     func(ctx context.Context, worker bool)
	rand      io.Reader
}

// releaseCatalog is what it needs of the catalog.
type releaseCatalog interface {
	App(name string) (catalog.App, error)
	OpenApp(name string) (catalog.App, error)
	NamespaceOf(app string) (catalog.Namespace, error)
	Deploy(app string, r *rollout.Release, by string, parent *string, booking *rollout.Booking,
		now time.Time) (*rollout.Head, error)
	Foresee(app string, r *rollout.Release, by string, parent *string, now time.Time) (catalog.Service, error)
	Scale(app string, counts map[string]int, by string, parent *string, now time.Time) (*rollout.Head, error)
	Restart(app, by string, parent *string, now time.Time) (*rollout.Head, error)
	Rollback(app, release, by string, parent *string, now time.Time) (*rollout.Head, []string, error)
	RollSecrets(app string, values map[string]*string, by string, parent *string, now time.Time) (catalog.Rolled, error)
	ForeseeSecrets(app string, values map[string]*string, by string, parent *string,
		now time.Time) (catalog.Service, []string, error)
	Pause(app, by string, parent *string, now time.Time) (*rollout.Head, error)
	Resume(app, by string, parent *string, now time.Time) (*rollout.Head, error)
	Promote(app string, steps int, all bool, by string, parent *string, now time.Time) (*rollout.Head, error)
	Move(app string, moves []rollout.MoveTo, stands func(id string) bool, by string,
		now time.Time) (*rollout.Head, error)
	Releases(app string) ([]catalog.ReleaseEntry, error)
	Service(app string) (catalog.Service, bool)
	Services() []string
}

// releaseBroker is what it needs of the broker.
type releaseBroker interface {
	FreeOutside(app string, c *machine.Config) error
	Plan(ctx context.Context, in broker.Intent) (*broker.Plan, error)
	Rehearse(ctx context.Context) *broker.Rehearsal
	HoldTrial(ctx context.Context, s *broker.Trial, token string, ttl time.Duration) (held bool, err error)
	Release(ctx context.Context, worker cluster.WorkerID, token string) error
	Place(ctx context.Context, in broker.Intent) (*broker.Placed, error)
}

// handlers returns what it serves.
func (a *releasesAPI) handlers() handlers {
	return handlers{
		api.CreateRelease:   a.create,
		api.PlanRelease:     a.plan,
		api.HoldRelease:     a.planAndHold,
		api.ListReleases:    a.list,
		api.GetRelease:      a.get,
		api.ScaleService:    a.scale,
		api.RestartService:  a.restart,
		api.RollbackService: a.rollback,
		api.PauseRollout:    a.pause,
		api.ResumeRollout:   a.resume,
		api.PromoteRollout:  a.promote,
		api.TriggerJob:      a.trigger,
		api.GetService:      a.status,
		api.WhyService:      a.why,
		api.RollSecrets:     a.rollSecrets,
		api.PlanSecrets:     a.planSecrets,
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
	release, un, here, err := a.release(r, &app, &in)
	if err != nil {
		return err
	}
	volumes, err := a.makeVolumes(r, &app, release, in.Parent, un)
	if err != nil {
		return err
	}
	head, err := a.catalog.Deploy(app.Name, release, caller(r), in.Parent, (*rollout.Booking)(in.Held), time.Now())
	if err != nil {
		return err
	}
	answer(w, http.StatusCreated, api.ReleaseMade{Release: head.Release, Head: headAnswer(head),
		ImagesHere: here, Volumes: volumes, Warnings: release.Warnings(app.Name)})
	return nil
}

// release returns the release that a body says, filled in and checked as of a machine's create, its images with their
// digests and its volumes with their ids. here are images of which this host's was taken, un the volumes that are to be
// made.
func (a *releasesAPI) release(r *http.Request, app *catalog.App, in *api.NewRelease) (release *rollout.Release,
	un unmade, here []string, err error) {
	if un, err = a.nameVolumes(r.Context(), app.Name, in); err != nil {
		return nil, nil, nil, err
	}
	release = &rollout.Release{Schema: rollout.Schema, Note: in.Note}
	if len(in.ReleaseCommand) > 0 {
		release.Command = &rollout.Command{Exec: in.ReleaseCommand, Group: in.ReleaseCommandGroup,
			Timeout: in.ReleaseCommandTimeout}
	} else if in.ReleaseCommandGroup != "" || in.ReleaseCommandTimeout != nil {
		return nil, nil, nil, fault.New(fault.Invalid, "release", "release_command_group and release_command_timeout "+
			"are of a release_command, and there is none: say one, or leave them out")
	}
	for _, g := range in.Groups {
		if err := a.group(app.Name, &g); err != nil {
			return nil, nil, nil, fault.Wrap(err, fault.KindOf(err), fault.As(err).Code, "group %s",
				clip(cmp.Or(g.Name, `""`), 80))
		}
		release.Groups = append(release.Groups, rollout.Group{Name: g.Name, Replicas: *g.Replicas, Config: g.Config,
			Scheduling: g.Scheduling, Region: g.Region, OnLost: onLost(app, &g), LostAfter: g.LostAfter,
			Update: g.Update, After: g.After, StopAfter: g.StopAfter, Single: g.Single, Autoscale: g.Autoscale,
			Cron: g.Cron})
	}
	here, err = a.pin(r.Context(), release, mayDeploy(r))
	return release, un, here, err
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
		if g.Autoscale != nil {
			one = g.Autoscale.Min
		}
		g.Replicas = &one
	}
	if err := checkLaunch(&machine.Launch{Config: g.Config, Scheduling: g.Scheduling, Region: g.Region}); err != nil {
		return err
	}
	return a.broker.FreeOutside(app, g.Config)
}

// mayDeploy reports whether a request has a token that may make releases.
func mayDeploy(r *http.Request) bool {
	return may(r, api.Route{Op: api.CreateRelease, Verb: api.VerbCreate, Kind: api.KindService})
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
		By: h.By, At: h.At, Paused: h.Paused, Promoted: h.Promoted}
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
			At: e.At, Failed: e.Failed, Groups: []api.ReleaseGroup{}}
		if e.Body != nil {
			x.Note = e.Body.Note
			h := rollout.Head{Counts: e.Counts}
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
	answer(w, http.StatusOK, out)
	return nil
}

// minDigits is how many digits of a release's id must be said at least.
const minDigits = 6

func (a *releasesAPI) get(w http.ResponseWriter, r *http.Request) error {
	e, err := a.find(r.PathValue("app"), r.PathValue("release"))
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, releaseAnswer(&e))
	return nil
}

// find finds a release of an app that is kept, by its number, its id or the beginning of that.
func (a *releasesAPI) find(app, ref string) (catalog.ReleaseEntry, error) {
	var none catalog.ReleaseEntry
	all, err := a.catalog.Releases(app)
	if err != nil {
		return none, err
	}
	number, _ := strconv.ParseUint(ref, 10, 64)
	isNumber := strconv.FormatUint(number, 10) == ref
	if !isNumber && len(ref) < minDigits {
		return none, fault.New(fault.Invalid, "release", "%q is no release's number, and too short for its id; give "+
			"at least %d digits of it", clip(ref, 80), minDigits)
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
		return none, fault.New(fault.NotFound, "release_not_found",
			"the app %s has no release %s; \"souk releases %s\" lists them", app, clip(ref, 80), app)
	case len(found) > 1:
		return none, fault.New(fault.Conflict, "ambiguous", "%d releases of %s begin with %s; give more digits",
			len(found), app, clip(ref, 80))
	case found[0].Body == nil:
		return none, fault.New(fault.NotFound, "release_body", "what release %s of %s says is not here: it is too old "+
			"to be kept, or another member has it yet", clip(ref, 80), app)
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
		out.Groups = append(out.Groups, api.NewGroup{Name: g.Name, Replicas: &g.Replicas, Config: g.Config,
			Scheduling: g.Scheduling, Region: g.Region, OnLost: string(g.OnLost), LostAfter: g.LostAfter,
			Update: g.Update, After: g.After, StopAfter: g.StopAfter, Single: g.Single, Autoscale: g.Autoscale,
			Cron: g.Cron})
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
	return answerHead(w)(a.catalog.Scale(r.PathValue("app"), in.Counts, caller(r), in.Parent, time.Now()))
}

func (a *releasesAPI) restart(w http.ResponseWriter, r *http.Request) error {
	var in api.ServiceRestart
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	return answerHead(w)(a.catalog.Restart(r.PathValue("app"), caller(r), in.Parent, time.Now()))
}

func (a *releasesAPI) rollback(w http.ResponseWriter, r *http.Request) error {
	var in api.ServiceRollback
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	app := r.PathValue("app")
	if in.Release != "" {
		e, err := a.find(app, in.Release)
		if err != nil {
			return err
		}
		in.Release = e.Release
	}
	head, renewed, err := a.catalog.Rollback(app, in.Release, caller(r), in.Parent, time.Now())
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.RolledBack{Head: headAnswer(head), RenewedSecrets: renewed})
	return nil
}

func (a *releasesAPI) pause(w http.ResponseWriter, r *http.Request) error {
	var in api.RolloutChange
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	return answerHead(w)(a.catalog.Pause(r.PathValue("app"), caller(r), in.Parent, time.Now()))
}

func (a *releasesAPI) resume(w http.ResponseWriter, r *http.Request) error {
	var in api.RolloutChange
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	return answerHead(w)(a.catalog.Resume(r.PathValue("app"), caller(r), in.Parent, time.Now()))
}

func (a *releasesAPI) promote(w http.ResponseWriter, r *http.Request) error {
	var in api.Promotion
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	app := r.PathValue("app")
	return answerHead(w)(a.catalog.Promote(app, in.Steps, in.All, caller(r), in.Parent, time.Now()))
}

// answerHead returns what answers with a head, or returns the error.
func answerHead(w http.ResponseWriter) func(*rollout.Head, error) error {
	return func(h *rollout.Head, err error) error {
		if err == nil {
			answer(w, http.StatusOK, headAnswer(h))
		}
		return err
	}
}
