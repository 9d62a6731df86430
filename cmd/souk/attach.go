package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// ended is the last line of an attached run, and a line of wait, in --json.
type ended struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	App      string        `json:"app"`
	State    machine.State `json:"state"`
	ExitCode *int          `json:"exit_code"` // null when it was never started or its end was not seen
}

// attach follows a machine's output until it ends and returns the task's own code.
func (c *cli) attach(ctx context.Context, cl *client.Client, m *machine.Machine, took time.Duration, rm bool) error {
	if c.json {
		c.jsonLine(c.out, launched{m, float64(took) / 1e6})
	} else {
		fmt.Fprintf(c.err, "%s (%s) is %s on %s after %s\n", label(m), m.ID, m.State, m.Worker, ms(took))
	}
	// The end of ctx is the user's ^C, which is to stop the machine: what talks to the server must outlive it.
	talk := context.WithoutCancel(ctx)
	follow, stopFollowing := context.WithCancel(talk)
	defer stopFollowing()
	var cursor string
	emit := func(l machine.LogLine) error {
		cursor = l.Cursor
		return c.printLog(l)
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		_ = cl.Logs(follow, m.App, m.ID, machine.LogQuery{Follow: true}, emit) // whatever ended it, the rest is read below
	}()

	stopOnce := context.AfterFunc(ctx, func() {
		_ = cl.Stop(talk, m.App, m.ID, "", client.StopOptions{}) // when it fails the machine goes on, and so does the wait for its end
	})
	defer stopOnce()
	last, err := c.waitEnded(talk, cl, m, 0)
	stopFollowing()
	<-followed // emit is done: cursor is ours
	if err != nil {
		return err
	}
	// The follower may have been stopped a line short: read on from where it was, to the end.
	if err := cl.Logs(talk, m.App, m.ID, machine.LogQuery{Cursor: cursor}, emit); err != nil && !fault.Is(err, fault.NotFound) {
		c.printError(err)
	}
	if rm && last.State != machine.Destroyed {
		if err := cl.Destroy(talk, m.App, m.ID, "", true); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	code := exitOf(last)
	if c.json {
		c.jsonLine(c.out, ended{last.ID, last.Name, last.App, last.State, code})
	}
	return codeError(last, code)
}

// codeError gives the task's code as an error, nil for 0.
func codeError(m *machine.Machine, code *int) error {
	switch {
	case code == nil:
		return fault.New(fault.Internal, "no_exit_code", "%s is %s, and no exit code is known of it%s", label(m), m.State, becauseOf(m))
	case *code == 0:
		return nil
	}
	return taskCode(*code)
}

// exitOf gives the exit code of a machine's newest end, or nil.
func exitOf(m *machine.Machine) *int {
	for _, e := range m.Events { // newest first
		if e.Type == "exit" && e.Request != nil && e.Request.ExitEvent != nil {
			if e.Request.ExitEvent.Lost {
				return nil
			}
			code := e.Request.ExitEvent.ExitCode
			return &code
		}
	}
	return nil
}

// waitEnded waits until the machine has ended for good: a restart that its policy still owes is waited for too. A
// machine that was never started is waited for until it is started and ends. limit 0 is none.
func (c *cli) waitEnded(ctx context.Context, cl *client.Client, m *machine.Machine, limit time.Duration) (*machine.Machine, error) {
	return c.waitStates(ctx, cl, m, limit, machine.Stopped, machine.Failed, machine.Destroyed)
}

// waitStates waits until the machine is in one of the states and gives it as it is then.
func (c *cli) waitStates(ctx context.Context, cl *client.Client, m *machine.Machine, limit time.Duration, states ...machine.State) (*machine.Machine, error) {
	begin := time.Now()
	for {
		step := time.Minute
		if limit > 0 {
			step = limit - time.Since(begin)
			if step <= 0 {
				return nil, fault.New(fault.Timeout, "wait", "%s was not %s within %s", label(m), statesText(states), limit)
			}
		}
		err := cl.Wait(ctx, m.App, m.ID, step, states...)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil || fault.Is(err, fault.NotFound):
			now, err := cl.Machine(ctx, m.App, m.ID)
			if fault.Is(err, fault.NotFound) { // destroyed, and forgotten
				gone := *m
				gone.State = machine.Destroyed
				return &gone, nil
			}
			if err != nil {
				return nil, err
			}
			return owned(now, m.App), nil
		case !fault.Is(err, fault.Timeout):
			return nil, err
		}
	}
}

func statesText(states []machine.State) string {
	text := string(states[0])
	for _, s := range states[1:] {
		text += " or " + string(s)
	}
	return text
}

func (c *cli) cmdWait() *cobra.Command {
	var states []string
	var limit time.Duration
	cmd := &cobra.Command{Use: "wait MACHINE...", Short: "Wait until machines end, and end with the task's own exit code",
		Long: `Wait until each machine has ended for good (restarts that its policy still owes are waited for too) and return
the task's own exit code; of several machines the largest. With --state wait for a state instead, and return 0.`,
		Example: "  souk wait batch-1 || echo \"it failed with $?\"\n  souk wait web --state started --timeout 10s\n  souk wait a b c --json",
		Args:    args(1, -1, "at least one machine, by id or name"), ValidArgsFunction: c.completeMachines}
	cmd.Flags().StringArrayVar(&states, "state", nil, "wait for this state; repeatable, any of them will do")
	cmd.Flags().DurationVar(&limit, "timeout", 0, "how long (default: for ever)")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		var want []machine.State
		for _, s := range states {
			want = append(want, machine.State(s))
		}
		worst := 0
		err := c.each(cmd.Context(), refs, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			err := c.waitOne(ctx, cl, m, limit, want)
			if t, ok := errors.AsType[taskCode](err); ok { // not a failure of souk's: the other machines are waited for in peace
				worst = max(worst, int(t)&0xff)
				return nil
			}
			return err
		})
		if err == nil && worst > 0 {
			return taskCode(worst)
		}
		return err
	}
	return cmd
}

func (c *cli) waitOne(ctx context.Context, cl *client.Client, m *machine.Machine, limit time.Duration, want []machine.State) error {
	var last *machine.Machine
	var err error
	if len(want) > 0 {
		last, err = c.waitStates(ctx, cl, m, limit, want...)
	} else {
		last, err = c.waitEnded(ctx, cl, m, limit)
	}
	if err != nil {
		return err
	}
	code := exitOf(last)
	switch {
	case c.json:
		c.jsonLine(c.out, ended{last.ID, last.Name, last.App, last.State, code})
	case len(want) > 0:
		fmt.Fprintf(c.out, "%s is %s\n", label(last), last.State)
	case code != nil:
		fmt.Fprintf(c.out, "%s is %s, exit code %d\n", label(last), last.State, *code)
	}
	if len(want) > 0 {
		return nil
	}
	return codeError(last, code)
}

// printLog prints one line of output on the stream it came from.
func (c *cli) printLog(l machine.LogLine) error {
	if c.json {
		c.jsonLine(c.out, l)
		return nil
	}
	w := c.out
	if l.Stream == "stderr" {
		w = c.err
	}
	_, err := io.WriteString(w, l.Text+"\n")
	return err
}
