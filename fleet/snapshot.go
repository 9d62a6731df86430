package fleet

import (
	"cmp"
	"iter"
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/soukhq/souk/cluster"
)

// Snapshot is the fleet as known at one moment. It is immutable, and so is everything that it returns.
type Snapshot struct {
	picture
	at   time.Time
	past chan struct{} // closed when there is a newer one
	once sync.Once
	view []cluster.Record // made when View is first called
}

// At returns when the newest change in it became known.
func (s *Snapshot) At() time.Time { return s.at }

// Past returns a channel that is closed once there is a newer snapshot.
func (s *Snapshot) Past() <-chan struct{} { return s.past }

// Roster returns a number that changes whenever a worker comes or goes, so that callers with per-worker state know when
// to update it.
func (s *Snapshot) Roster() uint64 { return s.roster }

// Worker returns a worker by its id.
func (s *Snapshot) Worker(id cluster.WorkerID) (*Worker, bool) { return s.workers.Get(&Worker{ID: id}) }

// Workers iterates over all known workers by id, including unreachable ones and those that have not reported yet.
func (s *Snapshot) Workers() iter.Seq[*Worker] {
	return func(yield func(*Worker) bool) { s.workers.Ascend(yield) }
}

// Len returns the number of known workers.
func (s *Snapshot) Len() int { return s.workers.Len() }

// Ready returns how many workers are reachable and have reported.
func (s *Snapshot) Ready() int { return s.ready }

// Machines returns the number of known machines. A machine that several workers claim counts once for each.
func (s *Snapshot) Machines() int { return s.machines.Len() }

// MustAsk lists the known workers that have not reported yet: their machines are unknown here.
func (s *Snapshot) MustAsk() []cluster.WorkerID {
	if s.unreported == 0 {
		return nil
	}
	out := make([]cluster.WorkerID, 0, s.unreported)
	for w := range s.Workers() {
		if w.mustBeAsked() {
			out = append(out, w.ID)
		}
	}
	return out
}

// Regions lists the regions of the workers that are ready, sorted.
func (s *Snapshot) Regions() []cluster.Region { return s.regions }

// View returns the current records of the ready workers. A machine entered by Fleet.Granted counts until its worker
// reports it. The first call on a snapshot copies all records: in a large fleet a create calls Fleet.Pick instead.
func (s *Snapshot) View() cluster.View {
	s.once.Do(func() {
		s.view = make([]cluster.Record, 0, s.ready)
		for w := range s.Workers() {
			if w.Ready() {
				s.view = append(s.view, w.countedRecord(s.onlyGranted))
			}
		}
	})
	return cluster.View{Workers: s.view[:len(s.view):len(s.view)], At: time.Now()}
}

// onlyGranted reports whether a machine is in the picture by its grant alone.
func (p *picture) onlyGranted(m *Machine) bool {
	now, there := p.machines.Get(m)
	return there && now == m && !m.isExpired()
}

// Machine returns a machine by its id. If two workers claim it, as for a moment during a move, the claim of a reachable
// worker counts, then the latest.
func (s *Snapshot) Machine(id string) (*Machine, bool) {
	var best *Machine
	s.machines.AscendGreaterOrEqual(&Machine{ID: id}, func(m *Machine) bool {
		if m.ID != id {
			return false
		}
		if !m.isExpired() && (best == nil || s.isMoreCredible(m, best)) {
			best = m
		}
		return true
	})
	return best, best != nil
}

// isMoreCredible reports whether claim a to a machine goes before claim b.
func (s *Snapshot) isMoreCredible(a, b *Machine) bool {
	if x, y := s.hasHeard(a.Worker), s.hasHeard(b.Worker); x != y {
		return x
	}
	return cmp.Or(a.Updated.Compare(b.Updated), cmp.Compare(a.Worker, b.Worker)) > 0
}

func (s *Snapshot) hasHeard(id cluster.WorkerID) bool {
	w, known := s.Worker(id)
	return known && w.Reachable()
}

// Home returns the worker that has a machine.
func (s *Snapshot) Home(id string) (cluster.WorkerID, bool) {
	m, known := s.Machine(id)
	if !known {
		return "", false
	}
	return m.Worker, true
}

