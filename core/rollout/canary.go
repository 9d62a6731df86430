package rollout

import "slices"

// allow returns how many slots of a group may have what they are to have now; news have it.
func (l *look) allow(goal, old *side, news int, gated bool) int {
	switch {
	case !l.course.open || l.course.progress.Undo:
		return goal.n
	case gated, l.course.blocked, l.want.Head.Paused, l.course.progress.State == Paused:
		return news
	case old == nil:
		return goal.n
	}
	steps := goal.group.steps()
	if l.course.progress.Step >= len(steps) {
		return goal.n
	}
	goal.beside = goal.n == 1 && old.n > 0
	return goal.group.newAt(l.course.progress.Step, goal.n)
}

// newAt returns how many of n replicas have a machine of the newer release at a step of the group's canary: one at least,
// and one less than all, so that what is not proven never serves alone. The only one has a machine of each release, or
// where two cannot be up at once that of the older one.
func (g *Group) newAt(step, n int) int {
	switch k := max(1, (g.steps()[step].Percent*n+99)/100); {
	case n == 1 && g.Order() == StopFirst:
		return 0
	case n == 1:
		return 1
	default:
		return min(k, max(0, n-1))
	}
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
	return goal != nil && goal.beside && old != nil && goal.group.Order() == StartFirst &&
		!slices.ContainsFunc(l.seen.by[Slot{group, goal.slots[0]}],
			func(m *Standing) bool { return m.Spec == old.spec })
}
