package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// failure is a replica that failed, and what the rollout does about it.
type failure struct {
	release.Failure
	then release.OnFailure
}

// failing returns why a slot's new machine, or the lack of one, makes a rollout fail; nil: it does not.
func (l *look) failing(v *view, to *side) *release.Failure {
	if !l.course.judged() || !to.changed {
		return nil
	}
	f := &release.Failure{Group: v.slot.Group, Index: v.slot.Index}
	late := l.late(v.slot, to)
	if len(v.of) == 0 {
		f.Why = l.whyUnmade(v, to, late)
	} else {
		f.Machine, f.Why = v.of[0].ID, l.whyUseless(v, to, late)
	}
	if f.Why == "" {
		return nil
	}
	return f
}

// whyUseless returns why the first machine of a slot makes the rollout fail; "": it does not.
func (l *look) whyUseless(v *view, to *side, late bool) (why string) {
	m := v.of[0]
	w, name, reason := l.memory.machine(m.ID), fmt.Sprintf("machine %s of worker %s", m.ID, m.Worker), ""
	switch h := l.held[m.ID]; {
	case h != nil:
		return h.Why
	case m.Died && m.State == machine.Failed, m.Deaths > w.deaths: // ended by itself, not by its worker (StopAfter)
		why, reason = name+" ended by itself", m.Ended
	case late && !v.ok && !m.Ready: // a ready one is only watched for MinUp
		why, reason = fmt.Sprintf("%s was not ready within %v", name, to.group.Deadline()), m.Unfit
	case late && !v.ok && w.breaks != "":
		why, reason = fmt.Sprintf("%s was not ready for %v without a break within %v", name, to.group.MinUp(),
			to.group.Deadline()), w.breaks
	}
	if reason != "" {
		why += ": " + reason
	}
	return why
}

// whyUnmade returns why a slot without a machine makes the rollout fail: none could be made in time, or none ever can
// be. "": it does not.
func (l *look) whyUnmade(v *view, to *side, late bool) string {
	w := l.memory.slots[v.slot]
	switch {
	case l.unfilled(v, to):
		return ""
	case w != nil && w.why != nil && w.spec == to.spec && w.failures >= finalTries && final(w.why):
		return fmt.Sprintf("no machine can be made for %s: %v", v.slot, w.why)
	case !late:
		return ""
	}
	why := fmt.Sprintf("no machine could be made for %s within %v", v.slot, to.group.Deadline())
	if w.why != nil {
		why += ": " + w.why.Error()
	}
	return why
}

// finalTries is how often a machine must be refused for a lasting reason before it counts.
const finalTries = 3

// final reports whether a refusal has a lasting reason, so that another try does not help.
func final(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Invalid || kind == fault.Denied || fault.CodeOf(err) == fault.CodeImageUnknown
}

// late reports whether a slot has waited too long for a working machine.
func (l *look) late(s release.Slot, to *side) bool {
	w := l.memory.slots[s]
	return w != nil && !w.began.IsZero() && w.beganFor == to.spec && !l.clock.waits(w.began.Add(to.group.Deadline()))
}

// judge decides about the rollout: fails are its failed replicas, all is how far its groups have come.
func (l *look) judge(d *docket, fails []failure, all reached) (t todo) {
	c := &l.course
	if !c.open || c.blocked {
		return t
	}
	next, failed := l.fail(fails)
	switch {
	case c.judged() && failed:
		d.tellProgress(next)
	case c.progress.Step < l.aim.stepsOfCanary() && !c.progress.Undo:
		return l.passStep(d, all.short)
	case all.whole && !l.leftover() && l.memory.under == l.memory.ofRuns: // an order may still make one
		next = c.progress
		next.State = release.Done
		if len(fails) > 0 {
			next.Failed, next.Why = reasons(fails), whyOf(fails)
		}
		d.tellProgress(next)
	}
	return t
}

// stepsOfCanary returns how many steps the longest canary of the rollout has.
func (a *aim) stepsOfCanary() (n int) {
	for name, to := range a.goal {
		if a.old[name] != nil {
			n = max(n, len(to.group.Steps()))
		}
	}
	return n
}

// leftover reports whether there are unwanted machines that can be removed.
func (l *look) leftover() bool {
	return slices.ContainsFunc(l.unwanted(), func(slot release.Slot) bool {
		return slices.ContainsFunc(l.seen.by[slot], func(m *release.Standing) bool { return !m.Unheard })
	})
}

// fail returns the rollout's progress after failures; false: it goes on.
func (l *look) fail(fails []failure) (next release.Progress, failed bool) {
	then := release.OnFailure("")
	for _, f := range fails {
		if then == "" || then == release.GoOn || f.then == release.Undo {
			then = f.then
		}
	}
	next = l.course.progress
	if then == "" || then == release.GoOn {
		return next, false
	}
	why := whyOf(fails)
	switch {
	case next.Undo:
		next.State, why = release.Paused, "it was undone ("+next.Why+"), and then "+why
	case then == release.Undo && l.want.Before != nil:
		next.Undo, next.Step = true, 0
	case then == release.Undo:
		next.State, why = release.Paused, why+"; there is no release to go back to"
	default:
		next.State = release.Paused
	}
	next.Why, next.Failed = fault.Clip(why, release.MaxReason), reasons(fails)
	return next, true
}

// whyOf returns why the rollout failed, in one sentence.
func whyOf(fails []failure) string {
	if n := len(fails) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more replicas failed)", fails[0].Why, n)
	}
	return fails[0].Why
}

func reasons(fails []failure) (out []release.Failure) {
	for _, f := range fails[:min(len(fails), release.MaxFailed)] {
		out = append(out, f.Failure)
	}
	return out
}

// passStep moves a canary on to its next step, once the present one is over. short: it is not reached yet.
func (l *look) passStep(d *docket, short bool) (t todo) {
	at := &l.memory.stage.reached
	if !l.course.judged() || short {
		*at = time.Time{}
		return t
	}
	if at.IsZero() {
		*at = l.clock.now
	}
	step := l.course.progress.Step
	lasts, timed := l.aim.lastsFor(step)
	if l.want.Head.Promoted <= step && (!timed || l.clock.waits(at.Add(lasts))) {
		return todo{waits: timed}
	}
	next := l.course.progress
	next.Step++
	d.tellProgress(next)
	return t
}

// lastsFor returns how long a step of the rollout's canaries lasts; false: until a promote.
func (a *aim) lastsFor(step int) (lasts time.Duration, timed bool) {
	timed = true
	for name, to := range a.goal {
		steps := to.group.Steps()
		switch {
		case a.old[name] == nil || step >= len(steps):
		case steps[step].For == nil:
			timed = false
		default:
			lasts = max(lasts, steps[step].For.Duration)
		}
	}
	return lasts, timed
}