// Named returns the machine of an app that has a name. If several do, after a network partition, it is the one with the
// lowest id.
func (s *Snapshot) Named(app, name string) (found *Machine, ok bool) {
	s.names.AscendGreaterOrEqual(&Machine{App: app, Name: name}, func(m *Machine) bool {
		if m.App != app || m.Name != name {
			return false
		}
		if s.isBelieved(m) {
			found = m
		}
		return found == nil
	})
	return found, found != nil
}

// Keyed returns the machine that was made under the key with a hash (cluster.HashKey). If several were, after a network
// partition, it is one of them.
func (s *Snapshot) Keyed(hash string) (found *Machine, ok bool) {
	s.keys.AscendGreaterOrEqual(&Machine{KeyMark: cluster.KeyMark(hash)}, func(m *Machine) bool {
		if m.KeyMark.Key() != hash {
			return false
		}
		if s.isBelieved(m) {
			found = m
		}
		return found == nil
	})
	return found, found != nil
}

// MachinesOf iterates over an app's machines by name, those without a name first.
func (s *Snapshot) MachinesOf(app string) iter.Seq[*Machine] {
	return func(yield func(*Machine) bool) {
		s.names.AscendGreaterOrEqual(&Machine{App: app}, func(m *Machine) bool {
			return m.App == app && (!s.isBelieved(m) || yield(m))
		})
	}
}

// AllMachines iterates over all machines by app and name.
func (s *Snapshot) AllMachines() iter.Seq[*Machine] {
	return func(yield func(*Machine) bool) {
		s.names.Ascend(func(m *Machine) bool { return !s.isBelieved(m) || yield(m) })
	}
}

// isBelieved reports whether a claim is the one that counts: see Machine.
func (s *Snapshot) isBelieved(m *Machine) bool {
	if m.isExpired() {
		return false
	}
	if s.disputed.Len() == 0 || !s.disputed.Has(m.ID) {
		return true
	}
	best, _ := s.Machine(m.ID)
	return best == m
}

// WorkersOf lists the workers that have machines of an app, each once.
func (s *Snapshot) WorkersOf(app string) []cluster.WorkerID {
	seen := map[cluster.WorkerID]bool{}
	var out []cluster.WorkerID
	s.names.AscendGreaterOrEqual(&Machine{App: app}, func(m *Machine) bool {
		if m.App != app {
			return false
		}
		if !m.isExpired() && !seen[m.Worker] {
			seen[m.Worker] = true
			out = append(out, m.Worker)
		}
		return true
	})
	return out
}

// MachinesAt iterates over the machines of an app, "" for all, that a worker has reported, by app and name.
func (s *Snapshot) MachinesAt(worker cluster.WorkerID, app string) iter.Seq[*Machine] {
	all := s.MachinesOf(app)
	if app == "" {
		all = s.AllMachines()
	}
	return func(yield func(*Machine) bool) {
		for m := range all {
			if m.Worker == worker && !yield(m) {
				return
			}
		}
	}
}

// SharedNames lists the names that several machines of an app have, as a network partition can leave them, with the
// machines' ids.
func (s *Snapshot) SharedNames() map[Name][]string {
	out := map[Name][]string{}
	s.shared.Ascend(func(n Name) bool {
		out[n] = holdersOf(s.names, n, s.names.Len())
		return true
	})
	return out
}

// holdersOf lists up to most ids of machines that have a name, each once.
func holdersOf(names *btree.BTreeG[*Machine], n Name, most int) (ids []string) {
	names.AscendGreaterOrEqual(&Machine{App: n.App, Name: n.Name}, func(m *Machine) bool {
		if m.App != n.App || m.Name != n.Name {
			return false
		}
		if last := len(ids) - 1; last < 0 || ids[last] != m.ID { // sorted by id, so claims to one machine are adjacent
			ids = append(ids, m.ID)
		}
		return len(ids) < most
	})
	return ids
}

// countClaims counts the workers that claim a machine, up to two.
func countClaims(machines *btree.BTreeG[*Machine], id string) (n int) {
	machines.AscendGreaterOrEqual(&Machine{ID: id}, func(m *Machine) bool {
		if m.ID == id {
			n++
		}
		return m.ID == id && n < 2
	})
	return n
}
