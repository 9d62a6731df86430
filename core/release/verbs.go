package release

import (
	"cmp"
	"maps"
	"time"

	"github.com/soukhq/souk/fault"
)

// Rolled is the status of a rollout.
type Rolled string

// The statuses.
const (
	RolledRunning Rolled = "running" // machines are being replaced
	RolledWaiting Rolled = "waiting" // a step of a canary waits for a promote
	RolledPaused  Rolled = "paused"  // no further machine is replaced
	RolledUndoing Rolled = "undoing" // it failed: the previous machines are being made again
	RolledUndone  Rolled = "undone"  // the previous machines are back
	RolledDone    Rolled = "done"    // all machines are as wanted
)

// Over reports whether a rollout has ended.
func (s Rolled) Over() bool { return s == RolledDone || s == RolledUndone }

// Story describes a rollout.
type Story struct {
	Number  uint64 // of the head that began it
	Release string
	Before  string // the release that an undo returns to; "": none
	InForce string // the release that the machines are to run now
	State   Rolled
	Asked   bool   // of paused: on request; false: it failed
	By      string // the person that requested it
	Step    int    // how many steps of its canary are over
	Steps   int    // how many steps it has; 0: no group has a canary with machines to replace
	Why     string // why it is undone or paused, or what failed while others went on; "": nothing
	Failed  []Failure
	Since   time.Time // since when the state and the step have been so
	Canary  []CanaryAt
}

// CanaryAt is how many replicas of a group are new at a step of its canary.
type CanaryAt struct {
	Group  string `json:"group"`
	New    int    `json:"new"`
	Wanted int    `json:"wanted"`
}

// Tell describes the rollout of a service. fresh returns how many replicas of a group have a machine of the release
// that is ready or rests; nil: they are not counted.
func (r *Service) Tell(fresh func(group string) int) Story {
	h, p := r.Head, &r.Progress
	s := Story{Number: h.Rollout, Release: h.Release, InForce: h.InForce(*p).Release, State: RolledRunning,
		Steps: r.steps(), Since: h.Began()}
	if h.Before != nil {
		s.Before = h.Before.Release
	}
	if p.Of(h) {
		s.Step, s.Why, s.Failed = min(p.Step, s.Steps), p.Why, p.Failed
		if !p.At.IsZero() {
			s.Since = p.At
		}
	}
	for _, g := range r.canaries() {
		if n := h.Wanted(g, r.Scaled); s.Step < len(g.Steps()) {
			s.Canary = append(s.Canary, CanaryAt{g.Name, g.NewAt(s.Step, n), n})
		}
	}
	switch {
	case r.undone() && p.State == Done:
		s.State = RolledUndone
	case p.Of(h) && p.State == Done:
		s.State = RolledDone
	case p.Of(h) && p.State == Paused:
		s.State = RolledPaused
	case r.undone():
		s.State = RolledUndoing
	case h.Paused:
		asked := h.pausedBy()
		s.State, s.Asked, s.By, s.Since = RolledPaused, true, asked.By, asked.At
	case fresh != nil && r.waits(s.Step, fresh):
		s.State = RolledWaiting
	}
	return s
}

// undone reports whether the previous target is wanted again.
func (r *Service) undone() bool { return r.Progress.Of(r.Head) && r.Progress.Undo }

// canaries returns the groups with a canary that have machines to replace.
func (r *Service) canaries() (out []*Group) {
	if r.Release == nil || r.Before == nil || r.Head.Before == nil {
		return nil
	}
	for i := range r.Release.Groups {
		if g := &r.Release.Groups[i]; len(g.Steps()) > 0 && r.Before.Group(g.Name) != nil {
			out = append(out, g)
		}
	}
	return out
}

// steps returns how many steps the longest canary has.
func (r *Service) steps() (n int) {
	for _, g := range r.canaries() {
		n = max(n, len(g.Steps()))
	}
	return n
}

// waits reports whether, after over steps, the rollout only waits for a promote.
func (r *Service) waits(over int, fresh func(string) int) (waits bool) {
	if r.Head.Promoted > over {
		return false
	}
	for _, g := range r.canaries() {
		steps := g.Steps()
		if over >= len(steps) {
			continue
		}
		n := r.Head.Wanted(g, r.Scaled)
		if fresh(g.Name) < g.NewAt(over, n) {
			return false
		}
		waits = waits || steps[over].For == nil
	}
	return waits
}

