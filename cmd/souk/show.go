package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

func (c *cli) cmdPs() *cobra.Command {
	var o client.ListOptions
	var quiet bool
	cmd := &cobra.Command{Use: "ps", Aliases: []string{"ls"}, Short: "List machines",
		Long:    "List the machines of every app, or with --app of one, oldest first.",
		Example: "  souk ps\n  souk ps --all --app shop\n  souk ps --json | jq -r '.[].id'\n  souk destroy --force $(souk ps -q)",
		Args:    args(0, 0, "no argument")}
	cmd.Flags().BoolVarP(&o.Destroyed, "all", "a", false, "also machines that were destroyed not long ago")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "only ids, one a line")
	cmd.Flags().StringVar(&o.Region, "region", "", "only this region")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		var ms []*machine.Machine
		if app := c.appGiven(); app != "" {
			ms, err = cl.Machines(cmd.Context(), app, o)
			for _, m := range ms {
				owned(m, app)
			}
		} else {
			ms, err = cl.AllMachines(cmd.Context(), o)
		}
		if err != nil {
			return err
		}
		switch {
		case quiet:
			for _, m := range ms {
				fmt.Fprintln(c.out, m.ID)
			}
		case c.json:
			jsonList(c, ms)
		case len(ms) == 0:
			fmt.Fprintln(c.out, "no machines; \"souk run -- CMD\" makes one")
		default:
			c.printMachines(ms)
		}
		return nil
	}
	return cmd
}

func (c *cli) printMachines(ms []*machine.Machine) {
	now := time.Now()
	rows := make([][]cell, 0, len(ms))
	for _, m := range ms {
		rows = append(rows, []cell{{text: m.ID}, {text: m.Name}, {text: m.App}, stateCell(m.State), {text: string(m.Worker)},
			{text: shape(m.Config)}, {text: age(m.CreatedAt, now)}, {text: command(m.Config, 40)}})
	}
	c.table([]string{"ID", "NAME", "APP", "STATE", "WORKER", "SHAPE", "AGE", "COMMAND"}, rows)
}

// shape prints a guest as "shared-1x 256MB".
func shape(cfg *machine.Config) string {
	if cfg == nil || cfg.Guest == nil {
		return "-"
	}
	kind := cfg.Guest.CPUKind
	if kind == "" {
		kind = "shared"
	}
	return fmt.Sprintf("%s-%dx %dMB", kind, cfg.Guest.CPUs, cfg.Guest.MemoryMB)
}

// command prints what a machine runs, cut to most runes.
func command(cfg *machine.Config, most int) string {
	if cfg == nil {
		return "-"
	}
	argv := cfg.Init.Exec
	if len(argv) == 0 {
		argv = append(slices.Clone(cfg.Init.Entrypoint), cfg.Init.Cmd...)
	}
	text := []rune(strings.Map(printable, strings.Join(argv, " ")))
	if len(text) > most {
		return string(text[:most-1]) + "…"
	}
	return string(text)
}

// printable replaces what would move the cursor: a machine's config must not write on its reader's terminal.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
		return ' '
	}
	return r
}

func (c *cli) cmdStatus() *cobra.Command {
	return &cobra.Command{Use: "status MACHINE...", Aliases: []string{"show"}, Short: "Tell all about machines: state, shape, placement, events",
		Example: "  souk status web\n  souk status web --json | jq .state",
		Args:    args(1, -1, "at least one machine, by id or name"), ValidArgsFunction: c.completeMachines,
		RunE: func(cmd *cobra.Command, refs []string) error {
			return c.each(cmd.Context(), refs, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
				if c.json {
					c.jsonLine(c.out, m)
					return nil
				}
				c.printMachine(ctx, cl, m)
				return nil
			})
		}}
}

func (c *cli) printMachine(ctx context.Context, cl *client.Client, m *machine.Machine) {
	line := func(k, format string, a ...any) { fmt.Fprintf(c.out, "  %-10s %s\n", k, fmt.Sprintf(format, a...)) }
	fmt.Fprintf(c.out, "%s (%s) is %s\n", label(m), m.ID, m.State)
	line("app", "%s", m.App)
	line("worker", "%s in region %s", m.Worker, m.Region)
	if m.Placement != nil {
		line("why there", "%s", m.Placement.Reason)
	}
	line("shape", "%s", shape(m.Config))
	line("command", "%s", command(m.Config, 120))
	line("created", "%s ago, instance %s", age(m.CreatedAt, time.Now()), m.InstanceID)
	if m.Cordoned {
		line("cordoned", "yes: no requests are routed to it")
	}
	if m.Config != nil && len(m.Config.Metadata) > 0 {
		line("metadata", "%s", pairs(m.Config.Metadata))
	}
	if m.State == machine.Started {
		if ps, err := cl.Processes(ctx, m.App, m.ID); err == nil {
			for _, p := range ps {
				line("process", "%d %s (%d MB, %d ms of CPU)", p.PID, strings.Map(printable, p.Command), p.RSS>>20, p.CPU)
			}
		}
	}
	for _, ch := range m.Checks {
		line("check", "%s is %s: %s", ch.Name, ch.Status, strings.Map(printable, ch.Output))
	}
	for _, e := range m.Events {
		line("event", "%s", eventText(e))
	}
}

func pairs(kv map[string]string) string {
	parts := make([]string, 0, len(kv))
	for _, k := range slices.Sorted(maps.Keys(kv)) {
		parts = append(parts, k+"="+strings.Map(printable, kv[k]))
	}
	return strings.Join(parts, " ")
}

// eventText prints an event in one line: when, what, the state it led to, and the reason or the exit code.
func eventText(e machine.Event) string {
	text := fmt.Sprintf("%s %-8s %s", time.UnixMilli(e.Timestamp).Format("15:04:05.000"), e.Type, e.Status)
	if e.Request != nil && e.Request.ExitEvent != nil {
		x := e.Request.ExitEvent
		text += fmt.Sprintf(", exit code %d", x.ExitCode)
		if x.OOMKilled {
			text += ", out of memory"
		}
		if x.Lost {
			text += ", its end was not seen"
		}
		if x.RequestedStop {
			text += ", as asked"
		}
	}
	if e.Message != "" {
		text += ": " + strings.Map(printable, e.Message)
	}
	return text
}
