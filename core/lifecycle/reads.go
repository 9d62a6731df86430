package lifecycle

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Machine returns a machine in its present state, or nil. app must match.
func (s *Supervisor) Machine(app, id string) *machine.Machine {
	if r := s.machines.rows[id]; r != nil && r.Machine.App == app {
		return r.publicMachine()
	}
	return nil
}

// MachineOf returns a machine by its ID alone, or nil: for the owner's own view, never for a client that names an app.
func (s *Supervisor) MachineOf(id string) *machine.Machine {
	if r := s.machines.rows[id]; r != nil {
		return r.publicMachine()
	}
	return nil
}

// Versions returns the previous configs of a machine, oldest first. The returned slice does not change afterwards.
func (s *Supervisor) Versions(id string) []machine.Version {
	if r := s.machines.rows[id]; r != nil {
		return slices.Clip(r.versions)
	}
	return nil
}

// Ask returns what Grant would answer now; see market.Seller. Besides the ledger it checks host ports that other
// machines here have. The runtime's other reasons (a program that listens on the port) are left to the grant: with two
// workers on one host, a machine that is about to move still has its port.
func (s *Supervisor) Ask(now time.Time, r placement.Request) market.Quote {
	q := s.seller.Ask(now, r)
	if no := s.commands.portsInUse(r.Machine, r.App, r.Publish); len(no) > 0 {
		q.Verdict.Fits = false
		q.Verdict.Failing = append(q.Verdict.Failing, no...)
		q.Evict = nil // a machine keeps its ports while it is down, so no eviction frees one
	}
	return q
}

// Hold reserves room until it expires; see market.Seller.
func (s *Supervisor) Hold(now time.Time, c HoldCommand) (time.Time, error) {
	if c.Want {
		return s.seller.Want(now, c.Request, c.Token, c.TTL)
	}
	return s.seller.Hold(now, string(c.By), c.Request, c.Token, c.TTL)
}

// Release ends a hold; see market.Seller.
func (s *Supervisor) Release(now time.Time, token string) { s.seller.Release(now, token) }

// Record returns the worker's record at now.
func (s *Supervisor) Record(now time.Time) cluster.Record { return s.seller.Record(now) }

// Check panics when an invariant of the worker's state is broken.
func (s *Supervisor) Check() {
	s.seller.Check()
	for id, r := range s.machines.rows {
		if r.isDestroyed() && r.Life != nil {
			panic("lifecycle: machine " + id + " is destroyed and lives")
		}
	}
}

// Stats are a worker's own counters.
type Stats struct {
	Record       cluster.Record
	States       map[machine.State]int
	RunsActive   map[string]int    // by operation
	RunsDone     map[string]uint64 // by operation/outcome: "start/ok"
	RunsStuck    int               // failing for over a minute, or parked
	Commits      uint64            // of the journal; the owner fills in this field and the next two
	Records      uint64
	CommitTime   time.Duration
	Refusals     map[string]uint64 // by failing clause
	HoldsExpired uint64
	Evicted      map[string]uint64 // machines, by the rule that allowed it, since the worker started
	Waiting      int               // machines that wait for room by eviction
	Drift        uint64            // differences between runtime and journal, found and repaired
	Host         *machine.HostUse  // filled in by the owner; nil: its runtime does not report it
}

// Stats returns the counters as they stand at now.
func (s *Supervisor) Stats(now time.Time) Stats {
	st := Stats{Record: s.seller.Record(now), States: map[machine.State]int{}, Drift: s.lives.drift}
	st.Evicted = map[string]uint64{machine.RuleLowerRank: s.evictions.count}
	for id, r := range s.machines.rows {
		if s.seller.Waiting(id) {
			st.Waiting++
		}
		st.States[r.Machine.State]++
	}
	st.RunsActive, st.RunsStuck, st.RunsDone = s.engine.Counts(now)
	st.HoldsExpired, st.Refusals = s.seller.Counters()
	return st
}