// Began returns when the rollout of h began, or as far back as is known.
func (h *Head) Began() time.Time {
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

// Resolve turns a requested change into a full one, by its Why; it returns Change{} if nothing changes.
func (r *Service) Resolve(c Change) (Change, error) {
	switch c.Why {
	case WhyScale:
		return r.Scale(c.Counts), nil
	case WhyRestart:
		return Change{Restart: true, Why: WhyRestart}, nil
	case WhyBack:
		return r.Rollback(c.Release)
	case WhyPause:
		return r.Pause()
	case WhyResume:
		return r.Resume(), nil
	case WhyPromote:
		return r.Promote(c.Promote, c.All)
	case WhyMove:
		return r.Move(c.Moves, c.Stands, c.At)
	}
	return Change{}, fault.New(fault.Internal, codeChange, "there is no change of a rollout named %q", c.Why)
}

// Rollback returns the change to an earlier release; "" is the one before the newest rollout. The error is a
// Precondition, code no_earlier_release: there is none, or it is wanted already.
func (r *Service) Rollback(release string) (Change, error) {
	h := r.Head
	in := h.InForce(r.Progress)
	switch {
	case release != "" && release == in.Release && in == h.Target():
		return Change{}, nil
	case release != "":
		return Change{Release: release, Why: WhyBack}, nil
	case in != h.Target():
		return Change{}, noEarlier("the newest rollout of %s is undone already, and release %s is wanted again: "+
			"name another one of those that \"souk releases %s\" lists", r.App, Short(in.Release), r.App)
	case h.Before == nil:
		return Change{}, noEarlier("the newest rollout of %s, of release %s, follows on no rollout of another "+
			"release that was done: name one of those that \"souk releases %s\" lists", r.App, Short(h.Release), r.App)
	case h.Before.Release == h.Release:
		return Change{}, noEarlier("the newest rollout of %s makes machines of release %s again, which stood before "+
			"it, too, as a restart does or a rollback of one that was not done: name another one of those that "+
			"\"souk releases %s\" lists", r.App, Short(h.Release), r.App)
	}
	return Change{Release: h.Before.Release, Why: WhyBack}, nil
}

func noEarlier(format string, args ...any) error {
	return fault.New(fault.Precondition, codeNoEarlierRelease, format, args...)
}

// Pause returns the change that stops further replacements, or none if the rollout is paused already. The error is a
// Precondition, code rollout_over: there is nothing to pause.
func (r *Service) Pause() (Change, error) {
	s := r.Tell(nil)
	switch {
	case s.State == RolledDone:
		return Change{}, isOver("the rollout of %s is over, so there is nothing to pause", r.App)
	case r.undone():
		return Change{}, isOver("the rollout of %s has failed and is undone, which cannot be paused: deploy another "+
			"release, or \"souk resume %s\" tries this one again", r.App, r.App)
	case s.State == RolledPaused:
		return Change{}, nil
	}
	return Change{Pause: true, Why: WhyPause}, nil
}

// Resume returns the change that continues a paused rollout, or retries an undone one. A rollout that runs or is done
// stays as it is.
func (r *Service) Resume() Change {
	if r.Tell(nil).State == RolledPaused || r.undone() {
		return Change{Resume: true, Why: WhyResume}
	}
	return Change{}
}

// Promote returns the change after which this many steps of a canary are over; 0: one more than now. all includes the
// last one. The error is a Precondition, code no_canary or rollout_over, or Invalid, code steps.
func (r *Service) Promote(steps int, all bool) (Change, error) {
	s := r.Tell(nil)
	switch {
	case s.State == RolledDone:
		return Change{}, isOver("the rollout of %s is over, so there is nothing to promote", r.App)
	case r.undone():
		return Change{}, isOver("the rollout of %s has failed and is undone, so there is nothing to promote: "+
			"deploy another release, or \"souk resume %s\" tries this one again", r.App, r.App)
	case s.Steps == 0:
		return Change{}, fault.New(fault.Precondition, codeNoCanary, "release %s of %s has no group with "+
			"update.strategy = canary and machines of an earlier release, so there is nothing to promote",
			Short(r.Head.Release), r.App)
	case all && steps != 0:
		return Change{}, fault.New(fault.Invalid, codeSteps, "steps = %d and all both say how far to promote: send "+
			"one of them", steps)
	case steps < 0 || steps > s.Steps:
		return Change{}, fault.New(fault.Invalid, codeSteps,
			"steps = %d, but the canary of %s has %d steps: send 1 to %d, or leave steps out to promote by one step",
			steps, r.App, s.Steps, s.Steps)
	case all:
		steps = s.Steps
	}
	return Change{Promote: cmp.Or(steps, min(s.Step+1, s.Steps)), Why: WhyPromote}, nil
}

func isOver(format string, args ...any) error {
	return fault.New(fault.Precondition, codeRolloutOver, format, args...)
}

// Scale returns the change that sets the numbers of groups' machines. A group whose autoscale has chosen the same
// number stays as it is.
func (r *Service) Scale(counts map[string]int) Change {
	in := r.Release
	if r.undone() {
		in = r.Before
	}
	counts = maps.Clone(counts)
	maps.DeleteFunc(counts, func(group string, n int) bool {
		if in == nil {
			return false
		}
		g := in.Group(group)
		return g != nil && g.Autoscale != nil && r.Head.Wanted(g, r.Scaled) == n
	})
	if len(counts) == 0 {
		return Change{}
	}
	return Change{Counts: counts, Why: WhyScale}
}
