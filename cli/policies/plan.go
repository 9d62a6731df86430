package policies

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
)

func policyPlan(c *cli.Env) *cobra.Command {
	var failIf []string
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Say what a policy file would place elsewhere, and who would be evicted, before it is applied",
		Long: `Say for every running machine where the policy in force would place it now,
and where the file would, with the machine's own room taken for free. Nothing that runs is moved by applying a
policy: it says where machines would go that are placed anew. Each is looked at alone. The regions that a launch
asked for are not kept with a machine: its own is taken to be the nearest, and the others to be possible.

Then the same for the decisions of the last day that the log has with their whole view, each on the view of its
time.

With --fail-if it ends with 1 where a condition holds, for CI: nowhere (machines that fit nowhere any more), moved (that
go elsewhere), evicted (that would go for them) or compared, a comparison, and a number of machines or, but for compared,
a percentage of those that were compared.`,
		Example: "  souk policy plan fast.toml\n  souk policy plan fast.toml --fail-if 'nowhere > 0' --fail-if " +
			"'moved > 10%'\n  souk policy plan fast.toml --json | jq '.comparison.moves[] | " +
			"{machine, " +
			"old, new}'",
		Args: cli.Args(1, 1, "a file"),
	}
	cmd.Flags().StringArrayVar(&failIf, "fail-if", nil,
		"end with 1 if this holds, as 'nowhere > 0', 'moved > 10%' or 'evicted >= 5'; repeatable")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		var gates []planGate
		for _, text := range failIf {
			g, err := parseGate(text)
			if err != nil {
				return err
			}
			gates = append(gates, g)
		}
		s, err := loadPolicy(c, given[0])
		if err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		plan, err := cl.PlanPolicy(cmd.Context(), api.PolicyQuestion{Text: s.Text})
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, plan)
		} else {
			printPlan(c, plan)
		}
		for _, g := range gates {
			if err := g.fails(&plan); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func printPlan(c *cli.Env, p api.PolicyPlan) {
	x := p.Comparison
	c.Printf("asked about %s\n", p.Scope)
	c.Printf(
		"%d running machines were compared: %d would be placed where they are placed now, %d elsewhere, %d nowhere\n",
		x.Compared, x.Same, len(x.Moves), len(x.Nowhere))
	if p.LeftOut > 0 {
		c.Printf("%d more were left out\n", p.LeftOut)
	}
	var rows [][]cli.Cell
	for _, m := range x.Moves {
		why := fmt.Sprintf("better by %.3f", m.Gain)
		if len(m.Why) > 0 {
			why = cli.ClausesText(m.Why)
		}
		rows = append(rows, cli.Cells(m.Machine, m.App, placeText(m.Is), placeText(m.Old), placeText(m.New), why))
	}
	for _, m := range x.Nowhere {
		why := cli.ClausesText(m.Why)
		for _, e := range m.Evicts {
			why += fmt.Sprintf("; would evict %d of rank %d on %s", e.Machines, e.Rank, e.Worker)
		}
		rows = append(rows, cli.Cells(m.Machine, m.App, placeText(m.Is), placeText(m.Old), "nowhere", why))
	}
	if len(rows) > 0 {
		c.Table([]cli.Column{cli.Keep("MACHINE").Cut(8), cli.Drop("APP", 1).Cut(6),
			cli.Drop("IS ON", 3).Cut(6), cli.Keep("OLD WOULD").Cut(8), cli.Keep("NEW WOULD").Cut(8),
			cli.Reason("WHY")}, rows)
	}
	if n := evicted(&p); n == 0 {
		c.Printf("nobody would be evicted\n")
	} else {
		c.Printf("%d machines of lower rank would be evicted, if those that fit nowhere were placed "+
			"anew\n", n)
	}
	if r := p.Recorded; r != nil {
		c.Printf(
			"of the last day %d recorded decisions were compared: %d would be the same, %d placed elsewhere, %d "+
				"nowhere\n",
			r.Compared, r.Same, len(r.Moves), len(r.Nowhere))
	}
}

func placeText(w cluster.WorkerID) string {
	if w == "" {
		return "nowhere"
	}
	return string(w)
}

// policyDifference is what diff says in --json.
type policyDifference struct {
	Name    string          `json:"name"`
	Version int             `json:"version"` // in force; 0: there is none, or it comes with souk
	Changes []policy.Change `json:"changes"`
	Text    string          `json:"text"`
}

func policyDiff(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff FILE",
		Short: "Show what a policy file changes: its text, and its filters, scores and weights",
		Long: `Show what a policy file changes against the version in force, or against --version: the text as "diff -u", then what
changes in meaning. The exit code is 0 whether there is a difference or not.`,
		Example: "  souk policy diff fast.toml\n  souk policy diff fast.toml --version 3\n  souk policy diff " +
			"mine.toml " +
			"--with spread",
		Args: cli.Args(1, 1, "a file"),
	}
	version := cmd.Flags().Int("version", 0, "compare with this version instead of the one in force")
	with := cmd.Flags().String("with", "", "compare with the policy of this name instead of the file's own")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		s, err := loadPolicy(c, given[0])
		if err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		name := s.Name
		if *with != "" {
			name = *with
		}
		old, err := cl.Policy(cmd.Context(), name, *version)
		isNew := fault.Is(err, fault.NotFound) && *version == 0 && *with == ""
		if err != nil && !isNew {
			return err
		}
		from := &policy.Source{}
		if !isNew {
			if from, err = policy.Load([]byte(old.Text)); err != nil {
				return err
			}
		}
		label := name + " version " + versionText(old.Version)
		if old.Version == 0 {
			label = name + " (built in)"
		}
		if isNew {
			label = "nothing"
		}
		d := policyDifference{
			Name:    s.Name,
			Version: old.Version,
			Changes: policy.Changes(from, s),
			Text:    policy.TextDiff(label, from.Text, given[0], s.Text),
		}
		switch {
		case c.JSON:
			if d.Changes == nil {
				d.Changes = []policy.Change{}
			}
			c.JSONLine(c.Out, d)
		case d.Text == "":
			c.Printf("%s is the same as %s\n", given[0], label)
		default:
			printDifference(c, d)
		}
		return nil
	}
	return cmd
}

func printDifference(c *cli.Env, d policyDifference) {
	fmt.Fprint(c.Out, d.Text)
	if len(d.Changes) == 0 {
		c.Printf("\nnothing changes in meaning\n")
		return
	}
	c.Printf("\nin meaning:\n")
	for _, x := range d.Changes {
		c.Printf("  %s\n", x)
	}
}
