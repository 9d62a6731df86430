package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Stats are a worker's own counters.
type Stats struct {
	Record       cluster.Record
	States       map[machine.State]int
	RunsActive   map[string]int    // by operation
	RunsDone     map[string]uint64 // by operation/outcome: "start/ok"
	RunsStuck    int               // failing for over a minute, or parked
	Commits      uint64            // of the journal; the owner fills these three in
	Records      uint64
	CommitTime   time.Duration
	Refusals     map[string]uint64 // by failing clause
	HoldsExpired uint64
	Evicted      map[string]uint64 // machines, by the rule that allowed it, since the worker started
	Waiting      int               // machines that wait for the room of others
	Drift        uint64            // differences between runtime and journal that were found and mended
}

// Stats gives the counters as they stand at now.
func (s *Supervisor) Stats(now time.Time) Stats {
	st := Stats{Record: s.seller.Record(now), States: map[machine.State]int{}, Drift: s.drift}
	st.Evicted = map[string]uint64{machine.RuleLowerRank: s.evicted}
	for id, r := range s.rows {
		if s.seller.Waiting(id) {
			st.Waiting++
		}
		st.States[r.Machine.State]++
	}
	st.RunsActive, st.RunsStuck, st.RunsDone = s.engine.Counts(now)
	st.HoldsExpired, st.Refusals = s.seller.Counters()
	return st
}
