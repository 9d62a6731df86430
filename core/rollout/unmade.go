package rollout

import (
	"slices"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

const (
	// Reasons that change while the replicas stay the same are written no more often than this: many contain the free
	// room.
	unmadeEvery = time.Minute
	// tellTries is how often a machine must be refused in a row before that is written: the first refusal may be
	// temporary.
	tellTries = 2
)

// tellUnmade writes which replicas have no machine because none could be made, and why the newest try failed, which
// the machines do not show. It returns the written list.
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

// findUnmade lists the replicas for which no machine could be made, with the reason of the newest try.
func (l *look) findUnmade() (list []release.Failure) {
	for slot, w := range l.memory.slots {
		if !l.isUnmade(slot, w) {
			continue
		}
		f := release.Failure{Group: slot.Group, Index: slot.Index, Why: fault.Clip(w.why.Error(), release.MaxUnmadeWhy)}
		if uncertain(w.why) { // the reason of the try before says more
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

// isUnmade reports whether a slot lacks a wanted machine because none could be made.
func (l *look) isUnmade(slot release.Slot, w *slotWork) bool {
	to := l.aim.goal[slot.Group]
	return to != nil && w.why != nil && w.spec == to.spec && l.aim.wants(slot) && w.failures >= tellTries &&
		!slices.ContainsFunc(l.seen.by[slot], func(m *release.Standing) bool {
			return m.Spec == to.spec && !(l.leaves(m) && to.group.Movable())
		})
}
