package rollout

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Command is what runs once, to its end, before a rollout of a new release changes anything.
type Command struct {
	Exec    []string          `json:"exec"`              // of an image what follows it; of the host's programs all of it
	Group   string            `json:"group,omitempty"`   // whose config its machine has; "": the first
	Timeout *machine.Duration `json:"timeout,omitempty"` // from when it is to run until it has ended; nil: 5m
}

// Commanded is what became of the command of a rollout's release.
type Commanded string

// What can have become of it.
const (
	CommandDone   Commanded = "done"   // it ended with 0, so the rollout goes on
	CommandFailed Commanded = "failed" // it did not
)

// Defaults and bounds of a command.
const (
	defaultCommandTime = 5 * time.Minute
	leastCommandTime   = time.Second
	mostCommandTime    = 24 * time.Hour
	mostCommand        = 64 // words
)

// CommandEnv is what the environment of a release's command has, beside that of its group.
const CommandEnv = "RELEASE_COMMAND"

func (c *Command) timeout() time.Duration {
	if c.Timeout == nil {
		return defaultCommandTime
	}
	return c.Timeout.Duration
}

// commandGroup returns the group whose config the release's command has.
func (r *Release) commandGroup() *Group { return r.Group(cmp.Or(r.Command.Group, r.Groups[0].Name)) }

// checkCommand refuses a command that cannot be run.
func (r *Release) checkCommand() error {
	c := r.Command
	if c == nil {
		return nil
	}
	t := c.timeout()
	switch {
	case len(c.Exec) < 1 || len(c.Exec) > mostCommand || c.Exec[0] == "":
		return invalid("release_command has 1 to %d words, the first of which is not empty; got %d", mostCommand,
			len(c.Exec))
	case r.commandGroup() == nil:
		return invalid("release_command_group is %s, which the release does not have; it has %s",
			fault.Clip(c.Group, 80), strings.Join(r.Named(), ", "))
	case t < leastCommandTime || t > mostCommandTime:
		return invalid("release_command_timeout is %v; %v to %v are possible", t, leastCommandTime, mostCommandTime)
	}
	return nil
}

// config returns the config of the command's machine: that of its group without what is for machines that are kept up, or
// that two machines cannot have.
func (c *Command) config(of *machine.Config) *machine.Config {
	out := *of
	out.Services, out.Mounts, out.Checks = nil, nil, nil
	if n := of.Network; n != nil { // what nobody may do from the group's machines nobody may do from this one
		out.Network = &machine.Network{Mode: n.Mode, Egress: n.Egress}
	}
	out.Restart = &machine.Restart{Policy: "no"}
	out.Env = map[string]string{CommandEnv: "1"}
	for k, v := range of.Env {
		out.Env[k] = v
	}
	if machine.IsHostImage(of.Image) || len(of.Init.Exec) > 0 {
		out.Init.Exec, out.Init.Cmd = c.Exec, nil
	} else {
		out.Init.Cmd = c.Exec
	}
	return &out
}

// runsCommand reports whether the rollout of n, which follows on h, begins with its release's command. A deploy does. What
// begins another rollout of the same release does where the command has not been done, and a rollback never.
func (n *Head) runsCommand(h *Head, c *Change, release *Release, p Progress) bool {
	switch {
	case h != nil && n.Rollout == h.Rollout:
		return h.Command
	case release.Command == nil:
		return false
	case c.Release != "" && c.Why == WhyDeploy:
		return true
	}
	return h != nil && h.Command && n.Release == h.Release && !(p.Of(h) && p.Command == CommandDone)
}

