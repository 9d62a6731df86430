package fleet

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
)

// Standing returns a machine of a service as its steward sees it. heard says that its worker is reachable, drained that
// the worker is being drained, and silent since when the worker is unreachable. The machine must have a Replica.
func (m *Machine) Standing(heard, drained bool, silent time.Time) release.Standing {
	return release.Standing{ID: m.ID, Instance: m.Instance, Replica: *m.Replica, Worker: m.Worker, State: m.State,
		Updated: m.Updated, Unheard: !heard, Silent: silent, Ready: m.Ready && heard && !m.Failing, Died: m.Died,
		Rests: m.Rests, Unfit: m.Unfit, Missed: m.Missed,
		Loops: m.Loops, Deaths: m.Deaths, Ended: m.Ended, Exit: m.Exit, Cordoned: m.Cordoned, Load: m.Load, CPU: m.CPU,
		Leaves: drained || m.Evicted}
}

// Standing returns the machines of an app's service, by their ids.
func (s *Snapshot) Standing(app string) (out []release.Standing) {
	for m := range s.MachinesOf(app) {
		if m.Replica == nil {
			continue
		}
		var silent time.Time
		w, known := s.Worker(m.Worker)
		if known && w.State != cluster.MemberAlive {
			silent = w.Since
		}
		out = append(out, m.Standing(known && w.Reachable(), known && w.Drained(), silent))
	}
	return out
}

// Peers returns all workers of the cluster, as stewards see them.
func (s *Snapshot) Peers() []rollout.Peer {
	out := make([]rollout.Peer, 0, s.Len())
	for w := range s.Workers() {
		out = append(out, rollout.Peer{ID: w.ID, Heard: w.Reachable()})
	}
	return out
}

// Drained reports whether the worker is being drained.
func (w *Worker) Drained() bool { return w.Record.Cordon != nil && w.Record.Cordon.Drain }
