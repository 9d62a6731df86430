package rollout

import (
	"fmt"
	"slices"
)

// replace has the machines of a slot that are otherwise replaced, once that may be.
func (p *pass) replace(v *view, to *side, b *budget) {
	leaves := !slices.ContainsFunc(v.others, func(m *Standing) bool { return !p.leaves(m) })
	if to == p.old[to.group.Name] && !leaves { // of a release that was between: it waits until it is to be as now
		p.revive(v.others[0])
		return
	}
	p.wants = true
	ofUse, w, at := p.ofUse(v.others[0]), p.slot(v.slot), p.goesTo(v.others)
	switch { // as the machines are spread they stay so, and ports that it frees are free there
	case v.making:
	case at != "":
		w.home, w.only = at, to.group.Order() == StartFirst // what went first is better anywhere than nowhere
	case leaves:
		w.home, w.only = "", false
	default:
		w.home, w.only = p.home(v, to), false
	}
	asleep := !slices.ContainsFunc(v.others,
		func(m *Standing) bool { return !m.asleep() || p.held[m.ID] != nil })
	two, none := to.group.surge(to.n)
	why := "its machine is of another release"
	switch {
	case at != "": // one at a time, and none goes first that need not
		why, none = fmt.Sprintf("somebody wants it at worker %s", at), min(none, 1)
		if two > 0 {
			two, none = 1, 0
		}
	case leaves:
		why = "its machine must go from its worker"
	}
	switch {
	case v.making:
	case asleep && p.wakes() && !b.judged && b.judging: // one is enough to judge by
	case to.group.Order() == StartFirst && b.more < two:
		b.more++
		b.judging = true
		p.make(v.slot, to, asleep && (b.judged || !p.wakes()), why)
	case !ofUse, b.none < none:
		if ofUse {
			b.none++
		}
		b.judging = true
		w.slept, w.gave = asleep, ofUse
		for _, m := range v.others {
			p.remove(m, why+", and goes first")
		}
		return
	}
	p.keepOne(v.others)
}

// keepOne has one of a slot's machines that are to go stay until then.
func (p *pass) keepOne(others []*Standing) {
	for i, m := range others {
		if i > 0 && p.ofUse(others[0]) {
			p.remove(m, "another machine stands for "+m.slot().String())
		} else if !p.progress.Undo { // what is undone need not run again
			p.revive(m)
		}
	}
}

// ofUse reports whether a machine can stand for its replica until another does.
func (p *pass) ofUse(m *Standing) bool { return settled(m) && p.held[m.ID] == nil && !p.removing(m) }

// removing reports whether a machine is being removed.
func (p *pass) removing(m *Standing) bool {
	w := p.machines[m.ID]
	return w != nil && w.busy && w.verb == Remove
}
