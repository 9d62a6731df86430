package rollout

import (
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// Bounds of what is told of replicas that no machine could be made for.
const (
	maxUnmade    = 8
	maxUnmadeWhy = 240 // bytes
	// A reason that changes while the replicas stay the same is told no more often: how much room is free is in many.
	unmadeEvery = time.Minute
	// tellTries is how often a machine must have been refused in a row: the first refusal may be over in a moment.
	tellTries = 2
)

// unmadeYet has those replicas told that have no machine since none could be made, and why the newest try failed: nobody
// can see that from the machines.
func (p *pass) unmadeYet() {
	p.out.Unmade = p.want.Unmade
	var list []Failure
	for slot, w := range p.slots {
		to := p.goal[slot.Group]
		if to == nil || w.why == nil || w.spec != to.spec || !p.wanted[slot] || w.failures < tellTries ||
			slices.ContainsFunc(p.by[slot], func(m *Standing) bool {
				return m.Spec == to.spec && !(p.leaves(m) && to.group.movable())
			}) {
			continue
		}
		f := Failure{Group: slot.Group, Index: slot.Index, Why: fault.Clip(w.why.Error(), maxUnmadeWhy)}
		if uncertain(w.why) { // that says less than what is told of the try before
			at := slices.IndexFunc(p.want.Unmade, func(x Failure) bool {
				return x.Group == f.Group && x.Index == f.Index
			})
			if at < 0 {
				continue
			}
			f = p.want.Unmade[at]
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Failure) int {
		return Slot{a.Group, a.Index}.Compare(Slot{b.Group, b.Index})
	})
	list = list[:min(len(list), maxUnmade)]
	same := slices.EqualFunc(list, p.want.Unmade, func(a, b Failure) bool {
		return a.Group == b.Group && a.Index == b.Index
	})
	if slices.Equal(list, p.want.Unmade) || same && p.waits(p.reasoned.Add(unmadeEvery)) {
		return
	}
	if p.begun() {
		p.reasoned, p.out.Unmade, p.out.Tell = p.now, list, true
	}
}

func checkUnmade(list []Failure) error {
	ok := len(list) <= maxUnmade
	for _, f := range list {
		ok = ok && len(f.Group) <= maxText && len(f.Machine) <= maxText && len(f.Why) <= maxUnmadeWhy
	}
	if !ok {
		return fault.New(fault.Invalid, "tenure", "a service tells of at most %d replicas that have no machine, with "+
			"reasons of at most %d bytes", maxUnmade, maxUnmadeWhy)
	}
	return nil
}
