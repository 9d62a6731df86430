package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// survey is what the slots of a group have, and how much more of it may change at once.
type survey struct {
	goal, old *side
	views     []view
	budget    budget
}

// view is a slot in one look.
type view struct {
	slot       release.Slot
	of, others []*release.Standing // as wanted, the one that stays first; and other ones
	making     bool
	ok         bool             // of[0] works
	failure    *release.Failure // why it does not, and will not
}

// does returns what finally happens with a slot, once others permit: its machine stays, is replaced, or is made. The
// steward does this, and a plan reports it.
func (v *view) does() release.Does {
	switch {
	case len(v.of) > 0:
		return release.Keep
	case len(v.others) > 0:
		return release.Renew
	}
	return release.Create
}

// fresh reports whether the slot has a machine as wanted, or is about to.
func (v *view) fresh() bool { return len(v.of) > 0 || v.making }

// machines returns how many machines the slot has, including one that is being made.
func (v *view) machines() int {
	n := len(v.of) + len(v.others)
	if v.making {
		n++
	}
	return n
}

// budget counts a group's slots, to bound how many may change at once.
type budget struct {
	news    int  // slots with a machine as wanted, or about to have one
	more    int  // surplus machines: beyond the first of each slot
	none    int  // slots of news without a working machine
	taking  int  // slots that take over from a machine of another group, without a working one yet
	judging bool // a machine by which the group is judged is up, or about to be
	proven  bool // one has worked
	all     bool // each slot has a machine as wanted, and it gets requests
	ready   bool // each slot has a machine as wanted
}

// surveyGroups surveys the slots of each group, in the order of their After, and returns which replicas fail.
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

// inOrder lists the groups of the target, each after the groups in its After.
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

// viewSlots finds what the slots of a group have, and whether it works.
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

// noteWait records since when a slot has waited for a working machine.
func (l *look) noteWait(v *view, to *side) {
	switch w := l.memory.slots[v.slot]; {
	case v.ok && w != nil:
		w.began, w.gave, w.took = time.Time{}, false, ""
	case !v.ok && len(v.of) > 0:
		l.memory.slot(v.slot).begin(to.spec, l.clock.now)
	}
}

// unwanted lists the slots with machines that are not wanted, in order.
func (l *look) unwanted() []release.Slot {
	return slices.DeleteFunc(slices.SortedFunc(maps.Keys(l.seen.by), release.Slot.Compare), l.aim.wants)
}
