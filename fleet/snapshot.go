package fleet

import (
	"cmp"
	"iter"
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/soukhq/souk/cluster"
)

// Snapshot is the fleet as it was known at one moment. It never changes, and nothing that it returns may be changed.
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

// Roster returns a number that changes whenever a worker comes or goes, so that who keeps something for each worker
// knows when to look again.
func (s *Snapshot) Roster() uint64 { return s.roster }

// Worker returns what is known of a worker.
func (s *Snapshot) Worker(id cluster.WorkerID) (*Worker, bool) { return s.workers.Get(&Worker{ID: id}) }

// Workers iterates over all workers that are known, in the order of their ids: also those that cannot be heard, and
// those that have told nothing yet.
func (s *Snapshot) Workers() iter.Seq[*Worker] {
	return func(yield func(*Worker) bool) { s.workers.Ascend(yield) }
}

// Len returns how many workers are known.
func (s *Snapshot) Len() int { return s.workers.Len() }

// Ready returns how many workers can be asked and have told what they have.
func (s *Snapshot) Ready() int { return s.ready }

// Machines returns how many machines are known, counting one that several workers claim for each of them.
func (s *Snapshot) Machines() int { return s.machines.Len() }

// MustAsk lists the workers that were heard of and have told nothing yet: what they have nobody here knows.
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

// View returns the records of the workers that are ready, as they are known now. A machine that Fleet.Granted entered
// counts until its worker tells of it. The first call on a snapshot copies all records: a create among many workers
// calls Fleet.Pick instead.
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

// onlyGranted reports whether a machine is there and known by its grant alone.
func (p *picture) onlyGranted(m *Machine) bool {
	now, there := p.machines.Get(m)
	return there && now == m && !m.isExpired()
}

// Machine returns what is known of a machine. Where two workers claim it, as for a moment while it moves, the one that
// can be heard and wrote last counts.
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

// isMoreCredible reports whether of two claims to one machine a is the one to believe.
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

// Named returns the machine of an app that has a name. Where several do, as a cut can leave them, it is the one of the
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

// Keyed returns the machine that was made under the key of a hash (cluster.HashKey). Where several were, as a cut can
// leave them, it is one of these.
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

// MachinesOf iterates over an app's machines by name, those without one first.
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

// isBelieved reports whether a claim is the one to believe.
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

// MachinesAt iterates over the machines of an app, "" for all, that a worker has told of, by app and name.
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

// SharedNames lists the names that several machines of an app have, as a cut can leave them, with the machines' ids.
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
		if last := len(ids) - 1; last < 0 || ids[last] != m.ID { // by id, so that claims to one stand side by side
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
