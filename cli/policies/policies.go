// Package policies has the commands souk policy and souk apps policy.
package policies

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
)

// Policy makes the command "souk policy".
func Policy(c *cli.Env) *cobra.Command {
	return cli.Parent(
		&cobra.Command{
			Use:     "policy",
			Aliases: []string{"policies"},
			Short:   "List, check, plan, apply and roll back policies of placement",
			Long: `A policy says which of the workers that can take a machine are used, and
which is best. It is a file: filters and weighted scores over the request and the worker. The format stands in
"souk help policies". A launch may choose a policy, else its app's is used ("souk apps policy"), else the
default ("souk policy use").`,
			Example: "  souk policy ls\n  souk policy check fast.toml\n  souk policy plan fast.toml\n  souk policy " +
				"apply " +
				"fast.toml",
		},
		policyLs(c),
		policyShow(c),
		policyCheck(c),
		policyPlan(c),
		policyApply(c),
		policyDiff(c),
		policyRollback(c),
		policyUse(c),
		policyShadow(c),
		policyRm(c),
	)
}

func policyLs(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"},
		Short: "List policies: their versions, and who uses them",
		Example: "  souk policy ls\n  souk policy ls --json | jq -r '.[] | " +
			"select(.default).name'", Args: cli.Args(0, 0, "no argument")}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		ps, err := cl.Policies(cmd.Context())
		if err != nil {
			return err
		}
		if c.JSON {
			cli.JSONList(c, ps)
			return nil
		}
		rows := make([][]cli.Cell, 0, len(ps))
		for _, p := range ps {
			rows = append(rows, cli.Cells(p.Name, versionText(p.Version), usedBy(p), policySummary(p)))
		}
		c.Table([]cli.Column{cli.Keep("NAME").Cut(8), cli.Keep("VERSION"), cli.Drop("USED BY", 2).Cut(8),
			cli.Reason("SUMMARY")}, rows)
		return nil
	}
	return cmd
}

func policySummary(p api.PolicyInfo) string {
	if p.Broken != "" {
		return "cannot be loaded, spread stands in: " + p.Broken
	}
	return p.Summary
}

func versionText(n int) string {
	if n == 0 {
		return "built in"
	}
	return fmt.Sprint(n)
}

func usedBy(p api.PolicyInfo) string {
	var who []string
	if p.Default {
		who = append(who, "default")
	}
	if p.Shadow {
		who = append(who, "shadow")
	}
	switch n := len(p.Apps); {
	case n == 1:
		who = append(who, "app "+p.Apps[0])
	case n > 1:
		who = append(who, fmt.Sprintf("%d apps", n))
	case len(who) == 0:
		return "-"
	}
	return strings.Join(who, ", ")
}

func policyShow(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "show POLICY",
		Short: "Print a policy's file, and with --versions what versions are kept",
		Example: "  souk policy show spread > mine.toml\n  souk policy show fast --version 3\n  souk policy show " +
			"fast " +
			"--versions", Args: cli.Args(1, 1, "a name")}
	version := cmd.Flags().Int("version", 0, "this version instead of the newest")
	versions := cmd.Flags().Bool("versions", false, "list the versions instead")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		p, err := cl.Policy(cmd.Context(), given[0], *version)
		switch {
		case err != nil:
			return err
		case c.JSON:
			c.JSONLine(c.Out, p)
		case *versions:
			var rows [][]cli.Cell
			for _, v := range p.Versions {
				of := ""
				if v.Of != 0 {
					of = fmt.Sprintf("back to %d", v.Of)
				}
				rows = append(rows, cli.Cells(fmt.Sprint(v.Version), v.At.Format(time.RFC3339), of))
			}
			c.Table(cli.Columns("VERSION", "APPLIED", ""), rows)
		default:
			fmt.Fprint(c.Out, p.Text)
		}
		return nil
	}
	return cmd
}

// policyFile reads a policy file, "-" being stdin. It stops reading a file that is too large.
func policyFile(c *cli.Env, name string) (string, error) {
	in := c.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", fault.Wrap(err, fault.NotFound, fault.CodeFile, "the policy file %s cannot be read", name)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, policy.MaxFile+1))
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, fault.CodeFile, "the policy file %s cannot be read", name)
	}
	return string(raw), nil
}

