package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

type logsFlags struct {
	q       machine.LogQuery
	tail    Tail
	stamps  bool
	since   string
	release string
}

// printer prints the output of one machine, each line prefixed with before.
func (o *logsFlags) printer(out *Output, before string) *Printer {
	p := out.Printer()
	p.Before, p.Stamps, p.Whole = before, o.stamps, o.q.Cursor != ""
	return p
}

// Tail is the flag --tail: the number of last lines to print; 0: no earlier output.
type Tail struct {
	lines int
	given bool
}

// Register adds the flag.
func (t *Tail) Register(f *pflag.FlagSet) {
	f.VarP(t, "tail", "n", "only the last N lines, 0 for none (default: all that are kept)")
}

// Lines returns how many lines are wanted; nil: the flag was not given.
func (t *Tail) Lines() *int {
	if !t.given {
		return nil
	}
	return &t.lines
}

// Type is what the flag's value is called.
func (*Tail) Type() string { return cli.LinesKind }

// String returns the number, "" where none was given.
func (t *Tail) String() string {
	if !t.given {
		return ""
	}
	return strconv.Itoa(t.lines)
}

// Set reads a number of lines.
func (t *Tail) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return cli.Usagef("--tail is a number of lines, 0 or more, not %q", text)
	}
	t.lines, t.given = n, true
	return nil
}

// Logs makes the command "souk logs".
func Logs(c *cli.Env) *cobra.Command {
	o := new(logsFlags)
	cmd := &cobra.Command{Use: "logs [MACHINE...]", Short: "Print machines' output",
		Long: `Print what machines' programs wrote: stdout on stdout, stderr on stderr, each in order. Without a machine,
that of all machines of --app. Of several machines each line begins with the machine's name, or its replica's (web/0).
gang/ID is all machines of a gang.

With --follow go on until ^C or until the machine is destroyed, also when souk is started anew meanwhile. With --follow
and --app alone machines are followed as they come and go, which stderr says. With --json each line carries a cursor;
--cursor goes on behind it. Times are of this host's zone.

The last output of a machine that was destroyed is kept for a day by its worker (64 KiB of each of the newest 64
machines of services, and of 64 others): its id reads it. --release prints that of all machines that were made for a
release, which "souk releases" numbers, with that of a release that failed, its command and its jobs.`,
		Example: "  souk logs web\n  souk logs -f --tail 10 web/0\n  souk logs -t --since 10m --app shop\n" +
			"  souk logs --release 3 --app shop\n" +
			"  souk logs web --json | jq -r 'select(.stream==\"stderr\").text'",
		Args: cli.Args(0, -1, "machines, by id or name, or none with --app")}
	cmd.Flags().BoolVarP(&o.q.Follow, "follow", "f", false, "wait for more")
	o.tail.Register(cmd.Flags())
	cmd.Flags().StringVar(&o.q.Cursor, "cursor", "", "only what follows this line")
	cmd.Flags().BoolVarP(&o.stamps, "timestamps", "t", false, "print each line's time before it")
	cmd.Flags().StringVar(&o.since, "since", "",
		"only what is younger: 10m, 2h, or a time such as 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&o.release, "release", "",
		"of the machines of this release of --app, by its number or its id")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		o.q.Tail = o.tail.Lines()
		return doLogs(cmd.Context(), c, o, refs)
	}
	return cmd
}

func doLogs(ctx context.Context, c *cli.Env, o *logsFlags, refs []string) error {
	since, err := cli.Since(o.since, time.Now())
	if err != nil {
		return err
	}
	if o.release != "" && len(refs) > 0 {
		return cli.Usagef("--release prints the output of all machines of a release: name no machine with it")
	}
	if len(refs) == 0 && c.AppGiven() == "" && o.release == "" {
		return cli.Usagef("souk logs wants machines, by id or name, or --app for all of an app's")
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	switch {
	case o.release != "":
		return logsOfRelease(ctx, c, cl, o, since)
	case len(refs) == 0 && o.q.Follow && o.q.Cursor == "":
		return followApp(ctx, c, cl, o, since)
	case len(refs) == 0:
		lines, err := cl.MachineLines(ctx, client.LineOptions{App: c.AppGiven()})
		if err != nil {
			return err
		}
		for _, l := range lines {
			refs = append(refs, l.ID)
		}
	}
	if refs, err = c.Members(ctx, cl, refs); err != nil {
		return err
	}
	if o.q.Cursor != "" && len(refs) > 1 {
		return cli.Usagef("--cursor is a place in one machine's output, and there are %d machines", len(refs))
	}
	out := NewOutput(c)
	show := func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
		before := ""
		if len(refs) > 1 {
			before = standsFor(m) + " | "
		}
		noteDestroyed(c, m, standsFor(m))
		p := o.printer(out, before)
		return cmp.Or(followLog(ctx, c, cl, m, o.q, younger(since, p.Print)), p.Err())
	}
	if !o.q.Follow || len(refs) == 1 {
		return cmp.Or(c.Each(ctx, refs, show), out.Close())
	}
	var all errgroup.Group
	for _, ref := range refs {
		m, err := c.Find(ctx, cl, ref)
		if err != nil {
			return err
		}
		all.Go(func() error { return show(ctx, cl, m) })
	}
	return cmp.Or(all.Wait(), out.Close())
}

