package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

func (c *cli) cmdLogs() *cobra.Command {
	var q machine.LogQuery
	var stamps bool
	cmd := &cobra.Command{Use: "logs MACHINE", Short: "Print a machine's output",
		Long: `Print what a machine's program wrote: its stdout on stdout, its stderr on stderr, in order. With --follow
go on until ^C or until the machine is destroyed. With --json each line carries a cursor; --cursor goes on behind it.`,
		Example: "  souk logs web\n  souk logs -f --tail 10 web\n  souk logs web --json | jq -r 'select(.stream==\"stderr\").text'",
		Args:    args(1, 1, "one machine, by id or name"), ValidArgsFunction: c.completeFirst}
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "wait for more")
	cmd.Flags().IntVarP(&q.Tail, "tail", "n", 0, "only the last N lines (default: all that are kept)")
	cmd.Flags().StringVar(&q.Cursor, "cursor", "", "only what follows this line")
	cmd.Flags().BoolVarP(&stamps, "timestamps", "t", false, "print each line's time before it")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if q.Tail < 0 {
			return usagef("--tail is 0 or more, not %d", q.Tail)
		}
		return c.each(cmd.Context(), refs, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			return cl.Logs(ctx, m.App, m.ID, q, func(l machine.LogLine) error {
				if stamps && !c.json {
					l.Text = l.At.Format("15:04:05.000") + " " + l.Text
				}
				return c.printLog(l)
			})
		})
	}
	return cmd
}

func (c *cli) cmdEvents() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{Use: "events [MACHINE...]", Short: "Print what happened to machines",
		Long: `Print the events of machines, oldest first; without a machine, of all machines of all apps (or of --app).
With --follow print what happens from now on instead, until ^C.`,
		Example: "  souk events web\n  souk events -f\n  souk events -f --app shop --json",
		Args:    args(0, -1, "machines, or nothing"), ValidArgsFunction: c.completeMachines}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print what happens from now on")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		ctx := cmd.Context()
		if follow {
			return c.followEvents(ctx, refs)
		}
		show := func(_ context.Context, _ *client.Client, m *machine.Machine) error {
			for i := len(m.Events) - 1; i >= 0; i-- {
				c.printEvent(machine.EventOf{App: m.App, Machine: m.ID, Name: m.Name, Event: m.Events[i]})
			}
			return nil
		}
		if len(refs) > 0 {
			return c.each(ctx, refs, show)
		}
		cl, err := c.client()
		if err != nil {
			return err
		}
		ms, err := cl.AllMachines(ctx, client.ListOptions{Destroyed: true})
		for _, m := range ms {
			if app := c.appGiven(); app == "" || app == m.App {
				_ = show(ctx, cl, m) // never fails
			}
		}
		return err
	}
	return cmd
}

func (c *cli) followEvents(ctx context.Context, refs []string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	only := map[string]bool{}
	for _, ref := range refs {
		m, err := c.find(ctx, cl, ref)
		if err != nil {
			return err
		}
		only[m.ID] = true
	}
	ready := func() {
		if !c.json && isTerminal(c.err) {
			fmt.Fprintln(c.err, "waiting for events; ^C ends")
		}
	}
	return cl.Events(ctx, c.appGiven(), ready, func(e machine.EventOf) error {
		if len(only) == 0 || only[e.Machine] {
			c.printEvent(e)
		}
		return nil
	})
}

func (c *cli) printEvent(e machine.EventOf) {
	if c.json {
		c.jsonLine(c.out, e)
		return
	}
	name := e.Name
	if name == "" {
		name = e.Machine
	}
	fmt.Fprintf(c.out, "%s/%s %s\n", e.App, name, eventText(e.Event))
}

func (c *cli) cmdExec() *cobra.Command {
	var interactive bool
	cmd := &cobra.Command{Use: "exec [-i] MACHINE -- CMD [ARG...]", Short: "Run one more command beside a machine's program",
		Long: `Run a command in a machine's directory, environment and limits, and end with its exit code. With -i what
comes in on stdin goes to the command. There is no terminal: a shell reads its commands from stdin.`,
		Example: "  souk exec web -- /bin/ps aux\n  echo 'select 1' | souk exec -i db -- /usr/bin/psql",
		Args:    args(2, -1, "a machine and a command, after --"), ValidArgsFunction: c.completeFirst}
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "give stdin to the command")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		argv := given[1:]
		return c.each(cmd.Context(), given[:1], func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			return c.doExec(ctx, cl, m, argv, interactive)
		})
	}
	return cmd
}

// execOutput is one piece of a command's output in --json; its text is what was written, not lines.
type execOutput struct {
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

type execWriter struct {
	c      *cli
	stream string
}

func (w execWriter) Write(p []byte) (int, error) {
	w.c.jsonLine(w.c.out, execOutput{w.stream, string(p)})
	return len(p), nil
}

func (c *cli) doExec(ctx context.Context, cl *client.Client, m *machine.Machine, argv []string, interactive bool) error {
	r := runtime.ExecRequest{Argv: argv, Stdout: c.out, Stderr: c.err}
	if interactive {
		r.Stdin = c.in
	}
	if c.json {
		r.Stdout, r.Stderr = execWriter{c, "stdout"}, execWriter{c, "stderr"}
	}
	code, err := cl.Exec(ctx, m.App, m.ID, r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	if c.json {
		c.jsonLine(c.out, map[string]int{"exit_code": code})
	}
	if code != 0 {
		return taskCode(code)
	}
	return nil
}