// checked is what check says in --json.
type checked struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`
	Name     string           `json:"name,omitempty"`
	Summary  string           `json:"summary,omitempty"`
	Cost     uint64           `json:"cost,omitempty"`
	Problems []policy.Problem `json:"problems"`
	Warnings []policy.Problem `json:"warnings,omitempty"`
}

// loadPolicy reads and checks a policy file. Each problem is printed with file, line and column.
func loadPolicy(c *cli.Env, name string) (*policy.Source, error) {
	text, err := policyFile(c, name)
	if err != nil {
		return nil, err
	}
	s, err := policy.Load([]byte(text))
	problems := policy.Problems(err)
	if problems == nil {
		if s != nil && !c.JSON {
			for _, p := range s.Idle {
				fmt.Fprintf(c.Err, "%s:%s (a warning)\n", name, p)
			}
		}
		return s, err
	}
	if c.JSON {
		c.JSONLine(c.Out, checked{File: name, Problems: problems})
	} else {
		for _, p := range problems {
			fmt.Fprintf(c.Err, "%s:%s\n", name, p)
		}
	}
	what := "problem"
	if len(problems) > 1 {
		what = "problems"
	}
	return nil, fault.New(fault.Invalid, policy.CodeInvalid, "%s has %d %s and is not used", name, len(problems), what)
}

func policyCheck(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "check FILE...", Short: "Check policy files: syntax, types and cost; needs no souk",
		Long: `Check policy files: their form, the types of every expression, and what it
can cost. Each problem is printed as FILE:LINE:COLUMN: what. The exit code is 0 when all are good, 78 when one is
not, 66 when one is not there. No souk is asked. FILE may be - for stdin.`,
		Example: "  souk policy check fast.toml\n  souk policy check policies/*.toml " +
			"--json", Args: cli.Args(1, -1, "at least one file")}
	cmd.RunE = func(_ *cobra.Command, files []string) error {
		var errs []error
		for _, name := range files {
			s, err := loadPolicy(c, name)
			switch {
			case err != nil && len(files) == 1:
				return err
			case err != nil:
				errs = append(errs, err)
				c.PrintError(err)
			case c.JSON:
				c.JSONLine(c.Out,
					checked{File: name, OK: true, Name: s.Name, Summary: s.Summary(), Cost: s.Cost,
						Problems: []policy.Problem{}, Warnings: s.Idle})
			default:
				c.Printf("%s: policy %s is good: %s; its expressions cost at most %d on one worker\n", name,
					s.Name,
					s.Summary(), s.Cost)
			}
		}
		if len(errs) > 0 {
			return cli.Several{Errs: errs}
		}
		return nil
	}
	return cmd
}

func policyApply(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "apply FILE", Short: "Put a policy file in force, as the next version of its policy",
		Long: `Put a policy file in force, as the next version of the policy that it names. Machines that run stay where they are;
"souk policy plan FILE" says beforehand what would be placed elsewhere. The same file again changes nothing. A policy that
is used and would place machines nowhere which are placed now needs --yes, as "use", "rollback" and "souk apps policy" do.`,
		Example: "  souk policy apply fast.toml", Args: cli.Args(1, 1, "a file")}
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		s, err := loadPolicy(c, given[0])
		if err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if err := unplaced(cmd.Context(), cl, api.PolicyQuestion{Text: s.Text, Chosen: true}, *yes); err != nil {
			return err
		}
		a, err := cl.ApplyPolicy(cmd.Context(), s.Text)
		if err != nil {
			return err
		}
		return sayApplied(c, a, "in force")
	}
	return cmd
}

// yesFlag adds the flag of a command that puts a policy in force.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("yes", false, "also where machines that are placed now would be placed nowhere")
}

func sayApplied(c *cli.Env, a api.PolicyApplied, how string) error {
	switch used := usedBy(a.Policy); {
	case c.JSON:
		c.JSONLine(c.Out, a)
	case !a.Changed:
		c.Printf("policy %s is at version %d already; nothing changed\n", a.Policy.Name, a.Policy.Version)
	case used == "-":
		c.Printf(
			"policy %s is at version %d, and nobody uses it yet; \"souk policy use %s\" makes it the default\n",
			a.Policy.Name,
			a.Policy.Version, a.Policy.Name)
	default:
		c.Printf("policy %s is at version %d, %s for %s\n", a.Policy.Name, a.Policy.Version, how, used)
	}
	return nil
}

func policyRollback(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "rollback POLICY", Short: "Put an earlier version of a policy in force again",
		Long: `Put the version before the one in force, or the one of --to, in force again. It becomes a new version with the old
