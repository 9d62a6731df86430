package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Progress is how far a rollout is, and what was decided of it: what nobody can see from the machines. Its service's
// steward writes it when that changes. The zero value is of none.
type Progress struct {
	Rollout uint64    `json:"rollout"` // Head.Rollout; with Release it names the rollout
	Release string    `json:"release"`
	State   State     `json:"state,omitempty"` // "": it runs
	Undo    bool      `json:"undo,omitempty"`  // what was before is wanted again
	Step    int       `json:"step,omitempty"`  // how many steps of a canary are over
	Command Commanded `json:"command,omitempty"`
	Why     string    `json:"why,omitempty"` // why it is undone or paused, one sentence
	Failed  []Failure `json:"failed,omitempty"`
	At      time.Time `json:"at,omitzero"` // since when State, Undo and Step are so
}

// State is what became of a rollout.
type State string

// The states of a rollout.
const (
	Done   State = "done"   // all machines are as wanted: with Undo, as they were before
	Paused State = "paused" // it failed, and goes on when somebody says so
)

// Failure is a replica that failed, and why.
type Failure struct {
	Group   string `json:"group"`
	Index   int    `json:"index"`
	Machine string `json:"machine,omitempty"`
	Why     string `json:"why"` // one sentence
}

// Bounds of Progress.
const (
	maxFailed = 8
	maxReason = 400 // bytes
)

// Of reports whether p tells of the rollout of a head.
func (p *Progress) Of(h *Head) bool { return p.Rollout == h.Rollout && p.Release == h.Release }

// Check refuses a progress that no steward writes.
func (p *Progress) Check() error {
	ok := len(p.Command) <= maxText && len(p.Release) <= maxText && len(p.Why) <= maxReason &&
		len(p.Failed) <= maxFailed && p.Step >= 0 && p.Step <= MaxSteps
	for _, f := range p.Failed {
		ok = ok && len(f.Group) <= maxText && len(f.Machine) <= maxText && len(f.Why) <= maxReason
	}
	if !ok {
		return fault.New(fault.Invalid, "progress", "the progress of a rollout has texts of at most %d bytes, at most "+
			"%d replicas that failed and %d steps", maxReason, maxFailed, MaxSteps)
	}
	return nil
}

// failure is a replica that failed, and what is to become of the rollout for it.
type failure struct {
	Failure
	then OnFailure
}

// failing returns why the machine that a rollout has made for a slot, or is to make, makes it fail; nil: it does not.
func (l *look) failing(v *view, to *side) *Failure {
	if !l.course.judged() || !to.changed {
		return nil
	}
	f := &Failure{Group: v.slot.Group, Index: v.slot.Index}
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

// whyUseless says why the first machine of a slot makes the rollout fail; "": it does not.
func (l *look) whyUseless(v *view, to *side, late bool) (why string) {
	m := v.of[0]
	w, name, reason := l.memory.machine(m.ID), fmt.Sprintf("machine %s of worker %s", m.ID, m.Worker), ""
	switch h := l.held[m.ID]; {
	case h != nil:
		return h.Why
	case m.Died && m.State == machine.Failed, m.Deaths > w.deaths: // not by its worker, see StopAfter
		why, reason = name+" ended by itself", m.Ended
	case late && !v.ok && !m.Ready: // one that is ready is only watched for minUp
		why, reason = fmt.Sprintf("%s was not ready within %v", name, to.group.deadline()), m.Unfit
	case late && !v.ok && w.breaks != "":
		why, reason = fmt.Sprintf("%s was not ready for %v without a break within %v", name, to.group.minUp(),
			to.group.deadline()), w.breaks
	}
	if reason != "" {
		why += ": " + reason
	}
	return why
}

// whyUnmade says why a slot that has no machine makes the rollout fail: none could be made in time, or none ever can. "": it does
// not.
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
	why := fmt.Sprintf("no machine could be made for %s within %v", v.slot, to.group.deadline())
	if w.why != nil {
		why += ": " + w.why.Error()
	}
	return why
}

// finalTries is how often a machine must have been refused for a reason that does not pass by itself.
const finalTries = 3

// final reports whether a machine is refused for what it is, so that another try helps nothing.
func final(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Invalid || kind == fault.Denied || fault.CodeOf(err) == "image_unknown"
}

// late reports whether a slot has waited for longer for a machine of use than it may.
func (l *look) late(s Slot, to *side) bool {
	w := l.memory.slots[s]
	return w != nil && !w.began.IsZero() && w.beganFor == to.spec && !l.clock.waits(w.began.Add(to.group.deadline()))
}

// judge decides what becomes of the rollout, of which these replicas fail, and all groups have come so far.
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
	case all.whole && !l.leftover() && l.memory.under == l.memory.ofRuns: // what is under way may yet bring a machine
		next = c.progress
		next.State = Done
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
			n = max(n, len(to.group.steps()))
		}
	}
	return n
}

// leftover reports whether there are machines that are not wanted, and that can be removed.
func (l *look) leftover() bool {
	return slices.ContainsFunc(l.unwanted(), func(slot Slot) bool {
		return slices.ContainsFunc(l.seen.by[slot], func(m *Standing) bool { return !m.Unheard })
	})
}

// fail returns what becomes of the rollout for what has failed; false: it goes on.
func (l *look) fail(fails []failure) (next Progress, failed bool) {
	then := OnFailure("")
	for _, f := range fails {
		if then == "" || then == GoOn || f.then == Undo {
			then = f.then
		}
	}
	next = l.course.progress
	if then == "" || then == GoOn {
		return next, false
	}
	why := whyOf(fails)
	switch {
	case next.Undo:
		next.State, why = Paused, "it was undone ("+next.Why+"), and then "+why
	case then == Undo && l.want.Before != nil:
		next.Undo, next.Step = true, 0
	case then == Undo:
		next.State, why = Paused, why+"; there is no release to go back to"
	default:
		next.State = Paused
	}
	next.Why, next.Failed = fault.Clip(why, maxReason), reasons(fails)
	return next, true
}

// whyOf says why the rollout failed, in one sentence.
func whyOf(fails []failure) string {
	if n := len(fails) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more replicas failed)", fails[0].Why, n)
	}
	return fails[0].Why
}

func reasons(fails []failure) (out []Failure) {
	for _, f := range fails[:min(len(fails), maxFailed)] {
		out = append(out, f.Failure)
	}
	return out
}

// passStep lets a canary go on to its next step, once the one that it is at is over. short is that this is not reached yet.
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

// lastsFor returns how long a step of the rollout's canaries lasts; false: until it is promoted.
func (a *aim) lastsFor(step int) (lasts time.Duration, timed bool) {
	timed = true
	for name, to := range a.goal {
		steps := to.group.steps()
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
