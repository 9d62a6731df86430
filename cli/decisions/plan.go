package decisions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/machines"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The exit codes of souk plan.
const (
	planFits   = 0
	planNotNow = 1
	planNever  = 2
)

const specHelp = `SPEC is what "souk run" takes: the same flags, and a command after -- which may be left out. A FILE is the same as
--from FILE.`

// Plan makes the command "souk plan".
func Plan(c *cli.Env) *cobra.Command {
	return specCommand(c, "plan", "Say where a machine would be placed now, and make nothing",
		`Say where a machine would be placed if it were made now, and why there. Nothing is made or reserved.

The exit code is 0 when it fits now, 1 when it does not fit now, and 2 when it never can as it stands: then souk
says why, and what the smallest change is that would help. As long as nothing changes meanwhile, "souk run" with
the --id that the plan tells does what the plan says; without it, only the choice among equals may differ. By the
strategy race it goes to whichever of several workers answers first, which no plan can say: it names them.

`+specHelp, `  souk plan --memory 512 --region iad -- /opt/server
  souk plan launch.json && souk run -f launch.json
  souk plan --json - < launch.json | jq -r .worker`, func(p api.Plan) error { return doPlan(c, p) })
}

// WhyNot makes the command "souk why-not".
func WhyNot(c *cli.Env) *cobra.Command {
	return specCommand(
		c,
		"why-not",
		"Say why a machine would not fit, and the smallest change that would help",
		`Say why a machine does not fit where it does not: the workers in groups
that fail on the same conditions, with how many they are, an example and its numbers. Then the smallest changes
that would make it fit, each of them checked: less of something and how much exactly, one constraint dropped, or
machines of lower rank that would be evicted.

`+specHelp,
		`  souk why-not --memory 2048 --require 'arch == arm64' -- /opt/server
  souk why-not launch.json --json | jq -r '.changes[0].text'`,
		func(p api.Plan) error { return doWhyNot(c, p) },
	)
}

// specCommand makes a command that takes a SPEC.
func specCommand(c *cli.Env, name, short, long, example string, do func(api.Plan) error) *cobra.Command {
	o := new(machines.RunFlags)
	cmd := &cobra.Command{
		Use:     name + " [flags] [FILE | -- CMD [ARG...]]",
		Short:   short,
		Long:    long,
		Example: example,
		Args:    cobra.ArbitraryArgs,
	}
	o.Shape(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		app := c.AppOrDefault()
		l, err := spec(cmd.Context(), c, cl, app, o, given, cmd.ArgsLenAtDash() >= 0)
		if err != nil {
			return err
		}
		p, err := cl.Plan(cmd.Context(), app, l)
		if err != nil {
			return err
		}
		for _, w := range slices.Concat(machine.Warnings(l.Config), machine.PortWarnings(l.Config)) {
			c.Note("warning: %s", w)
		}
		if !c.JSON && p.Verdict != decision.FitsNow { // the clauses show amounts, not the user's input
			c.Printf("asked for %s: %s\n", cli.Shape(l.Config), p.Decision.Request.Resources)
		}
		return do(p)
	}
	return cmd
}

// spec returns the launch from flags and a command, or from a file.
func spec(ctx context.Context, c *cli.Env, cl *client.Client, app string, o *machines.RunFlags, given []string,
	dashed bool) (*machine.Launch, error) {
	if dashed || len(given) == 0 {
		if len(given) == 0 && !o.HasFile() {
			given = []string{"/bin/true"} // only its shape matters
		}
		return machines.LaunchOf(ctx, c, cl, app, o, given)
	}
	if len(given) > 1 {
		return nil, cli.Usagef("give one file, or a command after --, not %q", strings.Join(given, " "))
	}
	o.From(given[0])
	return machines.LaunchOf(ctx, c, cl, app, o, nil)
}

func doPlan(c *cli.Env, p api.Plan) error {
	if c.JSON {
		c.JSONLine(c.Out, p)
	} else {
		printForeseen(c, p)
	}
	switch p.Verdict {
	case decision.FitsNow:
		return nil
	case decision.Never:
		sayPending(c, p, planNever)
		return cli.TaskCode(planNever)
	}
	sayPending(c, p, planNotNow)
	return cli.TaskCode(planNotNow)
}

