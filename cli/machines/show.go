package machines

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/releases"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

// Ps makes the command "souk ps".
func Ps(c *cli.Env) *cobra.Command {
	var o client.ListOptions
	var quiet bool
	only := new(filter)
	cmd := &cobra.Command{Use: "ps", Aliases: []string{"ls"}, Short: "List machines",
		Long: "List the machines of every app, or with --app of one, oldest first.",
		Example: "  souk ps\n  souk ps --all --app shop\n  souk ps --state started --worker fra-1\n" +
			"  souk ps --json | jq " +
			"-r '.[].id'\n  souk destroy --force $(souk ps -q)",
		Args: cli.Args(0, 0, "no argument")}
	cmd.Flags().BoolVarP(&o.Destroyed, "all", "a", false, "also machines that were destroyed not long ago")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "only ids, one a line")
	cmd.Flags().StringVar(&o.Region, "region", "", "only this region")
	only.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := only.check(); err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if c.JSON {
			ms, err := only.whole(cmd.Context(), c, cl, o)
			if err == nil {
				cli.JSONList(c, ms)
			}
			return err
		}
		ms, err := only.lines(cmd.Context(), c, cl, o)
		if err != nil {
			return err
		}
		switch {
		case quiet:
			for _, m := range ms {
				fmt.Fprintln(c.Out, m.ID)
			}
		case len(ms) == 0:
			fmt.Fprintln(c.Out, "no machines; \"souk run -- CMD\" makes one")
		default:
			printMachines(c, ms)
		}
		return nil
	}
	return cmd
}

// all returns machines in full: of the given app, else of every app.
func all(ctx context.Context, c *cli.Env, cl *client.Client, o client.ListOptions) ([]*machine.Machine, error) {
	app := c.AppGiven()
	if app == "" {
		return cl.AllMachines(ctx, o)
	}
	ms, err := cl.Machines(ctx, app, o)
	for _, m := range ms {
		cli.Owned(m, app)
	}
	return ms, err
}

func printMachines(c *cli.Env, ms []*machine.Line) {
	now := time.Now()
	ended := slices.ContainsFunc(ms, func(m *machine.Line) bool { return m.ExitCode != nil })
	head := []cli.Column{cli.Drop("ID", 4), cli.Keep("NAME").Cut(8), cli.Drop("APP", 3).Cut(6),
		cli.Keep("STATE"), cli.Keep("WORKER").Cut(10), cli.Drop("SHAPE", 1),
		cli.Drop("AGE", 2), cli.Drop("COMMAND", 5).Cut(12)}
	if ended {
		head = slices.Insert(head, 4, cli.Drop("EXIT", 6))
	}
	restarts := slices.ContainsFunc(ms, func(m *machine.Line) bool { return m.Restarts > 0 })
	if restarts {
		head = slices.Insert(head, 4, cli.Drop("RESTARTS", 3))
	}
	cells := make([]cli.Cell, 0, len(head)*len(ms))
	rows := make([][]cli.Cell, 0, len(ms))
	for _, m := range ms {
		cells = append(cells, cli.Cell{Text: m.ID}, cli.Cell{Text: m.Name}, cli.Cell{Text: m.App},
			cli.LineStateCell(m))
		if restarts {
			cells = append(cells, cli.Cell{Text: strconv.Itoa(m.Restarts)})
		}
		if ended {
			cells = append(cells, cli.Cell{Text: exitText(m)})
		}
		cells = append(cells, cli.Cell{Text: string(m.Worker)}, cli.Cell{Text: cli.LineShape(m)},
			cli.Cell{Text: lineAge(m, now)}, cli.Cell{Text: m.Command})
		rows = append(rows, cells[len(cells)-len(head):])
	}
	c.Table(head, rows)
}

// lineAge returns a machine's age; "-": its worker is unreachable.
func lineAge(m *machine.Line, now time.Time) string {
	if !cli.Heard(m.HostStatus) {
		return "-"
	}
	return cli.Age(m.CreatedAt, now)
}

// exitText returns the exit code of a stopped machine, and whether it ran out of memory.
func exitText(m *machine.Line) string {
	switch {
	case m.ExitCode == nil:
		return ""
	case *m.ExitCode < 0:
		return "lost"
	case m.OOM:
		return fmt.Sprintf("%d oom", *m.ExitCode)
	}
	return strconv.Itoa(*m.ExitCode)
}

