package release

import (
	"cmp"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Command is a program that runs once, to its end, before the rollout of a new release changes anything.
type Command struct {
	Exec    []string          `json:"exec"`              // arguments for an image; a whole command line on the host
	Group   string            `json:"group,omitempty"`   // the group whose config its machine gets; "": the first
	Timeout *machine.Duration `json:"timeout,omitempty"` // from the moment it is to run until it has ended; nil: 5m
}

// Commanded is the outcome of the command of a rollout's release.
type Commanded string

// The outcomes.
const (
	CommandDone   Commanded = "done"   // it ended with 0, so the rollout goes on
	CommandFailed Commanded = "failed" // it ended otherwise
)

// Defaults and bounds of a command.
const (
	defaultCommandTime = 5 * time.Minute
	leastCommandTime   = time.Second
	mostCommandTime    = 24 * time.Hour
	mostCommand        = 64 // words
)

// CommandEnv is set in the environment of a release's command, in addition to that of its group.
const CommandEnv = "RELEASE_COMMAND"

func (c *Command) EndsWithin() time.Duration { return durationOr(c.Timeout, defaultCommandTime) }

// CommandGroup returns the group whose config the release's command gets.
func (r *Release) CommandGroup() *Group { return r.Group(cmp.Or(r.Command.Group, r.Groups[0].Name)) }

// checkCommand refuses an invalid command.
func (r *Release) checkCommand() error {
	c := r.Command
	if c == nil {
		return nil
	}
	t := c.EndsWithin()
	switch {
	case len(c.Exec) < 1 || len(c.Exec) > mostCommand || c.Exec[0] == "":
		return invalid("release_command has 1 to %d words, the first of which is not empty; got %d", mostCommand,
			len(c.Exec))
	case r.CommandGroup() == nil:
		return invalid("release_command_group is %s, which the release does not have; it has %s",
			fault.Clip(c.Group, 80), strings.Join(r.Named(), ", "))
	case t < leastCommandTime || t > mostCommandTime:
		return invalid("release_command_timeout is %v; %v to %v are possible", t, leastCommandTime, mostCommandTime)
	}
	return nil
}

// config returns the config of the command's machine: its group's, without the parts that only make sense for machines
// that are kept up, or that two machines cannot share.
func (c *Command) config(of *machine.Config) *machine.Config {
	out := *of
	out.Services, out.Mounts, out.Checks = nil, nil, nil
	if n := of.Network; n != nil { // the group's limits on its network apply here, too
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

// runsCommand reports whether the rollout of n, which follows h, begins with its release's command. A deploy does, a
// rollback never does, and another rollout of the same release does unless the command is done.
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

// Succeeded reports whether a run ended with 0.
func (m *Standing) Succeeded() bool {
	return m.State == machine.Stopped && m.Exit != nil && *m.Exit == 0
}
