// Package doctor has the commands souk doctor and souk version.
package doctor

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
)

// Doctor makes the command "souk doctor".
func Doctor(c *cli.Env) *cobra.Command {
	var dirFlag string
	var inv invariantFlags
	var whole, decisions bool
	cmd := &cobra.Command{Use: "doctor", Short: "Tell what this host can do for souk and what it lacks",
		Long: `Examine this host (kernel, cgroups, limits, disk) and, when a souk answers, what its workers find on theirs.
It works without a souk that runs. The exit code is 0 also when something is lacking: souk does without it, and the
advice tells what is lost.

With --invariants the whole cluster is checked instead, through the souk that answers: what every member says of
itself, and the processes of this host, against what souk promises (the invariants of the design, by their
numbers). It changes nothing. The exit code is 1 when one does not hold. Each line says what was looked at, and
what was found.

With --cluster it is what the members of the cluster have and lack, as the souk that answers finds it: who can be
heard, what is known of them and how old that is, drift between runtime, journal and registry, clocks,
certificates, cordons. The exit code is 65 when something needs attention.

With --decisions every decision of the decision log in the souk's directory is computed again: each clause, score
and term, and whom the buyer asked in which order. The exit code is 1 when one is not what was recorded. No souk
need run; one that answers is asked for the operators' own policies.`,
		Example: "  souk doctor\n  souk doctor --json | jq '.[].findings[] | select(.ok|not)'\n  souk doctor " +
			"--invariants\n  souk doctor --decisions", Args: cli.Args(0, 0, "no argument")}
	cmd.Flags().StringVar(&dirFlag, "dir", "",
		"the directory that souk dev keeps its state in; with --decisions that of an agent or a souk dev (default: of "+
			"this host's)")
	inv.add(cmd.Flags())
	cmd.Flags().BoolVar(
		&whole,
		"cluster",
		false,
		"examine the cluster instead: drift, clocks, certificates, staleness, cordons; the exit code says whether "+
			"all is "+
			"well",
	)
	cmd.Flags().BoolVar(&decisions, "decisions", false,
		"compute every recorded decision again, and tell those that differ")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if inv.on || inv.history != "" {
			return doInvariants(cmd.Context(), c, &inv)
		}
		if decisions {
			return doDecisions(cmd.Context(), c, dirFlag)
		}
		if whole {
			return doHealth(cmd.Context(), c)
		}
		return doExamine(cmd.Context(), c, dirFlag)
	}
	return cmd
}

// doExamine prints what this host has and lacks, and what the answering souk's workers find on theirs.
func doExamine(ctx context.Context, c *cli.Env, dirFlag string) error {
	dir, err := c.DevDir(dirFlag)
	if err != nil {
		return err
	}
	here := api.Examination{Worker: "this host", Findings: examineHost(ctx, c, dir)}
	all := []api.Examination{here}
	cl, err := c.Client()
	var ex []api.Examination
	if err == nil {
		ex, err = cl.Doctor(ctx)
	}
	if err != nil {
		here.Findings = append(here.Findings, cluster.Finding{Name: "server", Have: "none answers",
			Advice: err.Error()})
	} else {
		here.Findings = append(here.Findings,
			cluster.Finding{Name: "server", OK: true, Have: fmt.Sprintf("%d workers at %s", len(ex), cl.Addr())})
	}
	all[0] = here
	all = append(all, ex...)
	if c.JSON {
		cli.JSONList(c, all)
		return nil
	}
	for _, e := range all {
		printFindings(c, e)
	}
	return nil
}

func printFindings(c *cli.Env, e api.Examination) {
	c.Printf("%s\n", e.Worker)
	for _, f := range e.Findings {
		mark := "ok  "
		if !f.OK {
			mark = "LACK"
		}
		c.Printf("  %s %-12s %s\n", mark, f.Name, f.Have)
		if f.Advice != "" {
			c.Printf("       %-12s %s\n", "", f.Advice)
		}
	}
}
