package rollout

import (
	"fmt"
	"github.com/soukhq/souk/core/release"
	"slices"
	"time"
)

// groupLook decides what to do for the slots of one group.
type groupLook struct {
	look      *look
	goal, old *side
	budget    budget
	homes     *even // where its machines are, or are about to be; nil: not spread, or not computed yet
	counted   bool  // homes is computed
	todo      todo
}

// reached is how far a group has come.
type reached struct {
	whole bool // its machines are as wanted
	short bool // its canary's step is not reached, or not over
}

// decideGroup decides what to do for the slots of a group. gated: other groups come first.
func (l *look) decideGroup(s *survey, gated bool) (todo, reached) {
	g := &groupLook{look: l, goal: s.goal, old: s.old, budget: s.budget}
	b, goal, old := &g.budget, s.goal, s.old
	goal.apart = old != nil && goal.group.Strategy() == release.BlueGreen
	b.all = b.ready && !(goal.apart && slices.ContainsFunc(s.views, func(v view) bool {
		return len(v.of) > 0 && v.of[0].Cordoned
	}))
	allowed := l.allow(goal, old, b.news, gated)
	first := firstNew(s.views, old, allowed, b)
	is, step := reached{whole: true}, 0
	for i := range s.views {
		v := s.views[i]
		isNew := v.fresh() || first[i]
		is.whole = is.whole && isNew
		to := g.sideOf(&v, isNew)
		if to != nil {
			g.decide(&v, to)
		}
		if to == goal && (l.over(&v, goal) || l.unfilled(&v, goal)) {
			step++
		} else {
			is.whole = false
		}
	}
	if old != nil && l.course.progress.Step < len(goal.group.Steps()) {
		is.short = gated || step < min(allowed, goal.n)
	}
	return g.todo, is
}

// sideOf returns the release that a slot's machine is to have now; nil: leave the slot alone. For the previous release
// it recomputes v. isNew: the slot has the newer release's machine, or may get it.
func (g *groupLook) sideOf(v *view, isNew bool) *side {
	l, old := g.look, g.old
	switch {
	case isNew:
		return g.goal
	case old != nil && old.has[v.slot.Index]:
		v.of, v.others = l.split(v.slot, old)
		v.ok = len(v.of) > 0 && l.counts(v.of[0], old.group, len(v.others) > 0)
		v.making = l.memory.makes(v.slot, old.spec)
		return old
	case l.course.blocked || len(v.others) > 0 || l.course.progress.State != release.Paused:
		return nil
	}
	return g.goal // the slot is empty
}

// over reports whether the rollout is finished with a slot: it has what it is to have, or failed in a group that goes
// on after failures.
func (l *look) over(v *view, to *side) bool {
	others := !to.beside && slices.ContainsFunc(v.others, func(m *release.Standing) bool { return !m.Unheard })
	switch {
	case v.failure != nil && to.group.OnFailure() == release.GoOn:
		return true
	case !to.changed:
		return len(v.of) > 0
	}
	return v.ok && len(v.of) == 1 && !others && !v.of[0].Cordoned
}

// decide decides what to do for one slot, which is to have one release's machine.
func (g *groupLook) decide(v *view, to *side) {
	switch does := v.does(); {
	case does == release.Keep:
		g.keep(v, to)
	case does == release.Renew:
		g.replace(v, to)
	case v.making, to != g.goal && g.look.given(to), !g.free(v, to):
		g.todo.waits = true
	default:
		w := g.look.memory.slot(v.slot)
		if w.home == "" {
			w.home = g.look.awaited(v.slot)
		}
		w.only = false
		g.make(v, to, w.slept && g.mayMakeAsleep(), "it has no machine")
	}
}

// make orders a machine for a slot; asleep: it is not started.
func (g *groupLook) make(v *view, to *side, asleep bool, why string) {
	g.budget.judging = true
	g.todo.acts = append(g.todo.acts, act{verb: Make, slot: v.slot, to: to, asleep: asleep, why: why})
}

// mayMakeAsleep reports whether the next machine may stay down: the group's release need not be judged by it.
func (g *groupLook) mayMakeAsleep() bool { return g.budget.proven || !g.look.course.wakes() }

// keep keeps the first of a slot's machines, and removes the others once they may go.
func (g *groupLook) keep(v *view, to *side) {
	l, first := g.look, v.of[0]
	for _, twin := range v.of[1:] {
		g.todo.remove(twin, "another machine stands for "+v.slot.String())
	}
	held, isHeld := l.actHeld(first)
	g.todo.acts = append(g.todo.acts, held...)
	judged := l.course.judged() && v.failure == nil
	g.todo.waits = g.todo.waits || judged && !v.ok && !isHeld && to.changed
	switch {
	case v.ok && (!to.apart || g.budget.all) && !to.beside:
		g.removeReplaced(v)
	case len(v.others) > 0:
		rests := isHeld || to.beside && v.ok
		stays := !rests && (judged || first.Ready || !l.late(v.slot, to))
		g.todo.waits = g.todo.waits || stays
		g.keepOne(v.others)
	}
	if !isHeld {
		g.tend(v, to)
	}
}

// removeReplaced removes the machines of a slot that another machine has replaced.
func (g *groupLook) removeReplaced(v *view) {
	for _, m := range v.others {
		why := "one of the newer release stands for "
		if g.look.leaves(m) {
			why = "another machine stands for "
		}
		g.todo.remove(m, why+v.slot.String())
	}
}

