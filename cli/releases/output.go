package releases

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of the output of failed machines.
const (
	lastLines  = 10              // last lines of each machine
	mostOutput = 3               // machines whose output is printed; --json has all
	outputTime = 5 * time.Second // to read one machine's output
)

// failure is a machine that failed in a rollout, with the last lines that it printed.
type failure struct {
	api.RolloutFailure
	Output []string `json:"output,omitempty"`
}

// Failed prints the state after a failed rollout, with the reason and the last lines of the failed machines. It returns
// the error that is still to be printed.
func Failed(ctx context.Context, c *cli.Env, cl *client.Client, s *api.ServiceStatus, why error) error {
	overtaken := fault.CodeOf(why) == codeOvertaken // another rollout has replaced it
	switch {
	case overtaken && c.JSON:
		Show(c, s)
		return why
	case overtaken:
		return why
	}
	replicas, command := failures(ctx, cl, s)
	if c.JSON {
		showFailed(c, s, replicas, command)
		return why
	}
	if r := s.Rollout; r != nil && len(r.Failed) > 1 {
		for _, f := range r.Failed {
			c.Note("%s: %s", failedText(&f), f.Why)
		}
	}
	return tellFailed(c, s, why, replicas, command)
}

// failures returns the machines that made a rollout fail, else the replicas that are not ready, and the machine of its
// release command if that failed. Each has its last lines if its worker still has them.
func failures(ctx context.Context, cl *client.Client, s *api.ServiceStatus) (replicas []failure, command *failure) {
	if r := s.Rollout; r != nil {
		for _, f := range r.Failed {
			replicas = append(replicas, failure{RolloutFailure: f})
		}
		if r.Command == "failed" && r.CommandMachine != "" {
			command = &failure{RolloutFailure: api.RolloutFailure{Machine: r.CommandMachine, Why: r.Why}}
		}
	}
	if len(replicas) == 0 && command == nil {
		for i := range s.Groups {
			for _, x := range s.Groups[i].Slots {
				if x.Machine != "" && !x.Ready && !x.Old && !x.Asleep {
					replicas = append(replicas, failure{RolloutFailure: api.RolloutFailure{Group: s.Groups[i].Name,
						Index: x.Index, Machine: x.Machine}})
				}
			}
		}
	}
	for i := range replicas {
		replicas[i].read(ctx, cl, s.App)
	}
	if command != nil {
		command.read(ctx, cl, s.App)
	}
	return replicas, command
}

// read reads the last lines, ignoring errors: the reason of the failure is printed anyway.
func (f *failure) read(ctx context.Context, cl *client.Client, app string) {
	if f.Machine == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, outputTime)
	defer cancel()
	tail := lastLines
	_ = cl.Logs(ctx, app, f.Machine, machine.LogQuery{Tail: &tail}, func(l machine.LogLine) error {
		f.Output = append(f.Output, l.Text)
		return nil
	})
}

// failedStatus is a status with the last lines of what failed.
type failedStatus struct {
	*api.ServiceStatus
	Rollout *failedRollout `json:"rollout,omitempty"`
}

type failedRollout struct {
	*api.Rollout
	Failed        []failure `json:"failed"`
	CommandOutput []string  `json:"command_output,omitempty"`
}

// showFailed prints a status as JSON, with the last lines of what failed.
func showFailed(c *cli.Env, s *api.ServiceStatus, replicas []failure, command *failure) {
	out := failedStatus{ServiceStatus: s}
	if s.Rollout != nil {
		if replicas == nil || len(s.Rollout.Failed) == 0 {
			replicas = []failure{}
		}
		out.Rollout = &failedRollout{Rollout: s.Rollout, Failed: replicas}
		if command != nil {
			out.Rollout.CommandOutput = command.Output
		}
	}
	c.JSONLine(c.Out, out)
}

// tellFailed prints why a rollout failed, and below it the last lines of what failed.
func tellFailed(c *cli.Env, s *api.ServiceStatus, why error, replicas []failure, command *failure) error {
	if command != nil {
		replicas = append(replicas, *command)
	}
	silent := func(f failure) bool { return len(f.Output) == 0 }
	replicas = slices.DeleteFunc(slices.Clone(replicas), silent)
	if len(replicas) == 0 {
		return why
	}
	c.PrintError(why)
	for i := range replicas[:min(len(replicas), mostOutput)] {
		f := &replicas[i]
		what := failedText(&f.RolloutFailure)
		if command != nil && f.Machine == command.Machine {
			what = "the release command (" + f.Machine + ")"
		}
		c.Note("%s printed last:", what)
		for _, line := range f.Output {
			c.Note("  | %s", line)
		}
	}
	if s.Rollout != nil {
		c.Note("%s", outputText(s.App, s.Rollout))
	}
	return cli.Several{Errs: []error{why}}
}

// outputText says which command shows the output of a release that failed.
func outputText(app string, r *api.Rollout) string {
	return fmt.Sprintf("\"souk logs --release %s --app %s\" has what its machines printed, for a day",
		release.Short(r.Release), app)
}
