// Package releases says what a release would do, makes it, and tells how a service stands and why: all that is asked of
// services, and answered with the nouns of package api. The service itself is kept by package services.
package releases

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// Releases answer what is asked of the services of a process.
type Releases struct {
	Apps       Apps
	Namespaces Namespaces
	Catalog    Catalog
	Broker     Broker
	Directory  *find.Directory
	Self       cluster.WorkerID          // the member; "": this process is alone
	Stewards   func() []cluster.WorkerID // members that carry services and that can be heard
	LostAfter  time.Duration             // rollout.Want's
	Images     Images                    // nil: names of images stay as they are
	// Agree waits until the members that can be heard know what this one knows; worker: that a worker has changed, too.
	Agree func(ctx context.Context, worker bool)
	Rand  io.Reader
}

// Apps is what they need of apps.
type Apps interface {
	App(name string) (catalog.App, error)
}

// Namespaces is what they need of namespaces.
type Namespaces interface {
	NamespaceOf(app string) (catalog.Namespace, error)
}

// Catalog is what they need of the catalog's services.
type Catalog interface {
	Change(app string, want release.Change) (h *release.Head, renewed []string, err error)
	Foresee(app string, want release.Change) (catalog.Service, error)
	ForeseeSecrets(app string, values map[string]*string, by string, parent *string,
		now time.Time) (catalog.Service, []string, error)
	Releases(app string) ([]catalog.ReleaseEntry, error)
	Service(app string) (catalog.Service, bool)
	AllServices() []string
}

// Broker is what they need of the broker.
type Broker interface {
	FreeOutside(app string, c *machine.Config) error
	Plan(ctx context.Context, in broker.Intent) (*broker.Plan, error)
	Rehearse(ctx context.Context) *broker.Rehearsal
	HoldTrial(ctx context.Context, s *broker.Trial, token string, ttl time.Duration) (held bool, err error)
	Release(ctx context.Context, worker cluster.WorkerID, token string) error
	Place(ctx context.Context, in broker.Intent) (*broker.Placed, error)
	Takes(ctx context.Context, in broker.Intent, id string, at cluster.WorkerID) error
}

// Asker is the person that asks.
type Asker struct {
	Name    string // of the token; "": it has none
	Deploys bool   // may deploy, so that registries are asked what images are
}

// Deploy makes a release of an app, and has it wanted from now on.
func (a *Releases) Deploy(ctx context.Context, app *catalog.App, in *api.NewRelease,
	by Asker) (made api.ReleaseMade, err error) {
	next, un, here, err := a.release(ctx, app, in, by)
	if err != nil {
		return made, err
	}
	want := release.Change{Why: release.WhyDeploy, New: next, Parent: in.Parent, By: by.Name, At: time.Now(),
		Booking: in.Held}
	volumes, err := a.makeVolumes(ctx, app, &want, un)
	if err != nil {
		return made, err
	}
	h, _, err := a.Catalog.Change(app.Name, want)
	if err != nil {
		return made, err
	}
	return api.ReleaseMade{Release: h.Release, Head: HeadAnswer(h), ImagesHere: here, Volumes: volumes,
		Warnings: next.Warnings(app.Name)}, nil
}

// Change has a service changed as want says, which is no deploy: of a rollback want.Release may be as Find takes it.
func (a *Releases) Change(app string, want release.Change) (out api.RolledBack, err error) {
	switch {
	case want.Why == release.WhyScale && len(want.Counts) == 0:
		return out, fault.New(fault.Invalid, codeCounts, "no counts were sent; send {\"counts\": {\"GROUP\": N}}")
	case want.Why == release.WhyBack && want.Release != "":
		e, err := a.Find(app, want.Release)
		if err != nil {
			return out, err
		}
		want.Release = e.Release
	}
	h, renewed, err := a.Catalog.Change(app, want)
	if err != nil {
		return out, err
	}
	return api.RolledBack{Head: HeadAnswer(h), RenewedSecrets: renewed}, nil
}

// release returns the release that a body says, filled in and checked as of a machine's create, its images with their
// digests and its volumes with their ids. here are images of which this host's was taken, un the volumes that are to be
// made.
func (a *Releases) release(ctx context.Context, app *catalog.App, in *api.NewRelease,
	by Asker) (made *release.Release, un unmade, here []string, err error) {
	if un, err = a.nameVolumes(ctx, app.Name, in); err != nil {
		return nil, nil, nil, err
	}
	made = &release.Release{Schema: release.Schema, Note: in.Note}
	if len(in.ReleaseCommand) > 0 {
		made.Command = &release.Command{Exec: in.ReleaseCommand, Group: in.ReleaseCommandGroup,
			Timeout: in.ReleaseCommandTimeout}
	} else if in.ReleaseCommandGroup != "" || in.ReleaseCommandTimeout != nil {
		return nil, nil, nil, fault.New(fault.Invalid, fault.CodeRelease,
			"release_command_group and release_command_timeout "+
				"are of a release_command, and there is none: say one, or leave them out")
	}
	for _, g := range in.Groups {
		if err := a.group(app.Name, &g); err != nil {
			return nil, nil, nil, fault.Wrap(err, fault.KindOf(err), fault.As(err).Code, "group %s",
				fault.Clip(cmp.Or(g.Name, `""`), 80))
		}
		one := g.Group
		one.Replicas, one.OnLost = *g.Replicas, onLost(app, &g.Group)
		made.Groups = append(made.Groups, one)
	}
	here, err = a.pin(ctx, made, by.Deploys)
	return made, un, here, err
}

// onLost returns what becomes of a group's machines whose worker cannot be heard: what the group says, or else the app,
// or else "". Nothing takes the place of a machine that has a volume, which is at one worker, or that is single.
func onLost(app *catalog.App, g *release.Group) release.OnLost {
	switch {
	case g.OnLost != "" || g.Single || g.Config != nil && len(g.Config.Mounts) > 0:
		return g.OnLost
	case app.Disconnect == catalog.DisconnectFast:
		return release.Replace
	}
	return release.OnLost(app.Disconnect) // never, fenced and "" are the same words
}

// group fills in a group of a release, and says what of it cannot be honoured, as of a machine's create.
func (a *Releases) group(app string, g *api.NewGroup) error {
	if g.Replicas == nil {
		one := 1
		if g.Autoscale != nil {
			one = g.Autoscale.Min
		}
		g.Replicas = &one
	}
	l := machine.Launch{Config: g.Config, Scheduling: g.Scheduling, Region: g.Region}
	if err := broker.CheckLaunch(&l); err != nil {
		return err
	}
	return a.Broker.FreeOutside(app, g.Config)
}

// HeadAnswer tells of a head.
func HeadAnswer(h *release.Head) api.Head {
	out := api.Head{ID: h.ID(), Number: h.Number, Parent: h.Parent, Release: h.Release, Counts: h.Counts, Why: h.Why,
		By: h.By, At: h.At, Paused: h.Paused, Promoted: h.Promoted}
	if out.Counts == nil {
		out.Counts = map[string]int{}
	}
	return out
}