// followLog prints a machine's output. A followed log continues after the last line when souk was restarted.
func followLog(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, q machine.LogQuery,
	show func(machine.LogLine) error) error {
	read := func(ctx context.Context) error {
		return cl.Logs(ctx, m.App, m.ID, q, func(l machine.LogLine) error {
			q.Cursor, q.Tail = l.Cursor, nil
			return show(l)
		})
	}
	if !q.Follow {
		return read(ctx)
	}
	if m.State == machine.Stopped || m.State == machine.Failed {
		c.Note("%s is %s: what it wrote is followed by what it writes when it is started again; ^C ends",
			cli.Label(m), m.State)
	}
	return c.Outlast(ctx, cl, cli.Label(m), "souk logs -f "+m.ID, read)
}

// Events makes the command "souk events".
func Events(c *cli.Env) *cobra.Command {
	var follow bool
	var young string
	cmd := &cobra.Command{Use: "events [MACHINE...]", Short: "Print what happened to machines",
		Long: `Print the events of machines, oldest first; without a machine, of all machines of all apps (or of --app).
With --follow print what happens from now on instead, until ^C, also when souk is started anew meanwhile. Times are of
this host's zone.`,
		Example: "  souk events web\n  souk events --since 1h\n  souk events -f --app shop --json",
		Args:    cli.Args(0, -1, "machines, or nothing")}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print what happens from now on")
	cmd.Flags().StringVar(&young, "since", "", "only what is younger: 10m, 2h, or a time such as 2026-01-31T12:00:00Z")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		ctx := cmd.Context()
		since, err := cli.Since(young, time.Now())
		if err != nil {
			return err
		}
		if follow {
			return followEvents(ctx, c, refs)
		}
		show := func(_ context.Context, _ *client.Client, m *machine.Machine) error {
			for i := len(m.Events) - 1; i >= 0; i-- {
				if time.UnixMilli(m.Events[i].Timestamp).Before(since) {
					continue
				}
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
				_ = show(ctx, cl, m) // show never fails here
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
	if refs, err = c.Members(ctx, cl, refs); err != nil {
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
	seen := &seenEvents{from: time.Now(), newest: map[string]string{}}
	show := func(e machine.EventOf) error {
		if (len(only) == 0 || only[e.Machine]) && seen.first(e) {
			printEvent(c, e)
		}
		return nil
	}
	again := false
	return c.Outlast(ctx, cl, "what happens", "souk events -f", func(ctx context.Context) error {
		ready := func() {
			if again { // events during the interruption
				err := seen.missed(ctx, cl, c.AppGiven(), show)
				if err != nil {
					c.Note("what happened meanwhile is not known: %v", err)
				}
			} else if !c.JSON && cli.IsTerminal(c.Err) {
				fmt.Fprintln(c.Err, "waiting for events; ^C ends")
			}
			again = true
		}
		return cl.Events(ctx, c.AppGiven(), ready, show)
	})
}

// seenEvents remembers which events were shown, so that events during an interruption are shown exactly once.
type seenEvents struct {
	from   time.Time         // earlier events are not shown for machines without a shown one
	newest map[string]string // by machine: id of the newest shown event; ids sort by time
}

// mostSeen bounds the memory when events are followed for months.
const mostSeen = 1 << 16

// first reports whether an event is seen for the first time.
func (s *seenEvents) first(e machine.EventOf) bool {
	if newest, known := s.newest[e.Machine]; known && e.Event.ID <= newest {
		return false
	}
	if len(s.newest) >= mostSeen { // everything up to now was shown
		clear(s.newest)
		s.from = time.Now()
	}
	s.newest[e.Machine] = e.Event.ID
	return true
}

// missed shows the events since each machine's newest shown one.
func (s *seenEvents) missed(ctx context.Context, cl *client.Client, app string,
	show func(machine.EventOf) error) error {
	ms, err := cl.AllMachines(ctx, client.ListOptions{Destroyed: true})
	var list []machine.EventOf
	for _, m := range ms {
		for _, e := range m.Events {
			if _, known := s.newest[m.ID]; !known && e.Timestamp < s.from.UnixMilli() {
				continue
			}
			if app == "" || app == m.App {
				list = append(list, machine.EventOf{App: m.App, Machine: m.ID, Name: m.Name, Event: e})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b machine.EventOf) int {
		return cmp.Or(cmp.Compare(a.Event.Timestamp, b.Event.Timestamp), cmp.Compare(a.Event.ID, b.Event.ID))
	})
	for _, e := range list {
		if err := show(e); err != nil {
			return err
		}
	}
	return err
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
	var interactive, without, terminal bool
	var r client.Command
	cmd := &cobra.Command{
		Use:   "exec MACHINE -- CMD [ARG...]",
		Short: "Run one more command beside a machine's program",
		Long: `Run a command in a machine's directory, environment and limits, and end with its exit code. What comes
in on stdin goes to the command (-i, which is the rule); -n keeps it, as a loop over lines wants it.

With -t the command has a terminal, of this one's kind and size: a shell prompts, ^C and ^Z are the command's, and what
it writes comes as it is shown, stderr with stdout. It ends with the connection.

In a container --user is one of the container's own, and root has the rights of the container's root; what runs beside a
program of the host has that one's user. A --workdir that is not there is exit code 127.`,
		Example: "  souk exec -it web -- /bin/sh\n  souk exec web/0 -- /bin/ps aux\n" +
			"  souk exec --user postgres:postgres --workdir /var/lib db -- ls -l\n" +
			"  echo 'select 1' | souk exec db -- /usr/bin/psql\n" +
			"  while read f; do souk exec -n web -- /bin/touch \"$f\"; done < list",
		Args: cli.Args(2, -1, "a machine and a command, after --"),
	}
	cmd.Flags().BoolVarP(&without, "no-stdin", "n", false, "do not read stdin: the command has none")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", true, "give stdin to the command (the rule)")
	cmd.Flags().BoolVarP(&terminal, "tty", "t", false, "give the command a terminal, which this one is then")
	cmd.Flags().StringVarP(&r.User, "user", "u", "", "run it as USER or USER:GROUP of the container, names or numbers")
	cmd.Flags().StringVar(&r.Dir, "workdir", "", "the directory to run it in, absolute (default: the machine's)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		r.Argv = given[1:]
		for _, name := range []string{"user", "workdir"} {
			if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
				return cli.Usagef("--%s needs a value: leave it out for the machine's own", name)
			}
		}
		if terminal && c.JSON {
			return cli.Usagef("-t shows what a command writes as it is, which --json does not: leave one of them out")
		}
		return c.Each(cmd.Context(), given[:1], func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			typing := interactive && !without
			if terminal {
				return execTerminal(ctx, c, cl, m, r, typing)
			}
			return doExec(ctx, c, cl, m, r, typing && c.ForegroundIn())
		})
	}
	return cmd
}

// execOutput is one piece of a command's output in --json; its text is raw, not split into lines. Bytes is set if it is
// not UTF-8, as in machine.LogLine.
type execOutput struct {
	Stream string `json:"stream"`
	Text   string `json:"text"`
	Bytes  []byte `json:"bytes,omitempty"`
}

type execWriter struct {
	c      *cli.Env
	stream string
}

func (w execWriter) Write(p []byte) (int, error) {
	var l machine.LogLine
	l.SetRaw(p)
	w.c.JSONLine(w.c.Out, execOutput{w.stream, l.Text, l.Bytes})
	return len(p), nil
}

func doExec(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, r client.Command,
	interactive bool) error {
	r.Stdout, r.Stderr = cli.Raw(c.Out), cli.Raw(c.Err)
	if interactive {
		r.Stdin = c.In
	}
	if c.JSON {
		r.Stdout, r.Stderr = execWriter{c, "stdout"}, execWriter{c, "stderr"}
	}
	code, err := cl.Exec(ctx, m.App, m.ID, r)
	if err == nil && c.JSON {
		c.JSONLine(c.Out, map[string]int{"exit_code": code})
	}
	return execEnd(ctx, code, notRun(err))
}

// execTerminal is exec with this terminal, which it restores before it returns.
func execTerminal(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, r client.Command,
	typing bool) error {
	t, err := c.TakeConsole(typing)
	if err != nil {
		return err
	}
	defer t.Close()
	r.Stdout, r.Terminal, r.Resize = cli.Raw(c.Out), &t.Terminal, t.Sizes
	if typing {
		r.Stdin = c.In
	}
	code, err := cl.Exec(ctx, m.App, m.ID, r)
	return execEnd(ctx, code, notRun(err))
}

// notRun wraps a command's error, so that the exit code is a shell's if the command could not be executed.
func notRun(err error) error {
	if err == nil {
		return nil
	}
	return cli.NotRun{Err: err}
}

// execEnd converts a command's end to an error.
func execEnd(ctx context.Context, code int, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if err == nil && code != 0 {
		return cli.TaskCode(code)
	}
	return err
}
