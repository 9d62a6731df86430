package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// Some of a machine's needs only one machine can have: a volume, or a port at one worker. If a release gives it to
// another group, because the group is renamed or a mount has moved, the machine that has it is removed before the
// other one is made.

// claim is one such need.
type claim struct {
	volume string          // its ID or name; "": the claim is a port
	port   machine.Publish // at one worker
}

// String describes the claim for people.
func (n claim) String() string {
	if n.volume != "" {
		return "volume " + n.volume
	}
	return "port " + n.port.String()
}

func (n claim) conflicts(o claim) bool {
	if n.volume != "" || o.volume != "" {
		return n.volume == o.volume
	}
	return n.port.Overlaps(o.port)
}

// claimsOf lists what a machine of the group needs exclusively. Ports count only with order stop-first: start-first
// assumes workers where they are free.
func claimsOf(g *release.Group) (out []claim) {
	for _, m := range g.Config.Mounts {
		if name := cmp.Or(m.Volume, m.Name); name != "" {
			out = append(out, claim{volume: name})
		}
	}
	if g.Order() != release.StopFirst {
		return out
	}
	for _, port := range g.Config.HostPorts() {
		out = append(out, claim{port: port})
	}
	return out
}

func claims(g *release.Group, n claim) bool { return slices.ContainsFunc(claimsOf(g), n.conflicts) }

// free reports whether no other machine has what a slot's machine needs. If one that is to be removed has it, free
// removes that one first. For ports, as many slots change at once as may lack a machine.
func (g *groupLook) free(v *view, to *side) bool {
	l, w, b := g.look, g.look.memory.slot(v.slot), &g.budget
	for _, n := range claimsOf(to.group) {
		if n.volume == "" && w.took != "" && !l.stands(w.took) {
			continue // the port is free again
		}
		m := l.holder(v.slot, n, w.took)
		if m == nil {
			continue
		}
		w.begin(to.spec, l.clock.now)
		if w.took == "" {
			if _, none := to.group.Surge(to.n); n.volume == "" && b.taking >= max(1, none) {
				return false
			}
			b.taking++
		}
		w.took, w.home, w.only = m.ID, m.Worker, false
		g.todo.acts = append(g.todo.acts, act{verb: Remove, machine: m, yields: true,
			why: fmt.Sprintf("%s needs its %s, so it goes first", v.slot, n)})
		return false
	}
	return true
}

// stands reports whether a machine that is kept up exists, as far as known.
func (l *look) stands(id string) bool {
	return !l.memory.removed(l.clock.now, id) && slices.ContainsFunc(l.seen.kept, func(m release.Standing) bool {
		return m.ID == id && m.State != machine.Destroyed
	})
}

// holder returns a machine that has what a slot of another group needs and is to be removed or to lose it, preferably
// goes, which is already being removed for the slot; nil: there is none.
func (l *look) holder(of release.Slot, n claim, goes string) (has *release.Standing) {
	for _, slot := range slices.SortedFunc(maps.Keys(l.seen.by), release.Slot.Compare) {
		to := l.aim.goal[slot.Group]
		if slot.Group == of.Group || to != nil && to.has[slot.Index] && claims(to.group, n) {
			continue // both are to have it; the workers refuse that
		}
		for _, m := range l.seen.by[slot] {
			if l.aim.hasClaim(m, n) && (has == nil || m.ID == goes) && !l.memory.goesFor(m, of) {
				has = m
			}
		}
	}
	if has != nil {
		return has
	}
	for _, name := range slices.Sorted(maps.Keys(l.seen.runs)) { // a job's ended run, kept for inspection
		for _, m := range l.seen.runs[name] {
			if name != of.Group && l.aim.hasClaim(m, n) && m.Over() {
				return m
			}
		}
	}
	return nil
}

// hasClaim reports whether a machine has an exclusive thing, by its release.
func (a *aim) hasClaim(m *release.Standing, n claim) bool {
	g := a.specs[m.Spec]
	return g != nil && claims(g, n)
}

// goesFor reports whether a machine is removed for another slot of than's group.
func (s *Steward) goesFor(m *release.Standing, than release.Slot) bool {
	for slot, w := range s.slots {
		if slot.Group == than.Group && slot != than && w.took == m.ID {
			return true
		}
	}
	return false
}

// given reports whether a slot of another group has, or is about to have, what the previous machine of this group
// needs.
func (l *look) given(of *side) bool {
	for _, n := range claimsOf(of.group) {
		for name, to := range l.aim.goal {
			if name != of.group.Name && claims(to.group, n) && slices.ContainsFunc(to.slots, func(index int) bool {
				return l.takes(release.Slot{Group: name, Index: index}, to.spec)
			}) {
				return true
			}
		}
	}
	return false
}

// takes reports whether a slot has a machine of a spec, or is about to.
func (l *look) takes(slot release.Slot, spec string) bool {
	w := l.memory.slots[slot]
	return w != nil && (w.took != "" || w.makes(spec)) ||
		slices.ContainsFunc(l.seen.by[slot], func(m *release.Standing) bool { return m.Spec == spec })
}
