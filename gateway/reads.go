package gateway

import (
	"context"
	"slices"
	"sync"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/placement/index"
	"github.com/soukhq/souk/quota"
)

// asked is the fleet as its workers are asked: what a broker.Broker knows of it.
type asked struct {
	*directory
	index *candidates
}

// View asks all workers.
func (f asked) View(ctx context.Context) cluster.View { return f.view(ctx) }

// Worker looks for a worker.
func (f asked) Worker(id cluster.WorkerID) broker.Worker {
	for _, w := range f.workers() {
		if w.ID() == id {
			return w
		}
	}
	return nil
}

// Workers counts them.
func (f asked) Workers() int { return len(f.workers()) }

// Pick asks the gateway's index, which is brought up to date from a view.
func (f asked) Pick(ctx context.Context, r *placement.Request, p *placement.Policy, n int, bind func() (placement.Policy, error)) (cluster.View, int) {
	if len(f.workers()) < indexedFrom {
		return cluster.View{}, 0
	}
	return f.index.pick(r, f.view(ctx), p, n, bind)
}

// Resolve lists all machines where the request names one.
func (f asked) Resolve(ctx context.Context, r placement.Request) placement.Request {
	if len(r.Scheduling.Affinity) == 0 && len(r.Scheduling.Spread) == 0 {
		return r
	}
	var homes map[string]cluster.WorkerID
	return placement.Resolve(r, f.view(ctx), func(id string) cluster.WorkerID {
		if homes == nil {
			homes = map[string]cluster.WorkerID{}
			workers := f.workers()
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
	for _, w := range f.view(ctx).Workers {
		out = append(out, w.Region)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Refused changes nothing: each view is asked for anew.
func (f asked) Refused(cluster.WorkerID, cluster.Record) {}

// Granted remembers a machine until its worker has told of it.
func (f asked) Granted(m *machine.Machine, _ *placement.Request) { f.recent.add(m) }

// Find asks one worker after the other.
func (f asked) Find(ctx context.Context, app, id string) (broker.Worker, *machine.Machine, error) {
	x, err := f.find(ctx, app, id)
	return x.worker, x.machine, err
}

// Named looks for the name on all workers. Those far away are as they last told.
func (f asked) Named(ctx context.Context, app, name string) (string, error) {
	names, err := f.names(ctx, app)
	if err != nil {
		return "", err
	}
	if id := names[name]; id != "" {
		return id, nil
	}
	id, made := f.recent.named(app, name)
	if !made {
		return "", nil
	}
	// Its worker has not told of it yet, or has told that it is gone: only the worker knows which.
	if x, err := f.find(ctx, app, id); err != nil || x.machine.State == machine.Destroyed {
		return "", nil //nolint:nilerr // who cannot be asked has told that it is gone
	}
	return id, nil
}

// Volumes asks all workers.
func (f asked) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	return f.volumes(ctx, app)
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
func (c rows) Account(ctx context.Context, app string) (string, *quota.Account, error) {
	space, err := c.catalog.NamespaceOf(app)
	if err != nil || space.Budget == nil {
		return space.Name, nil, err
	}
	a := c.accounts.account(ctx, space)
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

// Bounds of the gateway's index.
const (
	indexedFrom  = 300 // workers; of fewer all are ranked, which costs less than to keep an index up to date
	policiesMost = 16  // policies that are kept bound
)

// candidates is the gateway's index of its workers. It is brought up to date from the view of each purchase.
type candidates struct {
	mu    sync.Mutex
	index *index.Index
	// Policies stay bound, since the index knows them by their address. They are called with mu held: one with
	// expressions belongs to one goroutine at a time.
	bound map[boundKey]*placement.Policy
}

type boundKey struct {
	name    string
	version int
}

func (c *candidates) pick(req *placement.Request, view cluster.View, p *placement.Policy, n int, bind func() (placement.Policy, error)) (few cluster.View, looked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.policy(boundKey{p.Name, p.Version}, bind)
	if own == nil {
		return few, 0
	}
	c.update(view)
	best, looked := c.index.PickN(req, own, n, nil, nil)
	chosen := make(map[cluster.WorkerID]bool, len(best))
	for _, b := range best {
		chosen[b.Worker] = true
	}
	few.At = view.At
	for i := range view.Workers {
		if w := &view.Workers[i]; chosen[w.Worker] {
			if rec, _ := c.index.Record(w.Worker); rec.Newer(*w) { // another purchase has seen it since
				w = rec // what it points to does not change: nothing is entered but whole records
			}
			few.Workers = append(few.Workers, *w)
		}
	}
	return few, looked
}

// policy gives the index's own binding of a policy; nil when another version has come into force meanwhile.
func (c *candidates) policy(key boundKey, bind func() (placement.Policy, error)) *placement.Policy {
	if p := c.bound[key]; p != nil {
		return p
	}
	p, err := bind()
	if err != nil || (boundKey{p.Name, p.Version}) != key {
		return nil
	}
	if c.bound == nil || len(c.bound) >= policiesMost {
		c.bound = map[boundKey]*placement.Policy{}
	}
	c.bound[key] = &p
	return &p
}

// update takes in a view: what is newer, and who is gone.
func (c *candidates) update(view cluster.View) {
	if c.index == nil {
		c.index = index.New()
	}
	for i := range view.Workers {
		c.index.Update(view.Workers[i])
	}
	if c.index.Len() == len(view.Workers) {
		return
	}
	there := make(map[cluster.WorkerID]bool, len(view.Workers))
	for i := range view.Workers {
		there[view.Workers[i].Worker] = true
	}
	var gone []cluster.WorkerID
	c.index.Each(func(w *cluster.Record) bool {
		if !there[w.Worker] {
			gone = append(gone, w.Worker)
		}
		return true
	})
	for _, id := range gone {
		c.index.Remove(id)
	}
}
