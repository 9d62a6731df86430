package rollout

import (
	"cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// A machine is made where the one was whose place it takes, so that what is spread stays so. Where hosts were lost and came back
// the machines of a group are not spread any more; then those that a rollout makes go to the workers that have fewest.

// Places is what is known of the workers that machines can be made at.
type Places interface {
	// Workers lists those that are heard and take something new.
	Workers() []cluster.WorkerID
	// Value returns the value of an attribute of a worker; "": it has none.
	Value(w cluster.WorkerID, attribute string) string
	// Takes reports whether a worker would take a machine of a group now, whatever its spread says.
	Takes(w cluster.WorkerID, g *release.Group) bool
}

// even is where the machines of a group are, or are about to be.
type even struct {
	g      *release.Group
	by     string
	places Places
	at     map[cluster.WorkerID]int
	values map[string]int // of the attribute
}

// newEven begins with no machine; nil: they are not spread, or there is no second worker to spread them over.
func newEven(g *release.Group, places Places) *even {
	by := g.SpreadBy()
	if by == "" || places == nil || len(places.Workers()) < 2 {
		return nil
	}
	return &even{g, by, places, map[cluster.WorkerID]int{}, map[string]int{}}
}

// add enters so many machines of a worker; less than none take some out.
func (e *even) add(w cluster.WorkerID, n int) {
	if w == "" {
		return
	}
	e.at[w] += n
	if value := e.places.Value(w, e.by); value != "" {
		e.values[value] += n
	}
}

// better returns a worker that takes a machine of the group, and at which it would leave them more evenly spread than at the one
// where it is: that with the fewest. "": there is none.
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

// Uneven returns which machines of a group of n replicas would be better at which other workers, by their ids: no more than have
// to move so that they are evenly spread.
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

// home returns where the machine is to be made that takes the place of one: where that is, or where it is missed more.
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

// countHomes returns where the machines of a group are to be, as far as that is known; nil: they are not spread.
func (l *look) countHomes(to *side) *even {
	e := newEven(to.group, l.want.Places)
	for _, index := range to.slots {
		if e != nil {
			e.add(l.stays(release.Slot{Group: to.group.Name, Index: index}, to), 1)
		}
	}
	return e
}

// stays returns the worker at which a slot's machine is to be, as far as that is known.
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