// Status makes the command "souk status".
func Status(c *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "status [MACHINE|APP]...",
		Aliases: []string{"show"},
		Short:   "Tell all about machines, or what is wanted of an app and kept",
		Long: `Tell all about machines: state, shape, placement, events. For an app that has a release ("souk run --replicas") tell
what is wanted of it, which machines there are for it, and which member sees to it. A name that a machine has is the
machine's; "souk status --app APP" alone is always about the app.`,
		Example: "  souk status web\n  souk status web --json | jq .state\n  souk status --app shop",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, refs []string) error {
			if len(refs) == 0 {
				return statusOfApp(cmd.Context(), c)
			}
			service := func(ctx context.Context, cl *client.Client, ref string) bool {
				s, err := cl.Service(ctx, ref)
				if err == nil {
					releases.Show(c, &s)
				}
				return err == nil
			}
			show := func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
				if c.JSON {
					c.JSONLine(c.Out, m)
					return nil
				}
				printMachine(ctx, c, cl, m)
				return nil
			}
			return c.EachOr(cmd.Context(), refs, service, show)
		},
	}
}

// statusOfApp prints the service of the given app.
func statusOfApp(ctx context.Context, c *cli.Env) error {
	app := c.AppGiven()
	if app == "" {
		return cli.Usagef("souk status wants at least one machine, by id or name, or an app")
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	s, err := cl.Service(ctx, app)
	if err == nil {
		releases.Show(c, &s)
	}
	return err
}

// devicesOf returns the GPUs that a machine has, as its worker reports them.
func devicesOf(ctx context.Context, cl *client.Client, m *machine.Machine) (out []string) {
	if len(m.GPUs) == 0 {
		return nil
	}
	list, err := cl.Workers(ctx)
	if err != nil {
		return nil // print the rest all the same
	}
	for i := range list.Workers {
		w := &list.Workers[i]
		for _, n := range m.GPUs {
			if w.Worker == m.Worker && n >= 0 && n < len(w.GPUs) {
				out = append(out, strconv.Itoa(n)+": "+cli.DeviceText(&w.GPUs[n]))
			}
		}
	}
	return out
}

func printMachine(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine) {
	line := c.Field
	c.Printf("%s (%s) is %s\n", cli.Label(m), m.ID, cli.StateText(m))
	if m.Retry != nil {
		line("trying", "%s", cli.RetryText(m.Retry, time.Now()))
	}
	if m.Restarts > 0 {
		line("restarts", "%d by its policy since it last ran for 5 minutes", m.Restarts)
	}
	line("app", "%s", m.App)
	if u := m.UnixUser; u != nil {
		line("owner", "user %s (%d)", u.Name, u.UID)
	}
	if m.Replica != nil {
		line("replica", "%s", strings.Map(cli.Printable, m.Replica.String()))
	}
	line("worker", "%s in region %s", m.Worker, m.Region)
	if a, err := netip.ParseAddr(m.PrivateIP); err == nil && !a.IsLoopback() {
		line("address", "%s", a)
	}
	if m.Config != nil && m.Config.Network != nil {
		for _, p := range m.Config.Network.Publish {
			line("publishes", "%s of its worker's host as %d", p, p.Port)
		}
	}
	if m.Placement != nil {
		line("why there", "%s", m.Placement.Reason)
	}
	if cli.Heard(m.HostStatus) { // otherwise only its worker knows
		line("created", "%s ago, instance %s", cli.Age(m.CreatedAt, time.Now()), m.InstanceID)
		if m.ImageRef.Digest != "" {
			line("image", "%s (%s)", m.Config.Image, m.ImageRef.Digest)
		}
		if m.Config.Runtime != "" {
			line("runtime", "%s", m.Config.Runtime)
		}
		line("shape", "%s", cli.Shape(m.Config))
		line("command", "%s", cli.Command(m.Config))
	}
	for _, text := range devicesOf(ctx, cl, m) {
		line("gpu", "%s", text)
	}
	for _, s := range servicesOf(ctx, cl, m).Services {
		line("service", "%s", serviceText(&s))
	}
	if m.Cordoned {
		line("cordoned", "yes: no requests are routed to it")
	}
	if m.Config != nil && len(m.Config.Metadata) > 0 {
		line("metadata", "%s", cli.Pairs(m.Config.Metadata))
	}
	if m.State == machine.Started && cli.Heard(m.HostStatus) {
		if ps, err := cl.Processes(ctx, m.App, m.ID); err == nil {
			for _, p := range ps {
				line("process", "%d %s (%d MB, %d ms of CPU)", p.PID, strings.Map(cli.Printable, p.Command), p.RSS>>20,
					p.CPU)
			}
		}
	}
	for _, ch := range m.Checks {
		why, words, _ := strings.Cut(ch.Output, "\n")
		if words != "" {
			why += ", " + strconv.Quote(words)
		}
		line("check", "%s is %s: %s", ch.Name, ch.Status, strings.Map(cli.Printable, why))
	}
	for _, e := range m.Events {
		line("event", "%s", cli.EventText(e))
	}
}
