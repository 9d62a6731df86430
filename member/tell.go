package member

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip"
)

// A Member is its own worker's observer: what the worker tells goes into the fleet at once, and to the other members
// soon after.

// tellEvery bounds how often the others are told what the worker has: each telling is signed and sent to all.
const tellEvery = 10 * time.Millisecond

// reporter holds the worker's newest record until the others are told of it.
type reporter struct {
	mu   sync.Mutex
	rec  *cluster.Record // nil: the others have been told
	wake chan struct{}

	telling sync.Mutex // held while rec is taken and told
}

func (t *reporter) putRecord(r cluster.Record) {
	t.mu.Lock()
	t.rec = &r
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *reporter) takeRecord() (r *cluster.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, t.rec = t.rec, nil
	return r
}

// tellRecords tells the others what the worker has until ctx ends.
func (m *Member) tellRecords(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.tell.wake:
		}
		m.tellRecord()
		select {
		case <-ctx.Done():
			return
		case <-time.After(tellEvery):
		}
	}
}

// tellRecord tells the others the worker's newest record, where they have not been told.
func (m *Member) tellRecord() {
	m.tell.telling.Lock() // or who comes second would find nothing to tell that is not told yet
	defer m.tell.telling.Unlock()
	if r := m.tell.takeRecord(); r != nil {
		m.logUnreported("record", m.cluster.Announce(*r))
	}
}

// Worker is told by the member's own worker when its record changes.
func (m *Member) Worker(r cluster.Record) {
	if m.begun.Load() {
		m.own.Worker(r)
		m.tell.putRecord(r)
	}
}

// Machine is told by the member's own worker when a machine changes.
func (m *Member) Machine(x *machine.Machine) {
	if !m.begun.Load() {
		return
	}
	m.telling.Lock()
	defer m.telling.Unlock()
	f := m.own.Enter(x)
	if x.State == machine.Destroyed {
		m.logUnreported("machine", m.cluster.RemoveMachine(x.ID))
		return
	}
	m.logUnreported("machine", m.cluster.AnnounceMachine(summaryOf(f)))
}

// Load is told by the proxy how many requests or connections it has under way at a machine of the member's own worker,
// whenever that changes. It may be called from many goroutines, and waits for nobody. See fleet.Loads.
func (m *Member) Load(id string, n int) { m.loads.Set(id, n) }

// tellLoads enters loads in a member's fleet, and tells the others.
func tellLoads(m *Member, list []fleet.Load) {
	if !m.begun.Load() {
		return
	}
	m.telling.Lock()
	defer m.telling.Unlock()
	for _, f := range m.own.Load(list) {
		m.logUnreported("machine", m.cluster.AnnounceMachine(summaryOf(f)))
	}
}

// CPU is told how much of their CPUs machines of the member's own worker use.
func (m *Member) CPU(list []fleet.CPU) {
	if !m.begun.Load() {
		return
	}
	m.telling.Lock()
	defer m.telling.Unlock()
	for _, f := range m.own.CPU(list) {
		m.logUnreported("machine", m.cluster.AnnounceMachine(summaryOf(f)))
	}
}

// Gone is told by the member's own worker when a machine is no longer kept.
func (m *Member) Gone(id string) {
	if m.begun.Load() {
		m.telling.Lock()
		defer m.telling.Unlock()
		m.own.Gone(id)
		m.logUnreported("machine", m.cluster.RemoveMachine(id))
	}
}

// logUnreported logs what could not be told: others then see what was, until it is told again whole at the next start.
func (m *Member) logUnreported(what string, err error) {
	if err != nil && !fault.Is(err, fault.NotFound) {
		m.o.Log.Error("the cluster could not be told", "of", what, "err", err)
	}
}

// summaryOf returns what the others are told of a machine.
func summaryOf(f fleet.Machine) gossip.Machine {
	return gossip.Machine{ID: f.ID, App: f.App, Name: f.Name, State: string(f.State), Instance: f.Instance,
		UpdatedAt: f.Updated, Worker: f.Worker, Region: f.Region, Apart: f.Apart, KeyMark: f.KeyMark,
		Replica: f.Replica, Ready: f.Ready, Died: f.Died, Rests: f.Rests, Loops: f.Loops,
		Deaths: f.Deaths, Evicted: f.Evicted, Ended: f.Ended, Unfit: f.Unfit, Missed: f.Missed, Exit: f.Exit,
		Services: f.Services, Failing: f.Failing, Cordoned: f.Cordoned, From: f.From, Load: f.Load, CPU: f.CPU}
}