// sayPending prints the typed reason on stderr, for scripts.
func sayPending(c *cli.Env, p api.Plan, code int) {
	if c.JSON {
		c.JSONLine(c.Err,
			cli.ErrorLine{Error: p.Reason, Kind: fault.Exhausted, Code: fault.Code(p.Verdict), Pending: p.Pending,
				Exit: code})
		return
	}
	fmt.Fprintf(c.Err, "souk: %s: %s: %s\n", verdictText(p.Verdict), p.Pending, p.Reason)
}

func verdictText(v decision.Foreseen) string {
	switch v {
	case decision.FitsNow:
		return "fits now"
	case decision.Never:
		return "never fits"
	}
	return "not now"
}

func printForeseen(c *cli.Env, p api.Plan) {
	if p.Verdict != decision.FitsNow {
		c.Printf("%s: %s\n", verdictText(p.Verdict), p.Reason)
		printGroups(c, p.Decision)
		printChanges(c, p)
		return
	}
	if len(p.Among) > 1 {
		c.Printf("fits now, on one of %d workers that race for it\n", len(p.Among))
	} else {
		c.Printf("fits now, on %s\n", p.Worker)
	}
	for _, s := range p.Sentences {
		c.Printf("  %s\n", s)
	}
	printVictims(c, p)
	if len(p.Equal) > 0 && len(p.Among) == 0 {
		c.Printf("  %s as good as that: souk run --id %s goes where this plan says.\n",
			cli.NumberOf(len(p.Equal), "other is", "others are"), p.Machine)
	}
	fmt.Fprintln(c.Out)
	printConsidered(c, p.Decision)
}

func doWhyNot(c *cli.Env, p api.Plan) error {
	if c.JSON {
		c.JSONLine(c.Out, p)
		return nil
	}
	if p.Verdict == decision.FitsNow {
		switch {
		case len(p.Victims) > 0:
			c.Printf("it fits now, on %s, but only in the place of others:\n", p.Worker)
			printVictims(c, p)
			c.Printf("without that no worker takes it:\n")
		case len(p.Decision.Groups) > 0:
			c.Printf("nothing is in its way: it fits now, on %s\nelsewhere:\n", p.Worker)
		default:
			c.Printf("nothing is in its way: it fits now, on %s\n", p.Worker)
		}
		printGroups(c, p.Decision)
		return nil
	}
	c.Printf("%s: %s (%s)\n", verdictText(p.Verdict), p.Reason, p.Pending)
	printGroups(c, p.Decision)
	printChanges(c, p)
	return nil
}

// printGroups prints the workers that cannot take the launch, grouped by reason, one clause per line.
func printGroups(c *cli.Env, d *decision.Decision) {
	for _, g := range d.Groups {
		of := fmt.Sprintf("%d of %s", g.Count, cli.NumberOf(d.Workers, "worker", "workers"))
		if g.Count > 1 {
			of += ", as " + string(g.Example)
		} else if g.Codes[0] != decision.Other {
			of += ", " + string(g.Example)
		}
		c.Printf("  %s:\n", of)
		if g.Codes[0] == decision.Other {
			c.Printf("    for other reasons again\n")
			continue
		}
		for _, f := range g.Failing {
			c.Printf("    - %s\n", decision.Sentence(f))
		}
	}
}

func printChanges(c *cli.Env, p api.Plan) {
	if len(p.Changes) == 0 {
		c.Printf("no change of the request alone would help\n")
		return
	}
	c.Printf("what would help, the smallest change first:\n")
	for i, ch := range p.Changes {
		also := ""
		if ch.Also > 0 {
			also = fmt.Sprintf(" (or %s)", cli.NumberOf(ch.Also, "other, in much the same way",
				"others, in much the same way"))
		}
		c.Printf("  %d. %s%s\n", i+1, ch.Text, also)
	}
	printVictims(c, p)
}

// printVictims prints the machines that workers would evict.
func printVictims(c *cli.Env, p api.Plan) {
	for _, v := range p.Victims {
		c.Printf("  %s would evict, at a cost of %.0f s of work:\n", v.Worker, v.Cost)
		for _, m := range v.Evicted {
			c.Printf("    - %s\n", victimText(m))
		}
	}
}

// victimText names a machine that would be evicted: "b2 (b76c329c4abdd0) of app crunch, band batch".
func victimText(m api.Evictee) string {
	who := m.Machine
	if m.Name != "" {
		who = m.Name + " (" + m.Machine + ")"
	} else if l, task := jobs.ParseLife(m.Machine); task {
		who = fmt.Sprintf("task %d of job %s", l.Index, l.Job)
	}
	return fmt.Sprintf("%s of app %s, band %s", who, m.App, m.Band)
}
