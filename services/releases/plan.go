package releases

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/store/catalog"
)

// Plan says what a new release would do, and whether there is room for its first step. hold asks workers to hold that
// room for a while; without it nothing changes. The app need not exist.
func (a *Releases) Plan(ctx context.Context, app *catalog.App, in *api.NewRelease, by Asker,
	hold bool) (out api.ReleasePlan, err error) {
	made, un, here, err := a.release(ctx, app, in, by)
	if err != nil {
		return out, err
	}
	foresee := func(made *release.Release) (*trial, error) {
		s, err := a.Catalog.Foresee(app.Name, release.Change{Why: release.WhyDeploy, New: made, Parent: in.Parent,
			By: by.Name, At: time.Now()})
		if err != nil {
			return nil, err
		}
		return a.try(ctx, &s, un), nil
	}
	t, err := foresee(made)
	if err != nil {
		return out, err
	}
	held := (*release.Booking)(nil)
	for tries := 1; hold && t.fits() == api.FitsNow; tries++ {
		if held = a.hold(ctx, t); t.fits() == api.FitsNow || tries == holdTries {
			break
		}
		if t, err = foresee(made); err != nil { // again, with the refusing worker's newer record
			return out, err
		}
	}
	out = t.answer(app.Name)
	out.Held, out.ImagesHere, out.Volumes = held, here, un.plan()
	out.Warnings = made.Warnings(app.Name)
	if out.Fits == api.FitsLater {
		out.Help = append(out.Help, help(made, t, foresee)...)
	}
	return out, nil
}

// PlanSecrets says what setting secrets would do to the machines of a service. It changes nothing.
func (a *Releases) PlanSecrets(ctx context.Context, app string, in *api.SecretsRoll,
	by string) (out api.ReleasePlan, err error) {
	s, groups, err := a.Catalog.ForeseeSecrets(app, in.Values, by, in.Parent, time.Now())
	switch {
	case err != nil:
		return out, err
	case len(groups) == 0:
		return api.ReleasePlan{App: app, Fits: api.FitsNow, Help: []api.PlanHelp{}, Groups: []api.PlannedGroup{}}, nil
	}
	return a.try(ctx, &s, nil).answer(app), nil
}

func (t *trial) answer(app string) api.ReleasePlan {
	out := api.ReleasePlan{App: app, Changes: t.plan.Changes(), Fits: t.fits(), Credits: t.cost, Help: []api.PlanHelp{},
		Groups: []api.PlannedGroup{}, Jobs: append([]string{}, t.plan.Jobs...), Command: t.plan.Command}
	why := t.runs.why
	for i := range t.plan.Groups {
		g := &t.plan.Groups[i]
		if g.Group != nil && g.Group.Cron != nil && len(g.Replicas) == 0 {
			continue
		}
		x := t.groups[g.Name]
		if x == nil {
			x = &groupTrial{fitting: fitting{fits: api.FitsNow}}
		}
		a := api.PlannedGroup{Name: g.Name, Strategy: g.Strategy, Order: g.Order, Wanted: g.Wanted, There: g.Now,
			Surge: g.Surge(), Canary: g.Canary, First: x.news + x.beside,
			Placed: x.newsPlaced + x.besidePlaced, Evicts: x.evicts,
			Fits: x.fits, Why: x.why,
			Failing: append([]decision.Group{}, x.failing...), Replicas: []api.PlannedReplica{}}
		for _, r := range g.Replicas {
			b := api.PlannedReplica{Index: r.Slot.Index, Does: r.Does, Machine: r.Machine, Worker: r.Worker, Why: r.Why}
			if to := t.made[r.Slot]; to != nil && r.Does != release.Keep && r.Does != release.Destroy {
				b.To = to.Worker
			}
			a.Replicas = append(a.Replicas, b)
		}
		if x.fits != api.FitsNow {
			why = append(why, fmt.Sprintf("%d of the %d machines that group %s makes first have room: %s", a.Placed,
				a.First, g.Name, x.why))
		}
		out.Groups = append(out.Groups, a)
	}
	out.Why = strings.Join(why, "; and ")
	return out
}
