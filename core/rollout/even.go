package rollout

import (
	"cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// A machine is made at the worker of the one that it replaces, so that the spread stays even. After hosts were lost
// and came back, a group may be unevenly spread; then a rollout makes its machines at the workers with the fewest.

// Places describes the workers at which machines can be made.
type Places interface {
	// Workers lists the reachable workers that accept new machines.
	Workers() []cluster.WorkerID
	// Value returns the value of a worker's attribute; "": it has none.
	Value(w cluster.WorkerID, attribute string) string
	// Takes reports whether a worker would accept a machine of a group now, regardless of its spread.
	Takes(w cluster.WorkerID, g *release.Group) bool
}

// even counts where the machines of a group are, or are about to be.
type even struct {
	g      *release.Group
	by     string
	places Places
	at     map[cluster.WorkerID]int
	values map[string]int // machines by value of the attribute
}

// newEven begins without machines. It returns nil if the group is not spread, or there is no second worker to spread
// it over.
func newEven(g *release.Group, places Places) *even {
	by := g.SpreadBy()
	if by == "" || places == nil || len(places.Workers()) < 2 {
		return nil
	}
	return &even{g, by, places, map[cluster.WorkerID]int{}, map[string]int{}}
}

// add adds n machines at a worker; a negative n removes some.
func (e *even) add(w cluster.WorkerID, n int) {
	if w == "" {
		return
	}
	e.at[w] += n
	if value := e.places.Value(w, e.by); value != "" {
		e.values[value] += n
	}
}

// better returns the worker with the fewest machines that accepts one of the group, if that is a more even spread than
// leaving it at than. "": there is none.
func (e *even) better(than cluster.WorkerID) (best cluster.WorkerID) {
	has := e.values[e.places.Value(than, e.by)] - 1
	for _, w := range e.places.Workers() {
		value := e.places.Value(w, e.by)
		if value == "" || e.values[value] >= has {
			continue
		}
		fewer := cmp.Or(cmp.Compare(e.values[value], e.values[e.places.Value(best, e.by)]),
			cmp.Compare(e.at[w], e.at[best]), cmp.Compare(w, best)) < 0
		if (best == "" || fewer) && e.places.Takes(w, e.g) {
			best = w
		}
	}
	return best
}

// Uneven returns which machines of a group of n replicas should move to which workers, by machine ID: no more than an
// even spread requires.
func Uneven(g *release.Group, spec string, n int, standing []release.Standing,
	places Places) map[string]cluster.WorkerID {
	e := newEven(g, places)
	if e == nil {
		return nil
	}
	wanted := map[int]bool{}
	for _, index := range WantedSlots(g.Name, spec, n, standing) {
		wanted[index] = true
	}
	var list []*release.Standing
	for i := range standing {
		if m := &standing[i]; m.Group == g.Name && m.Run == "" && wanted[m.Index] && !m.Goes() && !m.Unheard {
			list = append(list, m)
			e.add(m.Worker, 1)
		}
	}
	out := map[string]cluster.WorkerID{}
	for _, m := range list {
		if to := e.better(m.Worker); to != "" {
			e.add(m.Worker, -1)
			e.add(to, 1)
			out[m.ID] = to
		}
	}
	return out
}

// home returns the worker for the machine that replaces one: the same, or one where it makes the spread more even.
func (g *groupLook) home(v *view, to *side) cluster.WorkerID {
	at := v.others[0].Worker
	if !g.counted {
		g.homes, g.counted = g.look.countHomes(to), true
	}
	if g.homes == nil {
		return at
	}
	better := g.homes.better(at)
	if better == "" {
		return at
	}
	g.homes.add(at, -1)
	g.homes.add(better, 1)
	return better
}

// countHomes counts where the machines of a group are to be, as far as known; nil: the group is not spread.
func (l *look) countHomes(to *side) *even {
	e := newEven(to.group, l.want.Places)
	for _, index := range to.slots {
		if e != nil {
			e.add(l.stays(release.Slot{Group: to.group.Name, Index: index}, to), 1)
		}
	}
	return e
}

// stays returns the worker at which a slot's machine is to be, as far as known.
func (l *look) stays(slot release.Slot, to *side) cluster.WorkerID {
	of, others := l.split(slot, to)
	switch {
	case len(of) > 0:
		return of[0].Worker
	case l.memory.makes(slot, to.spec) && l.memory.slots[slot].home != "":
		return l.memory.slots[slot].home
	case l.goesTo(others) != "":
		return l.goesTo(others)
	case len(others) > 0 && !others[0].Leaves:
		return others[0].Worker
	}
	return ""
}
