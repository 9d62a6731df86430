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
func (p *pass) failing(v *view, to *side) *Failure {
	if !p.judged || !to.changed {
		return nil
	}
	f := Failure{Group: v.slot.Group, Index: v.slot.Index}
	late, w := p.late(v.slot, to), p.slots[v.slot]
	if len(v.of) == 0 {
		return p.unmade(v, to, w, late)
	}
	m := v.of[0]
	f.Machine = m.ID
	switch h := p.held[m.ID]; {
	case h != nil:
		f.Why = h.Why
	case m.Died && m.State == machine.Failed, m.Deaths > p.machine(m.ID).deaths: // not by its worker, see StopAfter
		f.Why = fmt.Sprintf("machine %s of worker %s ended by itself", m.ID, m.Worker)
		if m.Ended != "" {
			f.Why += ": " + m.Ended
		}
	case late && !v.ok && !m.Ready: // one that is ready is only watched for minUp
		f.Why = fmt.Sprintf("machine %s of worker %s was not ready within %v", m.ID, m.Worker, to.group.deadline())
		if m.Unfit != "" {
			f.Why += ": " + m.Unfit
		}
	case late && !v.ok && p.machine(m.ID).breaks != "":
		f.Why = fmt.Sprintf("machine %s of worker %s was not ready for %v without a break within %v: %s", m.ID,
			m.Worker, to.group.minUp(), to.group.deadline(), p.machine(m.ID).breaks)
	default:
		return nil
	}
	return p.fail(&f, to)
}

// unmade returns why a slot that has no machine makes the rollout fail: none could be made in time, or none ever can.
func (p *pass) unmade(v *view, to *side, w *slotWork, late bool) *Failure {
	f := Failure{Group: v.slot.Group, Index: v.slot.Index}
	switch {
	case p.unfilled(v, to):
		return nil
	case w != nil && w.why != nil && w.spec == to.spec && w.failures >= finalTries && final(w.why):
		f.Why = fmt.Sprintf("no machine can be made for %s: %v", v.slot, w.why)
	case !late:
		return nil
	default:
		f.Why = fmt.Sprintf("no machine could be made for %s within %v", v.slot, to.group.deadline())
		if w.why != nil {
			f.Why += ": " + w.why.Error()
		}
	}
	return p.fail(&f, to)
}

// finalTries is how often a machine must have been refused for a reason that does not pass by itself.
const finalTries = 3

// final reports whether a machine is refused for what it is, so that another try helps nothing.
func final(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Invalid || kind == fault.Denied || fault.CodeOf(err) == "image_unknown"
}

// late reports whether a slot has waited for longer for a machine of use than it may.
func (p *pass) late(s Slot, to *side) bool {
	w := p.slots[s]
	return w != nil && !w.began.IsZero() && w.beganFor == to.spec && !p.waits(w.began.Add(to.group.deadline()))
}

func (p *pass) fail(f *Failure, to *side) *Failure {
	f.Why = fault.Clip(f.Why, maxReason)
	p.fails = append(p.fails, failure{*f, to.group.onFailure()})
	return f
}

// judge decides what becomes of the rollout.
func (p *pass) judge() {
	if !p.open || p.blocked {
		return
	}
	steps := 0
	for name, to := range p.goal {
		if p.old[name] != nil {
			steps = max(steps, len(to.group.steps()))
		}
	}
	switch next := p.progress; {
	case p.judged && p.failed(&next):
		p.tell(next)
	case p.progress.Step < steps && !p.progress.Undo:
		p.steps()
	case p.wholly() && !p.leftover() && p.under == p.ofRuns: // what is under way may yet bring a machine
		next.State = Done
		if len(p.fails) > 0 {
			next.Failed, next.Why = p.reasons(), p.why()
		}
		p.tell(next)
	}
}

// leftover reports whether there are machines that are not wanted, and that can be removed.
func (p *pass) leftover() bool {
	for slot, list := range p.by {
		if !p.wanted[slot] && slices.ContainsFunc(list, func(m *Standing) bool { return !m.Unheard }) {
			return true
		}
	}
	return false
}

// failed decides what becomes of a rollout for what has failed, and reports whether that is anything new.
func (p *pass) failed(next *Progress) bool {
	then := OnFailure("")
	for _, f := range p.fails {
		if then == "" || then == GoOn || f.then == Undo {
			then = f.then
		}
	}
	if then == "" || then == GoOn {
		return false
	}
	why := p.why()
	switch {
	case p.progress.Undo:
		next.State, why = Paused, "it was undone ("+p.progress.Why+"), and then "+why
	case then == Undo && p.want.Before != nil:
		next.Undo, next.Step = true, 0
	case then == Undo:
		next.State, why = Paused, why+"; there is no release to go back to"
	default:
		next.State = Paused
	}
	next.Why, next.Failed = fault.Clip(why, maxReason), p.reasons()
	return true
}

// why is why the rollout failed, in one sentence.
func (p *pass) why() string {
	if n := len(p.fails) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more replicas failed)", p.fails[0].Why, n)
	}
	return p.fails[0].Why
}

func (p *pass) reasons() (out []Failure) {
	for _, f := range p.fails[:min(len(p.fails), maxFailed)] {
		out = append(out, f.Failure)
	}
	return out
}

// steps lets a canary go on to its next step, once the one that it is at is over.
func (p *pass) steps() {
	if !p.judged || p.short {
		p.Steward.stage.reached = time.Time{}
		return
	}
	if p.stage.reached.IsZero() {
		p.Steward.stage.reached = p.now
	}
	at, timed, last := p.progress.Step, true, time.Duration(0)
	for name, to := range p.goal {
		steps := to.group.steps()
		if p.old[name] == nil || at >= len(steps) {
			continue
		}
		if steps[at].For == nil {
			timed = false
			continue
		}
		last = max(last, steps[at].For.Duration)
	}
	if p.want.Head.Promoted <= at && (!timed || p.waits(p.stage.reached.Add(last))) {
		p.wants = p.wants || timed
		return
	}
	next := p.progress
	next.Step++
	p.tell(next)
}

// tell has the rollout's progress written.
func (p *pass) tell(next Progress) {
	next.At = p.now.UTC()
	if p.out.Tell = p.begun(); p.out.Tell {
		p.progress = next
	}
}
