package gateway

import (
	"context"
	"time"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// known is the fleet as a broker.Broker sees it: what is known here, and the workers themselves where they must be
// asked.
type known struct{ *directory }

// View returns what the workers last told.
func (f known) View(context.Context) cluster.View { return f.view() }

// Worker returns a worker.
func (f known) Worker(id cluster.WorkerID) broker.Worker {
	if w, there := f.worker(id); there {
		return w
	}
	return nil
}

// Workers returns how many there are.
func (f known) Workers() int { return f.fleet.Snapshot().Len() }

// Pick asks the fleet's index.
func (f known) Pick(
	_ context.Context, r *placement.Request, p *placement.Policy, n int, bind func() (placement.Policy, error),
) (cluster.View, int) {
	return f.fleet.Pick(r, p, n, bind)
}

// Resolve looks the neighbours up.
func (f known) Resolve(_ context.Context, r placement.Request) placement.Request {
	return f.fleet.Resolve(r)
}

// InUse looks in the fleet's picture.
func (f known) InUse(app string, services []machine.Service) (host string, port int, by string) {
	o, _ := f.fleet.Snapshot().InUse(app, services)
	return o.Host, o.Port, o.App
}

// Regions lists the regions that have workers.
func (f known) Regions(context.Context) []cluster.Region { return f.fleet.Snapshot().Regions() }

// Refused enters the record.
func (f known) Refused(w cluster.WorkerID, rec cluster.Record) { f.fleet.Refused(w, rec) }

// Granted enters the machine.
func (f known) Granted(m *machine.Machine, r *placement.Request) { f.fleet.Granted(m, r) }

// Find asks the worker that has the machine. Something is made where it is NotFound, so one worker that could not be
// asked is enough for Unavailable, for however long.
func (f known) Find(ctx context.Context, app, id string) (broker.Worker, *machine.Machine, error) {
	x, silent, err := f.findSurely(ctx, app, id)
	if len(silent) > 0 {
		err = silent[0].err
	}
	return x.worker, x.machine, err
}

// Named looks the name up.
func (f known) Named(ctx context.Context, app, name string) (string, error) {
	return f.holder(ctx, app, name), nil
}

// Gone looks the machine up.
func (f known) Gone(machine string) bool { return f.fleet.Gone(machine) }

// Keyed looks the key up, and asks the workers where that is wanted: they have not told of what was made last, nor of
// what is over.
func (f known) Keyed(ctx context.Context, app, hash string, ask bool, drawn time.Time) (*broker.Keyed, error) {
	if m, there := f.fleet.Snapshot().Keyed(hash); there && m.App == app {
		return &broker.Keyed{Machine: m.ID, Mark: m.KeyMark}, nil
	}
	if !ask {
		return nil, nil
	}
	workers := f.workers()
	answers, errs := fanOut(workers, func(w Worker) (*machine.Machine, error) { return w.Keyed(ctx, app, hash) })
	var silent []unanswered
	for i, err := range errs {
		f.contact.Called(workers[i].ID(), !couldNotAsk(err))
		switch {
		case err == nil:
			return &broker.Keyed{Machine: answers[i].ID, Mark: answers[i].KeyMark}, nil
		case couldNotAsk(err) && !f.deadBefore(workers[i].ID(), drawn):
			silent = append(silent, unanswered{workers[i].ID(), err})
		}
	}
	if len(silent) > 0 {
		if err := f.nowhere(machineMissing, silent); !fault.Is(err, fault.NotFound) {
			return nil, err
		}
	}
	return nil, nil
}

// deadBefore reports whether a worker was taken for dead before a time, and has not been heard since.
func (f known) deadBefore(id cluster.WorkerID, t time.Time) bool {
	x, there := f.fleet.Snapshot().Worker(id)
	return there && !t.IsZero() && !x.Reachable() && !x.Since.IsZero() && x.Since.Before(t)
}

// Volumes asks the workers that have any.
func (f known) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	list, silent, err := f.volumes(ctx, app)
	if len(silent) > 0 {
		err = f.nowhere(volumeMissing, silent)
	}
	return list, err
}

// rows is the catalog, as a broker.Broker reads it.
type rows struct {
	*chosen
	catalog  *catalog.Catalog
	accounts *accounts
}

// OpenApp looks an app up.
func (c rows) OpenApp(name string) (string, error) {
	app, err := c.catalog.OpenApp(name)
	return app.ID, err
}

// EvictionBudget looks up what was set for the app.
func (c rows) EvictionBudget(name string) *machine.EvictionBudget {
	app, _ := c.catalog.App(name) // of one that is gone the request is refused elsewhere
	return app.Budget
}

// SecretsReach compares versions.
func (c rows) SecretsReach(app string, version uint64) error {
	return c.catalog.SecretsReach(app, version)
}

// PolicyFor binds a policy.
func (c rows) PolicyFor(r *placement.Request) (placement.Policy, error) { return c.policyFor(r) }

// Watcher binds the shadow.
func (c rows) Watcher() (placement.Policy, bool) { return c.watcher() }

// Account adds up what the workers have told of an app's namespace.
func (c rows) Account(_ context.Context, app string) (string, *quota.Account, error) {
	space, err := c.catalog.NamespaceOf(app)
	if err != nil || space.Budget == nil && len(space.Max) == 0 {
		return space.Name, nil, err
	}
	a := c.accounts.account(space)
	return space.Name, &a, nil
}

// Price is what a namespace pays.
func (c rows) Price() quota.Price { return c.catalog.Price() }

// Shares lists the weights.
func (c rows) Shares() map[string]quota.Share {
	shares := map[string]quota.Share{}
	for _, n := range c.catalog.Namespaces() {
		shares[n.Name] = quota.Share{Weight: n.Weight}
	}
	return shares
}

// chosen gives the policies that were chosen for requests.
type chosen struct {
	catalog chosenCatalog
	policy  placement.Policy // ranks where nobody chose another; the zero value is the catalog's default
}

// chosenCatalog is what it needs of the catalog.
type chosenCatalog interface {
	App(name string) (catalog.App, error)
	PolicyChoice() catalog.PolicyChoice
	BoundPolicy(name string) (placement.Policy, error)
}

// policyFor gives the policy of a request: the launch's own, else its app's, else the default. It belongs to the
// goroutine that asked for it.
func (c *chosen) policyFor(r *placement.Request) (placement.Policy, error) {
	name := r.Scheduling.Policy
	if name == "" {
		app, _ := c.catalog.App(r.App) // of one that is gone the request is refused elsewhere
		name = app.Policy
	}
	if name == "" && c.policy.Name != "" {
		return c.policy, nil // the one it was made with
	}
	if name == "" {
		name = c.catalog.PolicyChoice().Default
	}
	return c.catalog.BoundPolicy(name)
}

// watcher gives the policy that only watches; false when there is none. It places nothing.
func (c *chosen) watcher() (placement.Policy, bool) {
	name := c.catalog.PolicyChoice().Shadow
	if name == "" {
		return placement.Policy{}, false
	}
	p, err := c.catalog.BoundPolicy(name)
	return p, err == nil // it may have been taken away meanwhile
}
