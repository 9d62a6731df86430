package broker

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeWorker is a worker with a real ledger and no processes.
type fakeWorker struct {
	id cluster.WorkerID
	mu sync.Mutex

	sell     *market.Seller
	rows     map[string]*machine.Machine
	hold     func(ctx context.Context) error // asked before a hold is made
	grant    func(g lifecycle.Grant) error   // asked before a grant is made
	held     int                             // times room was held
	released int                             // times it was told to give room back
	verbs    map[lifecycle.Verb]int          // carried out
	made     func(id string)                 // called before a grant is answered
	granted  []lifecycle.Grant               // in order
	quoted   []placement.Request             // in order
	lease    func(id string) (machine.Lease, bool)
	tasks    []lifecycle.Task
	volumes  []machine.Volume
}

func (w *fakeWorker) ID() cluster.WorkerID { return w.id }

func (w *fakeWorker) Record(context.Context) (cluster.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sell.Record(time.Now()), nil
}

func (w *fakeWorker) Quote(_ context.Context, r placement.Request) (market.Quote, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quoted = append(w.quoted, r)
	q := w.sell.Ask(time.Now(), r)
	if no := w.inUse(r); len(no) > 0 {
		q.Verdict = placement.Verdict{Failing: append(q.Verdict.Failing, no...)}
	}
	return q, nil
}

// inUse returns a clause for each port that another machine publishes.
func (w *fakeWorker) inUse(r placement.Request) (no []machine.Clause) {
	for _, m := range w.rows {
		if m.ID == r.Machine || m.State == machine.Destroyed {
			continue
		}
		for _, p := range r.Publish {
			if slices.ContainsFunc(m.Config.Published(), p.Overlaps) {
				no = append(no, machine.Clause{Code: placement.CodePort, Wanted: p.String() + " free", Had: m.ID})
			}
		}
	}
	return no
}

func (w *fakeWorker) Grant(_ context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	if w.grant != nil {
		if err := w.grant(g); err != nil {
			return nil, err
		}
	}
	m, err := w.make(g)
	if err == nil && w.made != nil {
		w.made(m.ID)
	}
	return m, err
}

func (w *fakeWorker) make(g lifecycle.Grant) (*machine.Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted = append(w.granted, g)
	id := g.Request.Machine
	if m := w.rows[id]; m != nil {
		return m, nil
	}
	if no := w.inUse(g.Request); len(no) > 0 {
		return nil, market.Refuse(w.sell, time.Now(), g.Request, no)
	}
	if err := w.sell.Grant(time.Now(), g.Request, g.Hold, g.Request.Start); err != nil {
		return nil, err
	}
	state := machine.Created
	if g.Request.Start {
		state = machine.Started
	}
	m := &machine.Machine{ID: id, App: g.Request.App, Name: g.Launch.Name, State: state, Region: g.Region,
		Config: g.Launch.Config, Worker: w.id, Placement: g.Placement, KeyMark: g.KeyMark}
	w.rows[id] = m
	return m, nil
}

func (w *fakeWorker) Hold(ctx context.Context, c lifecycle.HoldCommand) (time.Time, error) {
	if w.hold != nil {
		if err := w.hold(ctx); err != nil {
			return time.Time{}, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	until, err := w.sell.Hold(time.Now(), "", c.Request, c.Token, c.TTL)
	if err == nil {
		w.held++
	}
	return until, err
}

func (w *fakeWorker) Release(ctx context.Context, token string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.released++
	w.sell.Release(time.Now(), token)
	return nil
}

func (w *fakeWorker) Do(_ context.Context, c lifecycle.Command) (lifecycle.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.rows[c.Machine]
	if m == nil {
		return lifecycle.Outcome{}, fault.New(fault.NotFound, "machine_not_found", "machine not found")
	}
	w.verbs[c.Verb]++
	next := *m
	switch c.Verb {
	case lifecycle.Destroy:
		w.sell.Free(m.ID)
		next.State = machine.Destroyed
	case lifecycle.Stop:
		next.State = machine.Stopped
	case lifecycle.Start:
		next.State = machine.Started
	}
	w.rows[m.ID] = &next
	return lifecycle.Outcome{Machine: &next}, nil
}

func (w *fakeWorker) CurrentLease(_ context.Context, _, id string) (machine.Lease, error) {
	if w.lease != nil {
		if l, ok := w.lease(id); ok {
			return l, nil
		}
	}
	return machine.Lease{}, fault.New(fault.NotFound, "lease_not_found", "lease not found")
}

func (w *fakeWorker) Machines(context.Context, string, bool) ([]*machine.Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.rows)), nil
}

func (w *fakeWorker) RunningTasks(context.Context) ([]lifecycle.Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tasks, nil
}

func (w *fakeWorker) Volumes(context.Context, string) ([]machine.Volume, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.volumes, nil
}

func (w *fakeWorker) Watch(_ context.Context, _, id string, f func(*machine.Machine) bool) error {
	w.mu.Lock()
	m := w.rows[id]
	w.mu.Unlock()
	if m == nil {
		return fault.New(fault.NotFound, "machine_not_found", "machine not found")
	}
	f(m)
	return nil
}

