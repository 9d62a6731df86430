package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// survey is what the slots of a group have, and how many more of them may be under way.
type survey struct {
	goal, old *side
	views     []view
	budget    budget
}

// view is a slot as one look finds it.
type view struct {
	slot       release.Slot
	of, others []*release.Standing // as it is to be, the one that stays first; and otherwise
	making     bool
	ok         bool             // the first of them is of use
	failure    *release.Failure // why it is not, and will not be
}

// does returns what is to become of a slot, in the end and as far as others let it: its machine stays, another takes its
// place, or there is none. The steward does this, and a plan says it.
func (v *view) does() release.Does {
	switch {
	case len(v.of) > 0:
		return release.Keep
	case len(v.others) > 0:
		return release.Renew
	}
	return release.Create
}

// fresh reports whether the slot has what it is to have, or is about to.
func (v *view) fresh() bool { return len(v.of) > 0 || v.making }

// machines returns how many machines the slot has, or is about to.
func (v *view) machines() int {
	n := len(v.of) + len(v.others)
	if v.making {
		n++
	}
	return n
}

// budget is how many more slots of a group may be under way.
type budget struct {
	news    int  // that have what they are to have, or are about to
	more    int  // machines that they have beside the first of each
	none    int  // of them that have none of use
	taking  int  // of them that take the place of a machine of another group, and have none of use yet
	judging bool // a machine is up, or on its way, by which the group is judged
	proven  bool // one was of use
	all     bool // each slot has what it is to have, and requests go there
	ready   bool // each slot has what it is to have
}

// surveyGroups finds what the slots of each group have, a group after those that it comes after, and which replicas fail.
func (l *look) surveyGroups() (out []*survey, fails []failure) {
	for _, name := range l.aim.inOrder() {
		s := &survey{goal: l.aim.goal[name], old: l.aim.old[name]}
		l.viewSlots(s)
		for i := range s.views {
			v := &s.views[i]
			l.noteWait(v, s.goal)
			if v.failure = l.failing(v, s.goal); v.failure != nil {
				v.failure.Why = fault.Clip(v.failure.Why, release.MaxReason)
				fails = append(fails, failure{*v.failure, s.goal.group.OnFailure()})
			}
			l.enterView(v, s)
		}
		out = append(out, s)
	}
	return out, fails
}

// inOrder lists the groups that are in force, each after those that it comes after.
func (a *aim) inOrder() (out []string) {
	over := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if over[name] {
			return
		}
		over[name] = true
		for _, before := range a.goal[name].group.After {
			visit(before)
		}
		out = append(out, name)
	}
	for _, name := range slices.Sorted(maps.Keys(a.goal)) {
		visit(name)
	}
	return out
}

// viewSlots finds what the slots of a group have, and whether that is of use.
func (l *look) viewSlots(s *survey) {
	to, b := s.goal, &s.budget
	for _, index := range to.slots {
		v := view{slot: release.Slot{Group: to.group.Name, Index: index}}
		v.of, v.others = l.split(v.slot, to)
		v.making = l.memory.makes(v.slot, to.spec)
		if len(v.of) > 0 {
			w := l.memory.machine(v.of[0].ID)
			w.good = l.proves(v.of[0], to.group, len(v.others) > 0) || w.good
			b.proven = b.proven || w.good
		}
		s.views = append(s.views, v)
	}
	for i := range s.views {
		v := &s.views[i]
		v.ok = len(v.of) > 0 && l.counts(v.of[0], to.group, len(v.others) > 0) &&
			(b.proven || !l.course.wakes() || !v.of[0].Asleep() || !to.changed)
	}
	b.ready = true
}

// enterView counts a slot in its group's budget.
func (l *look) enterView(v *view, s *survey) {
	b, unfilled := &s.budget, l.unfilled(v, s.goal)
	b.judging = b.judging || v.failure == nil && (v.making || len(v.of) > 0 && !v.of[0].Asleep())
	if v.fresh() {
		b.news++
	}
	if v.failure == nil || s.goal.group.OnFailure() != release.GoOn {
		b.more += max(0, v.machines()-1)
		if !slices.ContainsFunc(v.of, l.ofUse) && !slices.ContainsFunc(v.others, l.ofUse) && !unfilled {
			b.none++
		}
	}
	b.ready = b.ready && (v.ok || unfilled)
	if w := l.memory.slots[v.slot]; w != nil && w.took != "" && !v.ok {
		b.taking++
	}
}

// noteWait notes since when a slot waits for a machine of use.
func (l *look) noteWait(v *view, to *side) {
	switch w := l.memory.slots[v.slot]; {
	case v.ok && w != nil:
		w.began, w.gave, w.took = time.Time{}, false, ""
	case !v.ok && len(v.of) > 0:
		l.memory.slot(v.slot).begin(to.spec, l.clock.now)
	}
}

// unwanted lists the slots that have machines and are not wanted, in order.
func (l *look) unwanted() []release.Slot {
	return slices.DeleteFunc(slices.SortedFunc(maps.Keys(l.seen.by), release.Slot.Compare), l.aim.wants)
}
