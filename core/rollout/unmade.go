package rollout

import (
	"slices"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

const (
	// A reason that changes while the replicas stay the same is told no more often: how much room is free is in many.
	unmadeEvery = time.Minute
	// tellTries is how often a machine must have been refused in a row: the first refusal may be over in a moment.
	tellTries = 2
)

// tellUnmade has those replicas told that have no machine since none could be made, and why the newest try failed: nobody
// can see that from the machines. It returns those of which that is written.
func (l *look) tellUnmade(d *docket) []release.Failure {
	list := l.findUnmade()
	same := slices.EqualFunc(list, l.want.Unmade, func(a, b release.Failure) bool {
		return a.Group == b.Group && a.Index == b.Index
	})
	if slices.Equal(list, l.want.Unmade) || same && l.clock.waits(l.memory.reasoned.Add(unmadeEvery)) || !d.begun() {
		return l.want.Unmade
	}
	l.memory.reasoned, d.out.Tell = l.clock.now, true
	return list
}

// findUnmade lists the replicas that have no machine since none could be made, with the reason of the newest try.
func (l *look) findUnmade() (list []release.Failure) {
	for slot, w := range l.memory.slots {
		if !l.isUnmade(slot, w) {
			continue
		}
		f := release.Failure{Group: slot.Group, Index: slot.Index, Why: fault.Clip(w.why.Error(), release.MaxUnmadeWhy)}
		if uncertain(w.why) { // that says less than what is told of the try before
			at := slices.IndexFunc(l.want.Unmade, func(x release.Failure) bool {
				return x.Group == f.Group && x.Index == f.Index
			})
			if at < 0 {
				continue
			}
			f = l.want.Unmade[at]
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b release.Failure) int {
		return release.Slot{Group: a.Group, Index: a.Index}.Compare(release.Slot{Group: b.Group, Index: b.Index})
	})
	return list[:min(len(list), release.MaxUnmade)]
}

// isUnmade reports whether a slot has no machine as it is to be, since none could be made.
func (l *look) isUnmade(slot release.Slot, w *slotWork) bool {
	to := l.aim.goal[slot.Group]
	return to != nil && w.why != nil && w.spec == to.spec && l.aim.wants(slot) && w.failures >= tellTries &&
		!slices.ContainsFunc(l.seen.by[slot], func(m *release.Standing) bool {
			return m.Spec == to.spec && !(l.leaves(m) && to.group.Movable())
		})
}