text, so that numbers only grow; rolling back again goes further back.`,
		Example: "  souk policy rollback fast\n  souk policy rollback fast --to 3", Args: cli.Args(1, 1, "a name")}
	to := cmd.Flags().Int("to", 0, "the version to go back to; 0: the one before")
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if err := unplaced(cmd.Context(), cl, api.PolicyQuestion{Policy: given[0], Back: to, Chosen: true},
			*yes); err != nil {
			return err
		}
		a, err := cl.RollbackPolicy(cmd.Context(), given[0], *to)
		if err != nil {
			return err
		}
		return sayApplied(c, a, fmt.Sprintf("with the text of version %d, in force", a.Policy.Of))
	}
	return cmd
}

// choose makes a command that selects a policy by name, or none with --none. places says that the policy then places
// machines.
func choose(c *cli.Env, places bool, use, short, long, example string,
	set func(cl *client.Client, cmd *cobra.Command, name string) error, said func(name string) string) *cobra.Command {
	yes := new(bool)
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example,
		Args: cli.Args(0, 1, "a name, or --none")}
	none := cmd.Flags().Bool("none", false, "give it up")
	if places {
		yes = yesFlag(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if *none == (len(given) == 1) {
			return cli.Usagef("%s wants a name or --none, one of them; see \"%s --help\"", cmd.CommandPath(),
				cmd.CommandPath())
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		name := strings.Join(given, "")
		if places {
			about := api.PolicyQuestion{Policy: cmp.Or(name, policy.DefaultName), Default: true}
			if err := unplaced(cmd.Context(), cl, about, *yes); err != nil {
				return err
			}
		}
		if err := set(cl, cmd, name); err != nil {
			return err
		}
		c.Say("chosen", name, "%s", said(name))
		return nil
	}
	return cmd
}

func policyUse(c *cli.Env) *cobra.Command {
	return choose(c, true, "use POLICY", "Make a policy the default",
		"Make a policy the one that is used where neither a launch nor its app chose another. --none goes back to "+
			"spread.",
		"  souk policy use binpack\n  souk policy use --none",
		func(cl *client.Client, cmd *cobra.Command, name string) error {
			return cl.ChoosePolicies(cmd.Context(), &name, nil)
		},
		func(name string) string {
			if name == "" {
				name = policy.DefaultName
			}
			return "policy " + name + " is the default"
		})
}

func policyShadow(c *cli.Env) *cobra.Command {
	return choose(
		c,
		false,
		"shadow POLICY",
		"Let a policy watch: what it would choose is recorded, and nothing is placed by it",
		`Let a policy watch beside the one that places. What it would have chosen on
the same view is recorded with each machine ("souk explain"), and counted in the metric souk_policy_shadow_total.
It places nothing. --none ends it.`,
		"  souk policy shadow fast\n  souk policy shadow --none",
		func(cl *client.Client, cmd *cobra.Command, name string) error {
			return cl.ChoosePolicies(cmd.Context(), nil, &name)
		},
		func(name string) string {
			if name == "" {
				return "no policy watches"
			}
			return "policy " + name + " watches, and places nothing"
		},
	)
}

func policyRm(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm POLICY",
		Short:   "Take out a policy that nobody uses, with all its versions",
		Example: "  souk policy rm fast",
		Args:    cli.Args(1, 1, "a name"),
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if err := cl.DeletePolicy(cmd.Context(), given[0]); err != nil {
			return err
		}
		c.Say("removed", given[0], "policy %s is removed", given[0])
		return nil
	}
	return cmd
}

// AppsPolicy is "souk apps policy".
func AppsPolicy(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policy APP [POLICY]",
		Short:   "Choose the policy that places an app's machines, or tell which it is",
		Example: "  souk apps policy shop\n  souk apps policy shop binpack\n  souk apps policy shop --none",
		Args:    cli.Args(1, 2, "an app, and a policy's name to choose it"),
	}
	none := cmd.Flags().Bool("none", false, "use the default")
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if *none && len(given) == 2 {
			return cli.Usagef("%s wants a name or --none, not both", cmd.CommandPath())
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		name, text := "", "app %s is placed by policy %s"
		switch {
		case len(given) == 2 || *none:
			name = strings.Join(given[1:], "")
			if err = unplacedOf(cmd.Context(), cl, given[0], name, *yes); err == nil {
				err = cl.SetAppPolicy(cmd.Context(), given[0], name)
			}
		default:
			name, err = cl.AppPolicy(cmd.Context(), given[0])
		}
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, map[string]string{"app": given[0], "policy": name})
			return nil
		}
		if name == "" {
			name = "the default"
			text = "app %s is placed by %s"
		}
		c.Printf(text+"\n", given[0], name)
		return nil
	}
	return cmd
}
