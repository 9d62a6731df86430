package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/quota"
)

// view is the fleet as it says of itself now. A worker that does not answer is not in it.
func (g *Gateway) view(ctx context.Context) cluster.View {
	workers := g.workers()
	records, errs := fanOut(workers, func(w Worker) (cluster.Record, error) { return w.Record(ctx) })
	view := cluster.View{At: time.Now()}
	for i := range workers {
		if errs[i] == nil {
			view.Workers = append(view.Workers, records[i])
		}
	}
	return view
}

// asked is the fleet as its workers are asked: what a broker.Broker knows of it.
type asked struct{ g *Gateway }

// View asks all workers.
func (f asked) View(ctx context.Context) cluster.View { return f.g.view(ctx) }

// Worker looks for a worker.
func (f asked) Worker(id cluster.WorkerID) broker.Worker {
	for _, w := range f.g.workers() {
		if w.ID() == id {
			return w
		}
	}
	return nil
}

// Workers counts them.
func (f asked) Workers() int { return len(f.g.workers()) }

// Pick asks the gateway's index, which is brought up to date from a view.
func (f asked) Pick(ctx context.Context, r *placement.Request, p *placement.Policy, n int, bind func() (placement.Policy, error)) (cluster.View, int) {
	if len(f.g.workers()) < indexedFrom {
		return cluster.View{}, 0
	}
	return f.g.index.pick(r, f.g.view(ctx), p, n, bind)
}

// Resolve lists all machines where the request names one.
func (f asked) Resolve(ctx context.Context, r placement.Request) placement.Request {
	if len(r.Scheduling.Affinity) == 0 && len(r.Scheduling.Spread) == 0 {
		return r
	}
	var homes map[string]cluster.WorkerID
	return placement.Resolve(r, f.g.view(ctx), func(id string) cluster.WorkerID {
		if homes == nil {
			homes = map[string]cluster.WorkerID{}
			workers := f.g.workers()
			lists, _ := fanOut(workers, func(w Worker) ([]*machine.Machine, error) { return w.Machines(ctx, "", false) })
			for i, list := range lists { // of a worker that does not answer: none, as nobody knows where its machines are
				for _, m := range list {
					homes[m.ID] = workers[i].ID()
				}
			}
		}
		return homes[id]
	})
}

// Regions lists the regions that have workers.
func (f asked) Regions(ctx context.Context) []cluster.Region {
	var out []cluster.Region
	for _, w := range f.g.view(ctx).Workers {
		out = append(out, w.Region)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Refused changes nothing: each view is asked for anew.
func (f asked) Refused(cluster.WorkerID, cluster.Record) {}

// Granted remembers a machine until its worker has told of it.
func (f asked) Granted(m *machine.Machine, _ *placement.Request) { f.g.recent.add(m) }

// Find asks one worker after the other.
func (f asked) Find(ctx context.Context, app, id string) (broker.Worker, *machine.Machine, error) {
	x, err := f.g.find(ctx, app, id)
	return x.worker, x.machine, err
}

// Named looks for the name on all workers. Those far away are as they last told.
func (f asked) Named(ctx context.Context, app, name string) (string, error) {
	names, err := f.g.names(ctx, app)
	if err != nil {
		return "", err
	}
	if id := names[name]; id != "" {
		return id, nil
	}
	id, made := f.g.recent.named(app, name)
	if !made {
		return "", nil
	}
	// Its worker has not told of it yet, or has told that it is gone: only the worker knows which.
	if x, err := f.g.find(ctx, app, id); err != nil || x.machine.State == machine.Destroyed {
		return "", nil //nolint:nilerr // who cannot be asked has told that it is gone
	}
	return id, nil
}

// Volumes asks all workers.
func (f asked) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	return f.g.volumes(ctx, app)
}

// rows is the catalog, as a broker.Broker reads it.
type rows struct{ g *Gateway }

// OpenApp looks an app up.
func (c rows) OpenApp(name string) (string, error) {
	app, err := c.g.catalog.OpenApp(name)
	return app.ID, err
}

// EvictionBudget looks up what was set for the app.
func (c rows) EvictionBudget(name string) *machine.EvictionBudget {
	app, _ := c.g.catalog.App(name) // of one that is gone the request is refused elsewhere
	return app.Budget
}

// SecretsReach compares versions.
func (c rows) SecretsReach(app string, version uint64) error {
	return c.g.catalog.SecretsReach(app, version)
}

// PolicyFor binds a policy.
func (c rows) PolicyFor(r *placement.Request) (placement.Policy, error) { return c.g.policyFor(r) }

// Watcher binds the shadow.
func (c rows) Watcher() (placement.Policy, bool) { return c.g.watcher() }

// Account adds up what the workers have told of an app's namespace.
func (c rows) Account(ctx context.Context, app string) (string, *quota.Account, error) {
	space, err := c.g.catalog.NamespaceOf(app)
	if err != nil || space.Budget == nil {
		return space.Name, nil, err
	}
	a := c.g.account(ctx, space)
	return space.Name, &a, nil
}

// Price is what a namespace pays.
func (c rows) Price() quota.Price { return c.g.catalog.Price() }

// Shares lists the weights.
func (c rows) Shares() map[string]quota.Share {
	shares := map[string]quota.Share{}
	for _, n := range c.g.catalog.Namespaces() {
		shares[n.Name] = quota.Share{Weight: n.Weight}
	}
	return shares
}
