package rollout

import (
	"cmp"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// Rolled is what a rollout has come to.
type Rolled string

// What it can have come to.
const (
	RolledRunning Rolled = "running" // machines are being replaced
	RolledWaiting Rolled = "waiting" // a step of a canary lasts until it is promoted
	RolledPaused  Rolled = "paused"  // no further machine is replaced
	RolledUndoing Rolled = "undoing" // it failed: machines are being made again as they were before
	RolledUndone  Rolled = "undone"  // they are
	RolledDone    Rolled = "done"    // all machines are as wanted
)

// Over reports whether a rollout goes no further by itself.
func (s Rolled) Over() bool { return s == RolledDone || s == RolledUndone }

// Story tells of the rollout of a head.
type Story struct {
	Number  uint64 // of the head that began it
	Release string
	Before  string // the release that an undo returns to; "": none
	State   Rolled
	Asked   bool   // of paused: somebody asked for it; else it failed
	By      string // who asked
	Step    int    // how many steps of its canary are over
	Steps   int    // how many it has; 0: no group has a canary
	Why     string // why it is undone or paused; "": not
	Failed  []Failure
	Since   time.Time // since when state and step are so
}

// Tell tells of the rollout of a head whose release is r (nil: not here), which is as far as p. ok is false where a souk
// wrote the head that knew of no rollouts.
func Tell(h *Head, r *Release, p *Progress) (s Story, ok bool) {
	if h.Rollout == 0 {
		return Story{}, false
	}
	s = Story{Number: h.Rollout, Release: h.Release, State: RolledRunning, Steps: r.canarySteps(), Since: h.began()}
	if h.Before != nil {
		s.Before = h.Before.Release
	}
	if p.Of(h) {
		s.Step, s.Why, s.Failed = min(p.Step, s.Steps), p.Why, p.Failed
		if !p.At.IsZero() {
			s.Since = p.At
		}
	}
	switch asked := h.pausedBy(); {
	case p.Of(h) && p.Undo && p.State == Done:
		s.State = RolledUndone
	case p.Of(h) && p.Undo:
		s.State = RolledUndoing
	case p.Of(h) && p.State == Done:
		s.State = RolledDone
	case p.Of(h) && p.State == Paused:
		s.State = RolledPaused
	case h.Paused:
		s.State, s.Asked, s.By, s.Since = RolledPaused, true, asked.By, asked.At
	case r.waits(s.Step) && h.Promoted <= s.Step:
		s.State = RolledWaiting
	}
	return s, true
}

// canarySteps returns how many steps the longest canary of the release has.
func (r *Release) canarySteps() (n int) {
	if r == nil {
		return 0
	}
	for i := range r.Groups {
		n = max(n, len(r.Groups[i].steps()))
	}
	return n
}

// waits reports whether, after so many steps, a group of the release waits for a promote.
func (r *Release) waits(over int) bool {
	if r == nil {
		return false
	}
	for i := range r.Groups {
		if steps := r.Groups[i].steps(); over < len(steps) && steps[over].For == nil {
			return true
		}
	}
	return false
}

// began returns when the rollout of h began, or as far back as is known.
func (h *Head) began() time.Time {
	at := h.At
	for _, p := range h.Past {
		if p.Number < h.Rollout {
			break
		}
		at = p.At
	}
	return at
}

// pausedBy returns the head that paused the rollout of h.
func (h *Head) pausedBy() Past {
	if h.Why == WhyPause {
		return h.past()
	}
	for _, p := range h.Past {
		if p.Number >= h.Rollout && p.Why == WhyPause {
			return p
		}
	}
	return h.past()
}

// noChange is a change that changes nothing.
func noChange() Change { return Change{} }

// Rollback returns the change that has a release wanted again; "" is the one that was before the newest rollout. app is
// for the sentence of a Precondition, code no_earlier_release: there is none, or it is wanted already.
func (h *Head) Rollback(app, release string, p *Progress) (Change, error) {
	in := h.InForce(*p)
	switch {
	case release != "" && release == in.Release && in == h.target():
		return noChange(), nil
	case release != "":
		return Change{Release: release, Why: WhyBack}, nil
	case in != h.target():
		return noChange(), noEarlier("the newest rollout of %s is undone already, and release %s is wanted again: "+
			"name another one of those that \"souk releases %s\" lists", app, Short(in.Release), app)
	case h.Before == nil:
		return noChange(), noEarlier("no release of %s is known to have stood before release %s: name one of those "+
			"that \"souk releases %s\" lists", app, Short(h.Release), app)
	case h.Before.Release == h.Release:
		return noChange(), noEarlier("the newest rollout of %s is a restart, so release %s stood before it, too: name "+
			"another one of those that \"souk releases %s\" lists", app, Short(h.Release), app)
	}
	return Change{Release: h.Before.Release, Why: WhyBack}, nil
}

func noEarlier(format string, args ...any) error {
	return fault.New(fault.Precondition, "no_earlier_release", format, args...)
}

// Pause returns the change by which no further machine is replaced. A rollout that is paused stays so. r is the release
// of h. The error is a Precondition, code rollout_over: there is nothing to pause.
func (h *Head) Pause(app string, r *Release, p *Progress) (Change, error) {
	s, told := Tell(h, r, p)
	switch {
	case !told || s.State == RolledDone:
		return noChange(), isOver("the rollout of %s is over, so there is nothing to pause", app)
	case s.State == RolledUndoing || s.State == RolledUndone:
		return noChange(), isOver("the rollout of %s has failed and is undone, which cannot be paused: deploy another "+
			"release, or \"souk resume %s\" tries this one again", app, app)
	case s.State == RolledPaused:
		return noChange(), nil
	}
	return Change{Pause: true, Why: WhyPause}, nil
}

// Resume returns the change by which a rollout goes on that is paused, or is tried again that was undone. One that runs
// or is done stays as it is.
func (h *Head) Resume(r *Release, p *Progress) Change {
	switch s, told := Tell(h, r, p); {
	case !told, s.State == RolledRunning, s.State == RolledWaiting, s.State == RolledDone:
		return noChange()
	}
	return Change{Resume: true, Why: WhyResume}
}

// Promote returns the change by which so many steps of a canary are over; 0: one more than are. all: the last one is,
// too. r is the release of h. The error is a Precondition, code no_canary or rollout_over, or Invalid, code steps.
func (h *Head) Promote(app string, r *Release, p *Progress, steps int, all bool) (Change, error) {
	s, told := Tell(h, r, p)
	switch {
	case !told || s.State == RolledDone:
		return noChange(), isOver("the rollout of %s is over, so there is nothing to promote", app)
	case s.State == RolledUndoing || s.State == RolledUndone:
		return noChange(), isOver("the rollout of %s has failed and is undone, so there is nothing to promote: "+
			"deploy another release, or \"souk resume %s\" tries this one again", app, app)
	case s.Steps == 0:
		return noChange(), fault.New(fault.Precondition, "no_canary", "release %s of %s has no group with "+
			"update.strategy = canary (its groups are %s), so there is nothing to promote", Short(h.Release), app,
			strings.Join(r.Named(), ", "))
	case all && steps != 0:
		return noChange(), fault.New(fault.Invalid, "steps", "steps = %d and all both say how far to promote: send "+
			"one of them", steps)
	case steps < 0 || steps > s.Steps:
		return noChange(), fault.New(fault.Invalid, "steps", "steps = %d, and the canary of %s has %d: send 1 to %d, "+
			"or leave it out for one more than are over", steps, app, s.Steps, s.Steps)
	case all:
		steps = s.Steps
	}
	return Change{Promote: cmp.Or(steps, min(s.Step+1, s.Steps)), Why: WhyPromote}, nil
}

func isOver(format string, args ...any) error {
	return fault.New(fault.Precondition, "rollout_over", format, args...)
}
