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

// A Member is its own worker's observer: the worker's news goes into the fleet at once, and to the other members soon
// after.

// How often the worker's record is sent: each time it is signed, sent to all, and verified by all. What tasks use
// changes with each of them, and is of use to nobody for longer than they run.
const (
	tellEvery    = 10 * time.Millisecond
	tellUseEvery = 100 * time.Millisecond // if nothing but what is used has changed
)

// reporter holds the worker's newest record until it is sent to the others.
type reporter struct {
	mu     sync.Mutex
	rec    *cluster.Record // nil: sent already
	sent   cluster.Record  // the last one that was sent
	sentAt time.Time
	wake   chan struct{}

	telling sync.Mutex // held while rec is taken and sent
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
	if r, t.rec = t.rec, nil; r != nil {
		t.sent, t.sentAt = *r, time.Now()
	}
	return r
}

// waitTime returns how long the newest record waits to be sent.
func (t *reporter) waitTime() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rec == nil || !t.sent.SameButUse(t.rec) {
		return 0
	}
	return time.Until(t.sentAt.Add(tellUseEvery))
}

// tellRecords sends the worker's records to the others until ctx ends.
func (m *Member) tellRecords(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.tell.wake:
		}
		for wait := m.tell.waitTime(); wait > 0; wait = m.tell.waitTime() {
			select {
			case <-ctx.Done():
				return
			case <-m.tell.wake: // perhaps more than use has changed
			case <-time.After(wait):
			}
		}
		m.tellRecord()
		select {
		case <-ctx.Done():
			return
		case <-time.After(tellEvery):
		}
	}
}

// tellRecord sends the worker's newest record to the others, unless it was sent.
func (m *Member) tellRecord() {
	m.tell.telling.Lock() // otherwise a concurrent caller could return before the record is sent
	defer m.tell.telling.Unlock()
	if r := m.tell.takeRecord(); r != nil {
		m.logUnreported("record", m.cluster.Announce(*r))
	}
}

// Worker is called by the member's own worker when its record changes.
func (m *Member) Worker(r cluster.Record) {
	if m.begun.Load() {
		m.own.Worker(r)
		m.tell.putRecord(r)
	}
}

// Machine is called by the member's own worker when a machine changes.
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

// Load is called by the proxy when the number of requests or connections at a machine of the member's own worker
// changes. It may be called from many goroutines, and does not block. See fleet.Loads.
func (m *Member) Load(id string, n int) { m.loads.Set(id, n) }

// tellLoads enters loads in a member's fleet, and sends them to the others.
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

// CPU is called with the CPU use of machines of the member's own worker.
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

// Gone is called by the member's own worker when it no longer keeps a machine.
func (m *Member) Gone(id string) {
	if m.begun.Load() {
		m.telling.Lock()
		defer m.telling.Unlock()
		m.own.Gone(id)
		m.logUnreported("machine", m.cluster.RemoveMachine(id))
	}
}

// logUnreported logs news that could not be sent: others then see the old state, until the next start sends everything
// again.
func (m *Member) logUnreported(what string, err error) {
	if err != nil && !fault.Is(err, fault.NotFound) {
		m.o.Log.Error("the cluster could not be told", "of", what, "err", err)
	}
}

// summaryOf returns a machine as it is sent to the others.
func summaryOf(f fleet.Machine) gossip.Machine {
	return gossip.Machine{ID: f.ID, App: f.App, Name: f.Name, State: string(f.State), Instance: f.Instance,
		UpdatedAt: f.Updated, Worker: f.Worker, Region: f.Region, Apart: f.Apart, KeyMark: f.KeyMark,
		UnixUser: f.UnixUser,
		Replica:  f.Replica, Ready: f.Ready, Died: f.Died, Rests: f.Rests, Loops: f.Loops,
		Deaths: f.Deaths, Evicted: f.Evicted, Ended: f.Ended, Unfit: f.Unfit, Missed: f.Missed, Exit: f.Exit,
		Services: f.Services, Failing: f.Failing, Cordoned: f.Cordoned, From: f.From, Load: f.Load, CPU: f.CPU}
}
