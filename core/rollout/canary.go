package rollout

import (
	"github.com/soukhq/souk/core/release"
	"slices"
)

// allow returns how many slots of a group may have what they are to have now; news have it.
func (l *look) allow(goal, old *side, news int, gated bool) int {
	switch {
	case !l.course.open || l.course.progress.Undo:
		return goal.n
	case gated, l.course.blocked, l.want.Head.Paused, l.course.progress.State == release.Paused:
		return news
	case old == nil:
		return goal.n
	}
	steps := goal.group.Steps()
	if l.course.progress.Step >= len(steps) {
		return goal.n
	}
	goal.beside = goal.n == 1 && old.n > 0
	return goal.group.NewAt(l.course.progress.Step, goal.n)
}

// firstNew returns which slots are to have what the release says besides those that have it: as many as are allowed, those
// first that have no machine of the release before, so that none goes for them.
func firstNew(views []view, old *side, allow int, b *budget) map[int]bool {
	first := map[int]bool{}
	for _, without := range []bool{true, false} {
		for i := range views {
			lacks := old == nil || !old.has[views[i].slot.Index]
			if !views[i].fresh() && !first[i] && lacks == without && b.news < allow {
				first[i] = true
				b.news++
			}
		}
	}
	return first
}

// needsOld reports whether the only replica of a group is at a canary's step without a machine of the release before: it was
// scaled to one meanwhile.
func (l *look) needsOld(group string, old *side) bool {
	goal := l.aim.goal[group]
	return goal != nil && goal.beside && old != nil && goal.group.Order() == release.StartFirst &&
		!slices.ContainsFunc(l.seen.by[release.Slot{Group: group, Index: goal.slots[0]}],
			func(m *release.Standing) bool { return m.Spec == old.spec })
}