// tend admits, wakes or starts the machine that stays for a slot, as needed.
func (g *groupLook) tend(v *view, to *side) {
	l, first, b := g.look, v.of[0], &g.budget
	switch {
	case v.ok && l.course.open && first.Cordoned && to.changed && (!to.apart || b.ready):
		g.admit(first)
	case !v.ok && l.course.judged() && l.course.wakes() && first.Asleep() && !first.Unheard && to.changed:
		if !b.judging {
			b.judging = true
			g.todo.do(Start, first, "it is woken, so that its release can be judged")
		}
		g.todo.waits = true
	default:
		l.revive(&g.todo, first)
	}
}

// admit lets requests go to a machine.
func (g *groupLook) admit(m *release.Standing) {
	if w := g.look.memory.machine(m.ID); w.verb == Admit && !w.done.IsZero() &&
		g.look.clock.waits(w.done.Add(time.Second)) {
		g.todo.waits = true // its worker is about to report it
		return
	}
	g.todo.do(Admit, m, "all machines of the newer release are ready")
}

// keepOne keeps one of a slot's old machines until the new one is ready, and removes the others.
func (g *groupLook) keepOne(others []*release.Standing) {
	for i, m := range others {
		if i > 0 && g.look.ofUse(others[0]) {
			g.todo.remove(m, "another machine stands for "+m.Slot().String())
		} else if !g.look.course.progress.Undo { // a machine of an undone release need not run again
			g.look.revive(&g.todo, m)
		}
	}
}

// revive starts a machine that died, or that is down unintentionally.
func (l *look) revive(t *todo, m *release.Standing) {
	w := l.memory.machines[m.ID]
	if !m.Died && !m.Stranded() {
		if w != nil && w.starts > 0 && m.Ready && l.clock.now.After(w.started.Add(upFor)) {
			w.starts = 0
		}
		return
	}
	if w != nil && w.verb == Start && !w.done.IsZero() { // it was started, and has died again
		w.at = later(w.at, w.done.Add(startAgain.After(w.starts)))
		w.starts++
		w.done = time.Time{}
	}
	why := "it died"
	if !m.Died {
		why = "it is down, and nobody has asked for that"
	}
	t.do(Start, m, why)
}

// removeUnwanted removes the machines of unwanted slots. Slots that were wanted before the rollout are removed last;
// whole: each group is as it is to be.
func (l *look) removeUnwanted(whole bool) (t todo) {
	c := &l.course
	stay := c.open && (c.blocked || l.want.Head.Paused || c.progress.State == release.Paused || !whole)
	stays := map[string]bool{} // groups of which one old machine stays: see needsOld
	for _, slot := range l.unwanted() {
		old := l.aim.old[slot.Group]
		for _, m := range l.seen.by[slot] {
			switch {
			case !stays[slot.Group] && l.needsOld(slot.Group, old) && m.Spec == old.spec && l.ofUse(m):
				stays[slot.Group] = true
				l.revive(&t, m)
			case stay && old != nil && old.has[slot.Index]:
				l.revive(&t, m)
			default:
				t.remove(m, notWanted(slot))
			}
		}
	}
	return t
}

func notWanted(s release.Slot) string { return s.String() + " is not wanted any more" }

// replace replaces the machines of a slot that are not as wanted, once that is allowed.
func (g *groupLook) replace(v *view, to *side) {
	l := g.look
	leaves := !slices.ContainsFunc(v.others, func(m *release.Standing) bool { return !l.leaves(m) })
	if to == l.aim.old[to.group.Name] && !leaves { // of a release in between: it waits for the present one
		l.revive(&g.todo, v.others[0])
		return
	}
	g.todo.waits = true
	w, at := l.memory.slot(v.slot), l.goesTo(v.others)
	switch { // same worker: the spread stays, and freed ports are free there
	case v.making:
	case at != "":
		w.home, w.only = at, to.group.Order() == release.StartFirst // after a removal, anywhere is better than nowhere
	case leaves:
		w.home, w.only = "", false
	default:
		w.home, w.only = g.home(v, to), false
	}
	asleep := !slices.ContainsFunc(v.others,
		func(m *release.Standing) bool { return !m.Asleep() || l.held[m.ID] != nil })
	two, none := to.group.Surge(to.n)
	why := "its machine is of another release"
	switch {
	case at != "": // one at a time, and without a removal first if possible
		why, none = fmt.Sprintf("somebody wants it at worker %s", at), min(none, 1)
		if two > 0 {
			two, none = 1, 0
		}
	case leaves:
		why = "its machine must go from its worker"
	}
	if !g.swap(v, to, swapping{two, none, asleep, why}) {
		g.keepOne(v.others)
	}
}

// swapping is how a slot's machine may be replaced now.
type swapping struct {
	two, none int  // how many slots of the group may have two machines, and no machine
	asleep    bool // the machine is asleep
	why       string
}

// swap begins to replace a slot's machine, if its group allows that now, and reports whether the old one is removed
// first.
func (g *groupLook) swap(v *view, to *side, may swapping) (first bool) {
	b, ofUse := &g.budget, g.look.ofUse(v.others[0])
	switch {
	case v.making:
	case may.asleep && g.look.course.wakes() && !b.proven && b.judging: // one machine is enough to judge by
	case to.group.Order() == release.StartFirst && b.more < may.two:
		b.more++
		g.make(v, to, may.asleep && g.mayMakeAsleep(), may.why)
	case !ofUse, b.none < may.none:
		if ofUse {
			b.none++
		}
		b.judging = true
		w := g.look.memory.slot(v.slot)
		w.slept, w.gave = may.asleep, ofUse
		for _, m := range v.others {
			g.todo.remove(m, may.why+", and goes first")
		}
		return true
	}
	return false
}
