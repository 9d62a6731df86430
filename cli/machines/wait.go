package machines

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// waitEnded waits until the machine has ended for good, including restarts by its policy. For a machine that was never
// started it waits until it is started and ends. limit 0: none.
func waitEnded(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine,
	limit time.Duration) (*machine.Machine, error) {
	return waitStates(ctx, c, cl, m, limit, machine.Stopped, machine.Failed, machine.Destroyed)
}

// waitStates waits until the machine is in one of the states and returns it. It survives a restart of souk.
func waitStates(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, limit time.Duration,
	states ...machine.State) (last *machine.Machine, err error) {
	begin := time.Now()
	err = c.Outlast(ctx, cl, cli.Label(m), "souk wait "+m.ID, func(ctx context.Context) error {
		last, err = awaitStates(ctx, c, cl, m, begin, limit, states)
		return err
	})
	return last, err
}

func awaitStates(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, begin time.Time,
	limit time.Duration, states []machine.State) (*machine.Machine, error) {
	told := tellRetry(c, m, "")
	for step := time.Second; ; step = min(2*step, time.Minute) {
		if limit > 0 {
			step = min(step, limit-time.Since(begin))
			if step <= 0 {
				return nil, fault.New(fault.Timeout, fault.CodeWait, "%s was not %s within %s", cli.Label(m),
					cli.StatesText(states), limit)
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
			return cli.Owned(now, m.App), nil
		case !fault.Is(err, fault.Timeout):
			return nil, err
		}
		if now, err := cl.Machine(ctx, m.App, m.ID); err == nil {
			told = tellRetry(c, cli.Owned(now, m.App), told)
		}
	}
}

// tellRetry prints on stderr why a machine is not ready yet, unless it was printed before (told). It returns what has
// been printed.
func tellRetry(c *cli.Env, m *machine.Machine, told string) string {
	if m.Retry == nil || m.Retry.Tries < 2 || m.Retry.Reason == told {
		return told
	}
	c.Note("%s is %s: %s", cli.Label(m), m.State, cli.RetryText(m.Retry, time.Now()))
	return m.Retry.Reason
}

// Wait makes the command "souk wait".
func Wait(c *cli.Env) *cobra.Command {
	var states []string
	var limit time.Duration
	cmd := &cobra.Command{Use: "wait MACHINE...",
		Short: "Wait until machines end, and end with the task's own exit code",
		Long: `Wait until each machine has ended for good (restarts that its policy still owes are waited for too) and return
the task's own exit code; of several machines the largest. gang/ID is all machines of a gang. With --state wait for a state instead, and return 0.`,
		Example: "  souk wait batch-1 || echo \"it failed with $?\"\n  souk wait web --state started --timeout " +
			"10s\n  " +
			"souk wait a b c --json",
		Args: cli.Args(1, -1, "at least one machine, by id or name, or a gang")}
	cmd.Flags().StringArrayVar(&states, "state", nil, "wait for this state; repeatable, any of them will do")
	cmd.Flags().DurationVar(&limit, "timeout", 0, "how long (default: for ever)")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if cmd.Flags().Changed("timeout") && limit <= 0 {
			return cli.Usagef("--timeout is more than 0s, not %v; leave it out to wait for ever", limit)
		}
		var want []machine.State
		for _, s := range states {
			want = append(want, machine.State(s))
		}
		worst := 0
		err := c.Each(cmd.Context(), refs, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			err := waitOne(ctx, c, cl, m, limit, want)
			// a task's own exit code is no failure of souk: go on waiting for the others
			if t, ok := errors.AsType[cli.TaskCode](err); ok {
				worst = max(worst, int(t)&0xff)
				return nil
			}
			return err
		})
		if err == nil && worst > 0 {
			return cli.TaskCode(worst)
		}
		return err
	}
	return cmd
}

func waitOne(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, limit time.Duration,
	want []machine.State) error {
	var last *machine.Machine
	var err error
	if len(want) > 0 {
		last, err = waitStates(ctx, c, cl, m, limit, want...)
	} else {
		last, err = waitEnded(ctx, c, cl, m, limit)
	}
	if err != nil {
		return err
	}
	code := exitOf(last)
	switch {
	case c.JSON:
		c.JSONLine(c.Out, ended{last.ID, last.Name, last.App, last.State, code})
	case len(want) > 0:
		fmt.Fprintf(c.Out, "%s is %s\n", cli.Label(last), last.State)
	case code != nil:
		fmt.Fprintf(c.Out, "%s is %s, exit code %d\n", cli.Label(last), last.State, *code)
	}
	if len(want) > 0 {
		return nil
	}
	return codeError(last, code)
}
