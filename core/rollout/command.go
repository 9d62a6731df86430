package rollout

import (
	"cmp"
	"fmt"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// runCommand runs the release's command. Until it is done, no machine of the release is made.
func (r *runs) runCommand() {
	l := r.look
	if !l.course.blocked {
		return
	}
	r.docket.give(todo{waits: l.course.runs()})
	c, h := l.want.Release.Command, l.want.Head
	to := l.aim.goal[l.want.Release.CommandGroup().Name]
	replica := ofRun(to, machine.RunCommand, h.Rollout)
	replica.StopAfter = 0
	m := l.seen.commandOf(&replica)
	if !l.course.runs() { // it is paused, or has failed
		if h.Paused && m != nil && m.Succeeded() {
			r.endCommand(m)
		}
		return
	}
	w := l.memory.runs.of(to.group.Name, machine.RunCommand)
	if w.epoch != h.Rollout {
		*w = runWork{making: w.making, epoch: h.Rollout, began: l.clock.now, last: w.last,
			lastTerm: w.lastTerm, after: w.after}
	}
	late, earlier := !l.clock.waits(w.began.Add(c.EndsWithin())), l.seen.earlierCommand(&replica)
	switch {
	case m != nil && m.Over():
		r.endCommand(m)
	case !w.making && w.why != nil && !uncertain(w.why) && fault.CodeOf(w.why) == machine.CodeLaunchFailed:
		r.failCommand(w.why.Error(), w.failed) // it would not start elsewhere either
	case late:
		id := ""
		if m != nil {
			id = m.ID
		}
		r.failCommand("it did not end within "+c.EndsWithin().String()+commandLacks(m, earlier, w), id)
	case m != nil, earlier != nil, w.making, w.made == h.Rollout: // it runs, or another one is being stopped
	default:
		r.start(replica, to.group, w)
	}
}

// commandLacks returns, as the end of a sentence, what kept the command from running.
func commandLacks(has, earlier *release.Standing, w *runWork) string {
	switch {
	case has != nil:
	case earlier != nil:
		return fmt.Sprintf(": machine %s of worker %s, which runs the command of an earlier rollout, has not ended",
			earlier.ID, earlier.Worker)
	case w.why != nil:
		return ": " + w.why.Error()
	}
	return ""
}

// commandOf returns the machine that runs a rollout's command, or nil. After a network partition there may be several:
// a successful one comes first.
func (s *sight) commandOf(run *machine.Replica) (m *release.Standing) {
	for _, x := range s.commands {
		if sameRun(&x.Replica, run) && (m == nil || x.Succeeded() && !m.Succeeded()) {
			m = x
		}
	}
	return m
}

// earlierCommand returns a machine that still runs the command of another rollout, or nil.
func (s *sight) earlierCommand(run *machine.Replica) *release.Standing {
	for _, m := range s.commands {
		if !sameRun(&m.Replica, run) && (!m.Over() || m.State == machine.Destroying) {
			return m
		}
	}
	return nil
}

// endCommand records that the command has ended.
func (r *runs) endCommand(m *release.Standing) {
	next := r.look.course.progress
	switch {
	case m.Succeeded():
		next.Command = release.CommandDone
		r.docket.tellProgress(next)
	case m.Exit != nil && *m.Exit >= 0:
		r.failCommand(fmt.Sprintf("it ended with exit code %d", *m.Exit), m.ID)
	default:
		r.failCommand(cmp.Or(m.Ended, "nobody saw how it ended"), m.ID)
	}
}

// failCommand undoes the rollout, which has made no machine yet, or pauses it if there is no previous release.
func (r *runs) failCommand(why, id string) {
	next, want := r.look.course.progress, r.look.want
	next.Command = release.CommandFailed
	next.Why = "the release command failed: " + why
	next.Failed = []release.Failure{{Group: want.Release.CommandGroup().Name, Machine: id,
		Why: fault.Clip(next.Why, release.MaxReason)}}
	if want.Before != nil {
		next.Undo = true
	} else {
		next.State = release.Paused
		next.Why += "; there is no release to go back to"
	}
	next.Why = fault.Clip(next.Why, release.MaxReason)
	r.docket.tellProgress(next)
}

// tidyCommands stops commands that must not run any more, and removes those of earlier rollouts.
func (r *runs) tidyCommands() {
	t, h, is := todo{}, r.look.want.Head, r.look.course.progress.Command
	for _, m := range r.look.seen.commands {
		current := m.Epoch == h.Rollout && m.Release == h.Release
		switch {
		case m.Goes():
		case !current:
			t.remove(m, "another rollout has begun")
		case !m.Over() && is == release.CommandFailed:
			t.do(Hold, m, "it took too long")
		case !m.Over() && is == release.CommandDone: // on the other side of a partition
			t.do(Hold, m, "another machine has done it")
		}
	}
	r.docket.give(t)
}
