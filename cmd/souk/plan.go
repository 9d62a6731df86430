package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The exit codes of souk plan.
const (
	planFits   = 0
	planNotNow = 1
	planNever  = 2
)

const specHelp = `SPEC is what "souk run" takes: the same flags, and a command after -- which may be left out. Or it is the file
of a launch in JSON, the body of a create of the Machines API, "-" being stdin.`

func (c *cli) cmdPlan() *cobra.Command {
	return c.specCommand("plan", "Say where a machine would be placed now, and make nothing",
		`Say where a machine would be placed if it were made now, and why there. Nothing is made or reserved.

The exit code is 0 when it fits now, 1 when it does not fit now, and 2 when it never can as it stands: then souk says why,
and what the smallest change is that would help. As long as nothing changes meanwhile, "souk run" with the --id that the
plan tells does what the plan says; without it, only the choice among equals may differ. By the strategy race it goes to
whichever of several workers answers first, which no plan can say: it names them.

`+specHelp, `  souk plan --memory 512 --region iad -- /opt/server
  souk plan launch.json && souk run ...
  souk plan --json - < launch.json | jq -r .worker`, c.doPlan)
}

func (c *cli) cmdWhyNot() *cobra.Command {
	return c.specCommand("why-not", "Say why a machine would not fit, and the smallest change that would help",
		`Say why a machine does not fit where it does not: the workers in groups that fail on the same conditions, with how many
they are, an example and its numbers. Then the smallest changes that would make it fit, each of them checked: less of
something and how much exactly, one constraint dropped, or machines of lower rank that would be evicted.

`+specHelp, `  souk why-not --memory 2048 --require 'arch == arm64' -- /opt/server
  souk why-not launch.json --json | jq -r '.changes[0].text'`, c.doWhyNot)
}

// specCommand makes a command that takes a SPEC.
func (c *cli) specCommand(name, short, long, example string, do func(api.Plan) error) *cobra.Command {
	o := new(runFlags)
	cmd := &cobra.Command{Use: name + " [flags] [FILE | -- CMD [ARG...]]", Short: short, Long: long, Example: example, Args: cobra.ArbitraryArgs}
	o.shape(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		app := c.appOrDefault()
		l, err := c.spec(cmd.Context(), cl, app, o, given, cmd.ArgsLenAtDash() >= 0)
		if err != nil {
			return err
		}
		p, err := cl.Plan(cmd.Context(), app, l)
		if err != nil {
			return err
		}
		return do(p)
	}
	return cmd
}

// maxSpec bounds a launch's file, as the API does.
const maxSpec = 1 << 20

// spec gives the launch that is meant: by flags and a command, or by a file.
func (c *cli) spec(ctx context.Context, cl *client.Client, app string, o *runFlags, given []string, dashed bool) (*machine.Launch, error) {
	if dashed || len(given) == 0 {
		if len(given) == 0 {
			given = []string{"/bin/true"} // only its shape matters
		}
		return c.launchOf(ctx, cl, app, o, given)
	}
	if len(given) > 1 {
		return nil, usagef("give one file, or a command after --, not %q", strings.Join(given, " "))
	}
	raw, err := c.readSpec(given[0])
	if err != nil {
		return nil, err
	}
	return machine.DecodeLaunch(raw)
}

func (c *cli) readSpec(name string) ([]byte, error) {
	in := c.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.NotFound, "spec", "there is no launch in %s; to plan a command, write it after --", name)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxSpec+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "spec", "%s cannot be read", name)
	}
	if len(raw) > maxSpec {
		return nil, fault.New(fault.Invalid, "spec", "%s has more than %d bytes, which no launch may have", name, maxSpec)
	}
	return raw, nil
}

func (c *cli) doPlan(p api.Plan) error {
	if c.json {
		c.jsonLine(c.out, p)
	} else {
		c.printForeseen(p)
	}
	switch p.Verdict {
	case decision.FitsNow:
		return nil
	case decision.Never:
		c.sayPending(p, planNever)
		return taskCode(planNever)
	}
	c.sayPending(p, planNotNow)
	return taskCode(planNotNow)
}

