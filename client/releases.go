package client

import (
	"context"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
)

// ReleaseCalls are the client's calls on releases and services.
type ReleaseCalls struct{ transport }

// Deploy makes a release of an app, and makes it the wanted one.
func (c ReleaseCalls) Deploy(ctx context.Context, app string, in api.NewRelease) (made api.ReleaseMade, err error) {
	err = c.doCall(ctx, newCall(api.CreateRelease, app).withBody(in), &made)
	return made, err
}

// PlanRelease says what a Deploy would do, and whether there is room for it. Nothing changes; the app need not exist.
func (c ReleaseCalls) PlanRelease(ctx context.Context, app string, in api.NewRelease) (p api.ReleasePlan, err error) {
	err = c.doCall(ctx, newCall(api.PlanRelease, app).withBody(in), &p)
	return p, err
}

// HoldRelease plans a release, and holds room for the machines that it makes first, for a minute: send the answer's
// Held with the Deploy to use that room.
func (c ReleaseCalls) HoldRelease(ctx context.Context, app string, in api.NewRelease) (p api.ReleasePlan, err error) {
	err = c.doCall(ctx, newCall(api.HoldRelease, app).withBody(in), &p)
	return p, err
}

// Releases lists the releases of an app: the current one, then the others, newest first.
func (c ReleaseCalls) Releases(ctx context.Context, app string) ([]api.ReleaseEntry, error) {
	var list api.ReleaseList
	err := c.doCall(ctx, newCall(api.ListReleases, app), &list)
	return list.Releases, err
}

// Release returns a whole release. ref is its id, or at least the first 6 digits of it.
func (c ReleaseCalls) Release(ctx context.Context, app, ref string) (r api.Release, err error) {
	err = c.doCall(ctx, newCall(api.GetRelease, app, ref), &r)
	return r, err
}

// WhyService explains each replica of a service.
func (c ReleaseCalls) WhyService(ctx context.Context, app string) (w api.ServiceWhy, err error) {
	err = c.doCall(ctx, newCall(api.WhyService, app), &w)
	return w, err
}

// Change changes a service by the verb want.Why: scale, restart, rollback, pause, resume or promote.
func (c ReleaseCalls) Change(ctx context.Context, app string, want release.Change) (h api.RolledBack, err error) {
	op, body := api.ChangeService(&want)
	err = c.doCall(ctx, newCall(op, app).withBody(body), &h)
	return h, err
}

// PlanRebalance lists the moves that would spread a service's groups evenly.
func (c ReleaseCalls) PlanRebalance(ctx context.Context, app string) (r api.Rebalancing, err error) {
	err = c.doCall(ctx, newCall(api.PlanRebalance, app), &r)
	return r, err
}

// Rebalance makes those moves, one after another.
func (c ReleaseCalls) Rebalance(ctx context.Context, app string) (r api.Rebalancing, err error) {
	err = c.doCall(ctx, newCall(api.Rebalance, app), &r)
	return r, err
}

// Trigger runs a job of a service now.
func (c ReleaseCalls) Trigger(ctx context.Context, app string, in api.Trigger) (r api.Triggered, err error) {
	err = c.doCall(ctx, newCall(api.TriggerJob, app).withBody(in), &r)
	return r, err
}

// Service returns an app's wanted service, and its machines.
func (c ReleaseCalls) Service(ctx context.Context, app string) (s api.ServiceStatus, err error) {
	err = c.doCall(ctx, newCall(api.GetService, app), &s)
	return s, err
}