// fakeFleet is a cluster in memory: it is all that a broker needs.
type fakeFleet struct {
	mu      sync.Mutex
	workers map[string]*fakeWorker
	ids     []string
	app     string // the id of app "a"; "": it is gone
	budget  *machine.EvictionBudget
	account *quota.Account
	reads   int      // of the view
	told    []string // machines, as they were made
	keyed   func(hash string, ask bool) (*Keyed, error)
}

func newFakeFleet(ids ...string) *fakeFleet {
	f := &fakeFleet{workers: map[string]*fakeWorker{}, ids: ids, app: "app-1"}
	for _, id := range ids {
		rec := cluster.Record{Worker: cluster.WorkerID(id), Region: "local", State: cluster.Ready, Incarnation: 1,
			Capacity: cluster.Resources{CPU: 4000, Memory: 4096, Disk: 1 << 20, Ports: 100}}
		f.workers[id] = &fakeWorker{id: rec.Worker, sell: market.NewSeller(rec), rows: map[string]*machine.Machine{},
			verbs: map[lifecycle.Verb]int{}}
	}
	return f
}

func (f *fakeFleet) broker(log Log) *Broker {
	return New(Options{Fleet: f, Directory: f, Apps: f, Policies: f, Funds: f,
		Claims: NewClaimant("", nil, NewDecider(f, f), f), Log: log, Region: "local",
		Rand: rand.NewChaCha8([32]byte{1})})
}

func launchOf(memory int) *machine.Launch {
	l := &machine.Launch{
		Config: &machine.Config{Image: machine.HostImage, Guest: &machine.Guest{CPUs: 1, MemoryMB: memory}},
	}
	l.Normalize()
	return l
}

func (f *fakeFleet) View(ctx context.Context) cluster.View {
	f.mu.Lock()
	f.reads++
	f.mu.Unlock()
	v := cluster.View{At: time.Now()}
	for _, id := range f.ids {
		rec, _ := f.workers[id].Record(ctx)
		v.Workers = append(v.Workers, rec)
	}
	return v
}

func (f *fakeFleet) Pick(context.Context, *placement.Request, *placement.Policy, int,
	func() (placement.Policy, error)) (cluster.View, int) {
	return cluster.View{}, 0
}

func (f *fakeFleet) Resolve(ctx context.Context, r placement.Request) placement.Request {
	return placement.Resolve(r, f.View(ctx), nil)
}

func (f *fakeFleet) InUse(string, []machine.Service) (host string, port int, by string) { return }

func (f *fakeFleet) Worker(id cluster.WorkerID) Worker {
	if w := f.workers[string(id)]; w != nil {
		return w
	}
	return nil
}

func (f *fakeFleet) Workers() int                             { return len(f.ids) }
func (f *fakeFleet) Regions(context.Context) []cluster.Region { return []cluster.Region{"local"} }
func (f *fakeFleet) Refused(cluster.WorkerID, cluster.Record) {}

func (f *fakeFleet) Granted(m *machine.Machine, _ *placement.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, m.ID)
}

func (f *fakeFleet) SecretsReach(string, uint64) error             { return nil }
func (f *fakeFleet) EvictionBudget(string) *machine.EvictionBudget { return f.budget }
func (f *fakeFleet) Watcher() (placement.Policy, bool)             { return placement.Policy{}, false }
func (f *fakeFleet) Price() quota.Price                            { return quota.Price{} }
func (f *fakeFleet) Shares() map[string]quota.Share                { return map[string]quota.Share{} }
func (f *fakeFleet) PolicyFor(*placement.Request) (placement.Policy, error) {
	return placement.Default(), nil
}

func (f *fakeFleet) Volumes(context.Context, string) ([]machine.Volume, error) { return nil, nil }

func (f *fakeFleet) Account(context.Context, string) (string, *quota.Account, error) {
	return "default", f.account, nil
}

func (f *fakeFleet) OpenApp(string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.app == "" {
		return "", fault.New(fault.NotFound, "app_not_found", "app not found")
	}
	return f.app, nil
}

func (f *fakeFleet) Find(_ context.Context, _, id string) (Worker, *machine.Machine, error) {
	for _, w := range f.workers {
		w.mu.Lock()
		m := w.rows[id]
		w.mu.Unlock()
		if m != nil {
			return w, m, nil
		}
	}
	return nil, nil, fault.New(fault.NotFound, "machine_not_found", "machine not found")
}

func (f *fakeFleet) Named(_ context.Context, _, name string) (string, error) {
	for _, w := range f.workers {
		w.mu.Lock()
		for _, m := range w.rows {
			if m.Name == name && m.State != machine.Destroyed {
				w.mu.Unlock()
				return m.ID, nil
			}
		}
		w.mu.Unlock()
	}
	return "", nil
}

// Gone is false: nobody tells of what is over.
func (f *fakeFleet) Gone(string) bool { return false }

// Keyed is the hook; without one nobody has told of a key.
func (f *fakeFleet) Keyed(_ context.Context, _, hash string, ask bool, _ time.Time) (*Keyed, error) {
	if f.keyed == nil {
		return nil, nil
	}
	return f.keyed(hash, ask)
}

func (f *fakeFleet) BoundKey(string, string) string                { return "" }
func (f *fakeFleet) BoundKeys(func(app, key, machine string) bool) {}

func (f *fakeFleet) Claim(_, _, _, id string) (*catalog.Claim, error) {
	return &catalog.Claim{Machine: id}, nil
}