// sayPending tells the typed reason on stderr, for scripts.
func (c *cli) sayPending(p api.Plan, code int) {
	if c.json {
		c.jsonLine(c.err, errorLine{Error: p.Reason, Kind: fault.Exhausted, Code: string(p.Verdict), Pending: p.Pending, Exit: code})
		return
	}
	fmt.Fprintf(c.err, "souk: %s: %s: %s\n", verdictText(p.Verdict), p.Pending, p.Reason)
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

func (c *cli) printForeseen(p api.Plan) {
	if p.Verdict != decision.FitsNow {
		fmt.Fprintf(c.out, "%s: %s\n", verdictText(p.Verdict), p.Reason)
		c.printGroups(p.Decision)
		c.printChanges(p)
		return
	}
	if len(p.Among) > 1 {
		fmt.Fprintf(c.out, "fits now, on one of %d workers that race for it\n", len(p.Among))
	} else {
		fmt.Fprintf(c.out, "fits now, on %s\n", p.Worker)
	}
	for _, s := range p.Sentences {
		fmt.Fprintf(c.out, "  %s\n", s)
	}
	if len(p.Equal) > 0 && len(p.Among) == 0 {
		fmt.Fprintf(c.out, "  %s as good as that: souk run --id %s goes where this plan says.\n", numberOf(len(p.Equal), "other is", "others are"), p.Machine)
	}
	fmt.Fprintln(c.out)
	c.printConsidered(p.Decision)
}

func numberOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (c *cli) doWhyNot(p api.Plan) error {
	if c.json {
		c.jsonLine(c.out, p)
		return nil
	}
	if p.Verdict == decision.FitsNow {
		fmt.Fprintf(c.out, "nothing is in its way: it fits now, on %s\n", p.Worker)
		if len(p.Decision.Groups) > 0 {
			fmt.Fprintln(c.out, "elsewhere:")
			c.printGroups(p.Decision)
		}
		return nil
	}
	fmt.Fprintf(c.out, "%s: %s (%s)\n", verdictText(p.Verdict), p.Reason, p.Pending)
	c.printGroups(p.Decision)
	c.printChanges(p)
	return nil
}

// printGroups tells of the workers that cannot, in groups: every clause on a line of its own.
func (c *cli) printGroups(d *decision.Decision) {
	for _, g := range d.Groups {
		of := fmt.Sprintf("%d of %s", g.Count, numberOf(d.Workers, "worker", "workers"))
		if g.Count > 1 {
			of += ", as " + string(g.Example)
		} else if g.Codes[0] != decision.Other {
			of += ", " + string(g.Example)
		}
		fmt.Fprintf(c.out, "  %s:\n", of)
		if g.Codes[0] == decision.Other {
			fmt.Fprintln(c.out, "    for other reasons again")
			continue
		}
		for _, f := range g.Failing {
			fmt.Fprintf(c.out, "    - %s\n", decision.Sentence(f))
		}
	}
}

func (c *cli) printChanges(p api.Plan) {
	if len(p.Changes) == 0 {
		fmt.Fprintln(c.out, "no change of the request alone would help")
		return
	}
	fmt.Fprintln(c.out, "what would help, the smallest change first:")
	for i, ch := range p.Changes {
		also := ""
		if ch.Also > 0 {
			also = fmt.Sprintf(" (or %s)", numberOf(ch.Also, "other, in much the same way", "others, in much the same way"))
		}
		fmt.Fprintf(c.out, "  %d. %s%s\n", i+1, ch.Text, also)
	}
	for _, v := range p.Victims {
		fmt.Fprintf(c.out, "  %s would evict %s, at a cost of %.0f seconds of work\n", v.Worker, strings.Join(v.Victims, ", "), v.Cost)
	}
}
