package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/soukhq/souk/machine"
)

// Some of what a machine asks for only one machine can have: a volume, and at one worker a port. Where a release gives it to
// another group, because that has another name or because a mount has moved, the machine that has it goes before the other
// one is made.

// claim is one such thing.
type claim struct {
	volume string          // its id or name; "": it is a port
	port   machine.Publish // of a worker
}

// String returns it as people read it.
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

// claims lists what a machine of the group needs for itself. Of ports they are those for which its order is stop-first: who says
// start-first has workers on which they are free.
func (g *Group) claims() (out []claim) {
	for _, m := range g.Config.Mounts {
		if name := cmp.Or(m.Volume, m.Name); name != "" {
			out = append(out, claim{volume: name})
		}
	}
	if g.Order() != StopFirst {
		return out
	}
	for _, port := range g.Config.HostPorts() {
		out = append(out, claim{port: port})
	}
	return out
}

func (g *Group) has(n claim) bool { return slices.ContainsFunc(g.claims(), n.conflicts) }

// free reports whether a slot's machine can be made as far as machines go that are to go: where one has what it needs, that one
// goes first. Of those that need a port as many change places at once as may lack a machine.
func (p *pass) free(v *view, to *side, b *budget) bool {
	w := p.slot(v.slot)
	for _, n := range to.group.claims() {
		if n.volume == "" && w.took != "" && !p.stands(w.took) {
			continue // the port that it had is free
		}
		m := p.holder(v.slot, n, w.took)
		if m == nil {
			continue
		}
		w.begin(to.spec, p.now)
		p.wants = true
		if w.took == "" {
			if _, none := to.group.surge(to.n); n.volume == "" && b.taking >= max(1, none) {
				return false
			}
			b.taking++
		}
		w.took, w.home, w.only = m.ID, m.Worker, false
		p.yield(m, v.slot, n)
		return false
	}
	return true
}

// stands reports whether there is a machine that is kept up, as far as is known.
func (p *pass) stands(id string) bool {
	return !p.removed(p.now, id) && slices.ContainsFunc(p.standing, func(m Standing) bool {
		return m.ID == id && m.State != machine.Destroyed
	})
}

// yield removes a machine that has what a slot of another group needs.
func (p *pass) yield(m *Standing, to Slot, n claim) {
	before := len(p.out.Orders)
	p.remove(m, fmt.Sprintf("%s needs its %s, so it goes first", to, n))
	for i := before; i < len(p.out.Orders); i++ {
		p.out.Orders[i].Yields = true
	}
}

// holder returns a machine that has what a slot of another group needs, and that is to go or is to be without, of several first
// the one that already goes for it; nil: there is none.
func (p *pass) holder(of Slot, n claim, goes string) (has *Standing) {
	for _, slot := range slices.SortedFunc(maps.Keys(p.by), Slot.Compare) {
		if slot.Group == of.Group {
			continue
		}
		if to := p.goal[slot.Group]; to != nil && to.has[slot.Index] && to.group.has(n) {
			continue // both are to have it, which the workers refuse
		}
		for _, m := range p.by[slot] {
			if g := p.specs[m.Spec]; g != nil && g.has(n) && !(has != nil && m.ID != goes) && !p.goesFor(m, of) {
				has = m
			}
		}
	}
	if has != nil {
		return has
	}
	for name, runs := range p.runs { // of jobs: one that has ended is kept to be looked at
		for _, m := range runs {
			if g := p.specs[m.Spec]; name != of.Group && g != nil && g.has(n) && m.Over() {
				return m
			}
		}
	}
	return nil
}

// goesFor reports whether a machine goes for another slot of a group.
func (p *pass) goesFor(m *Standing, than Slot) bool {
	for slot, w := range p.slots {
		if slot.Group == than.Group && slot != than && w.took == m.ID {
			return true
		}
	}
	return false
}

// given reports whether a slot of another group has, or is about to have, what a machine as it was before needs.
func (p *pass) given(of *side) bool {
	for _, n := range of.group.claims() {
		for name, to := range p.goal {
			if name == of.group.Name || !to.group.has(n) {
				continue
			}
			for _, index := range to.slots {
				slot := Slot{name, index}
				w := p.slots[slot]
				if w != nil && (w.took != "" || w.makes(to.spec)) ||
					slices.ContainsFunc(p.by[slot], func(m *Standing) bool { return m.Spec == to.spec }) {
					return true
				}
			}
		}
	}
	return false
}
