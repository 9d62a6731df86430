package machines

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

// Logs makes the command "souk logs".
func Logs(c *cli.Env) *cobra.Command {
	var q machine.LogQuery
	var stamps bool
	cmd := &cobra.Command{Use: "logs MACHINE", Short: "Print a machine's output",
		Long: `Print what a machine's program wrote: its stdout on stdout, its stderr on
stderr, in order. With --follow go on until ^C or until the machine is destroyed. With --json each line carries a
cursor; --cursor goes on behind it.`,
		Example: "  souk logs web\n  souk logs -f --tail 10 web\n  souk logs web --json | jq -r " +
			"'select(.stream==\"stderr\").text'",
		Args: cli.Args(1, 1, "one machine, by id or name")}
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "wait for more")
	cmd.Flags().IntVarP(&q.Tail, "tail", "n", 0, "only the last N lines (default: all that are kept)")
	cmd.Flags().StringVar(&q.Cursor, "cursor", "", "only what follows this line")
	cmd.Flags().BoolVarP(&stamps, "timestamps", "t", false, "print each line's time before it")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if q.Tail < 0 {
			return cli.Usagef("--tail is 0 or more, not %d", q.Tail)
		}
		return c.Each(cmd.Context(), refs, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			return cl.Logs(ctx, m.App, m.ID, q, func(l machine.LogLine) error {
				if stamps && !c.JSON {
					l.Text = l.At.Format("15:04:05.000") + " " + l.Text
				}
				return PrintLog(c, l)
			})
		})
	}
	return cmd
}

// Events makes the command "souk events".
func Events(c *cli.Env) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{Use: "events [MACHINE...]", Short: "Print what happened to machines",
		Long: `Print the events of machines, oldest first; without a machine, of all machines of all apps (or of --app).
With --follow print what happens from now on instead, until ^C.`,
		Example: "  souk events web\n  souk events -f\n  souk events -f --app shop --json",
		Args:    cli.Args(0, -1, "machines, or nothing")}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print what happens from now on")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		ctx := cmd.Context()
		if follow {
			return followEvents(ctx, c, refs)
		}
		show := func(_ context.Context, _ *client.Client, m *machine.Machine) error {
			for i := len(m.Events) - 1; i >= 0; i-- {
				printEvent(c, machine.EventOf{App: m.App, Machine: m.ID, Name: m.Name, Event: m.Events[i]})
			}
			return nil
		}
		if len(refs) > 0 {
			return c.Each(ctx, refs, show)
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		ms, err := cl.AllMachines(ctx, client.ListOptions{Destroyed: true})
		for _, m := range ms {
			if app := c.AppGiven(); app == "" || app == m.App {
				_ = show(ctx, cl, m) // never fails
			}
		}
		return err
	}
	return cmd
}

func followEvents(ctx context.Context, c *cli.Env, refs []string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	only := map[string]bool{}
	for _, ref := range refs {
		m, err := c.Find(ctx, cl, ref)
		if err != nil {
			return err
		}
		only[m.ID] = true
	}
	ready := func() {
		if !c.JSON && cli.IsTerminal(c.Err) {
			fmt.Fprintln(c.Err, "waiting for events; ^C ends")
		}
	}
	return cl.Events(ctx, c.AppGiven(), ready, func(e machine.EventOf) error {
		if len(only) == 0 || only[e.Machine] {
			printEvent(c, e)
		}
		return nil
	})
}

func printEvent(c *cli.Env, e machine.EventOf) {
	if c.JSON {
		c.JSONLine(c.Out, e)
		return
	}
	name := e.Name
	if name == "" {
		name = e.Machine
	}
	c.Printf("%s/%s %s\n", e.App, name, cli.EventText(e.Event))
}

// Exec makes the command "souk exec".
func Exec(c *cli.Env) *cobra.Command {
	var interactive bool
	cmd := &cobra.Command{
		Use:   "exec [-i] MACHINE -- CMD [ARG...]",
		Short: "Run one more command beside a machine's program",
		Long: `Run a command in a machine's directory, environment and limits, and end with its exit code. With -i what
comes in on stdin goes to the command. There is no terminal: a shell reads its commands from stdin.`,
		Example: "  souk exec web -- /bin/ps aux\n  echo 'select 1' | souk exec -i db -- /usr/bin/psql",
		Args:    cli.Args(2, -1, "a machine and a command, after --"),
	}
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "give stdin to the command")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		argv := given[1:]
		return c.Each(cmd.Context(), given[:1], func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			return doExec(ctx, c, cl, m, argv, interactive)
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
	c      *cli.Env
	stream string
}

func (w execWriter) Write(p []byte) (int, error) {
	w.c.JSONLine(w.c.Out, execOutput{w.stream, string(p)})
	return len(p), nil
}

func doExec(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, argv []string,
	interactive bool) error {
	r := client.Command{Argv: argv, Stdout: cli.Raw(c.Out), Stderr: cli.Raw(c.Err)}
	if interactive {
		r.Stdin = c.In
	}
	if c.JSON {
		r.Stdout, r.Stderr = execWriter{c, "stdout"}, execWriter{c, "stderr"}
	}
	code, err := cl.Exec(ctx, m.App, m.ID, r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, map[string]int{"exit_code": code})
	}
	if code != 0 {
		return cli.TaskCode(code)
	}
	return nil
}
