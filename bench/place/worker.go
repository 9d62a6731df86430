package place

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// seller is a worker without a journal and without a runtime: its ledger is a real one, and a machine is started once
// it is granted. It updates the fleet before it answers, as a worker does. It lacks methods that placements do not
// need: a call of the embedded nil interface would panic.
type seller struct {
	find.Worker
	id   cluster.WorkerID
	mu   sync.Mutex
	sell *market.Seller
	own  *fleet.Own
	last string // id of an instance, each above the one before
	seen int64  // calls that a create must not make
}

func newSeller(rec cluster.Record, f *fleet.Fleet) *seller {
	return &seller{id: rec.Worker, sell: market.NewSeller(rec), own: f.Own(rec.Worker)}
}

// ID names the worker.
func (s *seller) ID() cluster.WorkerID { return s.id }

// Record returns what the worker says of itself.
func (s *seller) Record(context.Context) (cluster.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	return s.sell.Record(time.Now()), nil
}

// Machines counts a call that a placement must not make.
func (s *seller) Machines(context.Context, string, bool) ([]*machine.Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	return nil, nil
}

// Quote returns what Grant would say.
func (s *seller) Quote(_ context.Context, r placement.Request) (market.Quote, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	return s.sell.Ask(time.Now(), r), nil
}

// Grant makes a machine that is started at once.
func (s *seller) Grant(_ context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if err := s.sell.Grant(now, g.Request, g.Hold, g.Request.Start); err != nil {
		return nil, err
	}
	at := now.UTC().Format(time.RFC3339)
	s.last = machine.NextULID(s.last, now, zeros{})
	m := &machine.Machine{ID: g.Request.Machine, App: g.Request.App, Name: g.Launch.Name, State: machine.Started,
		Region: g.Region, InstanceID: s.last,
		Version: s.last, CreatedAt: at, UpdatedAt: at, Config: g.Launch.Config, HostStatus: "ok", Worker: s.id,
		Placement: g.Placement,
		Events:    []machine.Event{}}
	s.own.Worker(s.sell.Record(now))
	s.own.Machine(m)
	return m, nil
}

// Watch reports no change: a placement that was answered late asks whether the machine was removed since, and nobody
// removes one here.
func (s *seller) Watch(context.Context, string, string, func(*machine.Machine) bool) error { return nil }

// CurrentLease returns that there is no lease.
func (s *seller) CurrentLease(context.Context, string, string) (machine.Lease, error) {
	return machine.Lease{}, fault.New(fault.NotFound, lifecycle.CodeLeaseNotFound, "lease not found")
}

// endMachine frees a machine's resources.
func (s *seller) endMachine(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sell.Free(id)
	s.own.Worker(s.sell.Record(time.Now()))
	s.own.Gone(id)
}

// zeros is a random source of zeros: instance ids still differ by time and count.
type zeros struct{}

func (zeros) Uint64() uint64 { return 0 }