// runCommand sees to the command of the release. Until it is done nothing of the release is made.
func (r *runs) runCommand() {
	l := r.look
	if !l.course.blocked {
		return
	}
	r.docket.give(todo{waits: l.course.runs()})
	c, h := l.want.Release.Command, l.want.Head
	to := l.aim.goal[l.want.Release.commandGroup().Name]
	replica := ofRun(to, machine.RunCommand, h.Rollout)
	replica.StopAfter = 0
	m := l.seen.commandOf(&replica)
	if !l.course.runs() { // it is paused, or has failed
		if h.Paused && m != nil && m.succeeded() {
			r.endCommand(m)
		}
		return
	}
	w := l.memory.runs.of(to.group.Name, machine.RunCommand)
	if w.epoch != h.Rollout {
		*w = runWork{making: w.making, epoch: h.Rollout, began: l.clock.now, last: w.last,
			lastTerm: w.lastTerm, after: w.after}
	}
	late, earlier := !l.clock.waits(w.began.Add(c.timeout())), l.seen.earlierCommand(&replica)
	switch {
	case m != nil && m.Over():
		r.endCommand(m)
	case !w.making && w.why != nil && !uncertain(w.why) && fault.CodeOf(w.why) == machine.CodeLaunchFailed:
		r.failCommand(w.why.Error(), w.failed) // nor would it start elsewhere
	case late:
		id := ""
		if m != nil {
			id = m.ID
		}
		r.failCommand("it did not end within "+c.timeout().String()+commandLacks(m, earlier, w), id)
	case m != nil, earlier != nil, w.making, w.made == h.Rollout: // it runs, or another one is being stopped
	default:
		r.start(replica, to.group, w)
	}
}

// commandLacks says, as the end of a sentence, what kept the command from running.
func commandLacks(has, earlier *Standing, w *runWork) string {
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

// commandOf returns the machine that runs a rollout's command; nil: there is none. After a cut there may be several: one that has
// succeeded comes first.
func (s *sight) commandOf(run *machine.Replica) (m *Standing) {
	for _, x := range s.commands {
		if sameRun(&x.Replica, run) && (m == nil || x.succeeded() && !m.succeeded()) {
			m = x
		}
	}
	return m
}

// earlierCommand returns a machine that runs another command than a rollout's and has not ended; nil: there is none.
func (s *sight) earlierCommand(run *machine.Replica) *Standing {
	for _, m := range s.commands {
		if !sameRun(&m.Replica, run) && (!m.Over() || m.State == machine.Destroying) {
			return m
		}
	}
	return nil
}

// succeeded reports whether a run ended with 0.
func (m *Standing) succeeded() bool {
	return m.State == machine.Stopped && m.Exit != nil && *m.Exit == 0
}

// endCommand takes that the command has ended.
func (r *runs) endCommand(m *Standing) {
	next := r.look.course.progress
	switch {
	case m.succeeded():
		next.Command = CommandDone
		r.docket.tellProgress(next)
	case m.Exit != nil && *m.Exit >= 0:
		r.failCommand(fmt.Sprintf("it ended with exit code %d", *m.Exit), m.ID)
	default:
		r.failCommand(cmp.Or(m.Ended, "nobody saw how it ended"), m.ID)
	}
}

// failCommand has the rollout undone, of which nothing is made yet, or paused where there was nothing before it.
func (r *runs) failCommand(why, id string) {
	next, want := r.look.course.progress, r.look.want
	next.Command = CommandFailed
	next.Why = "the release command failed: " + why
	next.Failed = []Failure{{Group: want.Release.commandGroup().Name, Machine: id,
		Why: fault.Clip(next.Why, maxReason)}}
	if want.Before != nil {
		next.Undo = true
	} else {
		next.State = Paused
		next.Why += "; there is no release to go back to"
	}
	next.Why = fault.Clip(next.Why, maxReason)
	r.docket.tellProgress(next)
}

// tidyCommands stops commands that are not to run any more, and removes those of earlier rollouts.
func (r *runs) tidyCommands() {
	t, h, is := todo{}, r.look.want.Head, r.look.course.progress.Command
	for _, m := range r.look.seen.commands {
		current := m.Epoch == h.Rollout && m.Release == h.Release
		switch {
		case m.goes():
		case !current:
			t.remove(m, "another rollout has begun")
		case !m.Over() && is == CommandFailed:
			t.do(Hold, m, "it took too long")
		case !m.Over() && is == CommandDone: // on the other side of a cut
			t.do(Hold, m, "another machine has done it")
		}
	}
	r.docket.give(t)
}
