package rollout

import (
	"github.com/soukhq/souk/core/release"
	"slices"
)

// allow returns how many slots of a group may be new now; news are.
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

// firstNew returns which slots become new in addition to those that are: as many as allowed, beginning with slots
// without an old machine, so that no old machine is removed for them.
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

// needsOld reports whether the single replica of a group, scaled down to one during a canary step, has no machine of
// the release before.
func (l *look) needsOld(group string, old *side) bool {
	goal := l.aim.goal[group]
	return goal != nil && goal.beside && old != nil && goal.group.Order() == release.StartFirst &&
		!slices.ContainsFunc(l.seen.by[release.Slot{Group: group, Index: goal.slots[0]}],
			func(m *release.Standing) bool { return m.Spec == old.spec })
}
