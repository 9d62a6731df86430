// Package releases plans and makes releases, and explains a service's state: it answers the API's questions on services
// in the types of package api. Package services keeps the services running.
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

// Releases answers the API's requests on services.
type Releases struct {
	Apps       Apps
	Namespaces Namespaces
	Catalog    Catalog
	Broker     Broker
	Directory  *find.Directory
	Self       cluster.WorkerID          // the member; "": this process is alone
	Stewards   func() []cluster.WorkerID // reachable members that may be stewards
	LostAfter  time.Duration             // as in rollout.Want
	Images     Images                    // nil: image names are not resolved
	// Agree waits until the reachable members know what this one knows; worker says that a worker has changed, too.
	Agree func(ctx context.Context, worker bool)
	Rand  io.Reader
}

// Apps is what Releases needs of apps.
type Apps interface {
	App(name string) (catalog.App, error)
}

// Namespaces is what Releases needs of namespaces.
type Namespaces interface {
	NamespaceOf(app string) (catalog.Namespace, error)
}

// Catalog is what Releases needs of the catalog's services.
type Catalog interface {
	Change(app string, want release.Change) (h *release.Head, renewed []string, err error)
	Foresee(app string, want release.Change) (catalog.Service, error)
	ForeseeSecrets(app string, values map[string]*string, by string, parent *string,
		now time.Time) (catalog.Service, []string, error)
	Releases(app string) ([]catalog.ReleaseEntry, error)
	Service(app string) (catalog.Service, bool)
	AllServices() []string
}

// Broker is what Releases needs of the broker.
type Broker interface {
	FreeOutside(app string, c *machine.Config) error
	Plan(ctx context.Context, in broker.Intent) (*broker.Plan, error)
	Rehearse(ctx context.Context) *broker.Rehearsal
	HoldTrial(ctx context.Context, s *broker.Trial, token string, ttl time.Duration) (held bool, err error)
	Release(ctx context.Context, worker cluster.WorkerID, token string) error
	Place(ctx context.Context, in broker.Intent) (*broker.Placed, error)
	Takes(ctx context.Context, in broker.Intent, id string, at cluster.WorkerID) error
}

// Asker is the caller of a request.
type Asker struct {
	Name    string // the token's name; "": none
	Deploys bool   // may deploy, so registries may be asked for images
}

// Deploy makes a release of an app, and makes it the wanted one.
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

// Change changes a service as want says, without a new release. For a rollback want.Release may be a reference as for
// Find.
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

// release returns the release of a body, with defaults and checks as for a machine's create, with image digests and
// volume ids. here lists the images resolved from this host, un the volumes still to be made.
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
			"release_command_group and release_command_timeout need a release_command, and there is none: add one, "+
				"or leave them out")
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

// onLost returns what happens to a group's machines when their worker becomes unreachable: as the group says, else as
// the app says, else "". The app's setting does not apply to a group that is single or mounts volumes, since its
// machine must not exist twice.
func onLost(app *catalog.App, g *release.Group) release.OnLost {
	switch {
	case g.OnLost != "" || g.Single || g.Config != nil && len(g.Config.Mounts) > 0:
		return g.OnLost
	case app.Disconnect == catalog.DisconnectFast:
		return release.Replace
	}
	return release.OnLost(app.Disconnect) // the other words are the same for both
}

// group fills in a group's defaults, and returns an error if it is invalid, as for a machine's create.
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

// HeadAnswer converts a head for the API.
func HeadAnswer(h *release.Head) api.Head {
	out := api.Head{ID: h.ID(), Number: h.Number, Parent: h.Parent, Release: h.Release, Counts: h.Counts, Why: h.Why,
		By: h.By, At: h.At, Paused: h.Paused, Promoted: h.Promoted}
	if out.Counts == nil {
		out.Counts = map[string]int{}
	}
	return out
}
