package member

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip/gossiptest"
	"github.com/soukhq/souk/mesh/pki"
)

// A probe that is under way when memberlist is shut down waits for its answer yet, for seconds on a slow host.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// stub is a worker with some machines, that counts what it is asked. What no test asks is not there, and panics.
type stub struct {
	Worker
	id cluster.WorkerID

	mu       sync.Mutex
	attrs    cluster.Attributes
	machines []*machine.Machine
	asked    map[string]int
	fails    error // of Machines
}

func (s *stub) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[what]++
}

func (s *stub) ID() cluster.WorkerID { return s.id }

func (s *stub) Record(context.Context) (cluster.Record, error) {
	return cluster.Record{Worker: s.id, Region: "local", State: cluster.Ready, Incarnation: 1,
		Capacity: cluster.Resources{CPU: 8000, Memory: 1024}, Attributes: s.attrs}, nil
}

func (s *stub) Machine(_ context.Context, app, id string) (*machine.Machine, error) {
	s.count("machine")
	for _, m := range s.machines {
		if m.App == app && m.ID == id {
			return m, nil
		}
	}
	return nil, fault.New(fault.NotFound, "machine_not_found", "machine not found")
}

func (s *stub) Machines(_ context.Context, app string, _ bool) ([]*machine.Machine, error) {
	s.count("machines")
	if s.fails != nil {
		return nil, s.fails
	}
	var out []*machine.Machine
	for _, m := range s.machines {
		if app == "" || m.App == app {
			out = append(out, m)
		}
	}
	return out, nil
}

func (s *stub) Volumes(context.Context, string) ([]machine.Volume, error) {
	s.count("volumes")
	return []machine.Volume{{ID: "vol_1"}}, nil
}

func (s *stub) Grant(_ context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	s.count("grant")
	return &machine.Machine{ID: g.Request.Machine}, nil
}

func (s *stub) Do(context.Context, lifecycle.Command) (lifecycle.Outcome, error) {
	s.count("do")
	return lifecycle.Outcome{}, nil
}

func (s *stub) Events(ctx context.Context, _ string, f func(machine.EventOf) error) error {
	s.count("events")
	if err := f(machine.EventOf{}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// at is a member that a test runs, with its worker.
type at struct {
	*Member
	w    *stub
	dir  string
	stop func() // nil: it does not run
}

// town is members that share a CA, which is in the first one's directory.
type town struct {
	t   *testing.T
	dir string
	ca  *pki.CA
	all []*at
}

func newTown(t *testing.T) *town {
	t.Helper()
	return newTownOf(t, time.Now())
}

// newTownOf makes one whose CA was made at that time.
func newTownOf(t *testing.T, made time.Time) *town {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.Init(filepath.Join(dir, "m1", CADir), made)
	if err != nil {
		t.Fatal(err)
	}
	return &town{t: t, dir: dir, ca: ca}
}

// add makes a member with a worker that has these machines, and runs it.
func (x *town) add(id string, machines ...*machine.Machine) *at {
	x.t.Helper()
	a := &at{dir: filepath.Join(x.dir, id), w: &stub{id: cluster.WorkerID(id), machines: machines,
		asked: map[string]int{}}}
	roles := []pki.Role{pki.Gateway, pki.Worker}
	if id == "m1" {
		roles = append(roles, pki.Issuer)
	}
	if err := x.ca.IssueTo(filepath.Join(a.dir, IdentityDir), pki.Name{ID: id, Roles: roles}, time.Now()); err != nil {
		x.t.Fatal(err)
	}
	x.all = append(x.all, a)
	x.t.Cleanup(a.end)
	x.run(a)
	return a
}

func (a *at) end() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// run starts a member that does not run.
func (x *town) run(a *at) {
	x.t.Helper()
	var peers []string
	for _, o := range x.all {
		if o != a && o.stop != nil {
			peers = append(peers, o.GossipAddress())
		}
	}
	var err error
	if a.Member, err = New(Options{Dir: a.dir, Region: "local", Wire: "127.0.0.1:0", Gossip: "127.0.0.1:0",
		Peers: peers, Knobs: gossiptest.Fast()}); err != nil {
		x.t.Fatal(err)
	}
	if err := a.Attach(x.t.Context(), a.w); err != nil {
		x.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	a.stop = func() {
		cancel()
		if err := <-done; err != nil {
			x.t.Error(err)
		}
		for _, f := range a.Others() {
			f.Close()
		}
	}
}

// far gives what a member has of another's worker.
func (a *at) far(id cluster.WorkerID) *Far {
	for _, f := range a.Others() {
		if f.id == id {
			return f
		}
	}
	return nil
}

// unheard reports whether a member counts as gone, also in the fleet.
func (a *at) unheard(id cluster.WorkerID) bool {
	w, known := a.fleet.Snapshot().Worker(id)
	return known && w.State == cluster.MemberDead && a.stateOf(id) == cluster.MemberDead
}

// meet waits until all that run know the same, and each other's workers.
func (x *town) meet() {
	x.t.Helper()
	waittest.Until(x.t, "all members know the same", func() bool {
		var root uint64
		running := 0
		for _, a := range x.all {
			if a.stop != nil {
				running++
			}
		}
		for _, a := range x.all {
			if a.stop == nil {
				continue
			}
			alive := 0
			for _, m := range a.Members() {
				if m.State == cluster.MemberAlive {
					alive++
				}
			}
			mine := a.cluster.Root()
			if alive != running || root != 0 && mine != root || a.fleet.Snapshot().Ready() < running {
				return false
			}
			root = mine
		}
		return true
	})
}

func started(app, id, name string, worker cluster.WorkerID, port int) *machine.Machine {
	c := &machine.Config{}
	if port > 0 {
		c.Services = []machine.Service{{InternalPort: port}}
	}
	return &machine.Machine{ID: id, App: app, Name: name, State: machine.Started, InstanceID: "i-" + id,
		Region: "local", Worker: worker, Config: c,
		UpdatedAt: time.Now().UTC().Format(time.RFC3339)}
}
