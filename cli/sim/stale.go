package sim

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/sim/stale"
)

func cmdSimStale(c *cli.Env) *cobra.Command {
	o, report, members := stale.Options{}, "", 0
	cmd := &cobra.Command{
		Use:   "stale",
		Short: "Measure what a stale view costs: conflicts and time to place by its age",
		Args:  cli.Args(0, 0, "no argument"),
		Long: "Run 16 buyers that place machines at once on 100 workers that are 95 % full, by views of every age, " +
			"with " +
			"real sellers,\n" +
			"buyers and indexes. It ends with an error where a worker grants more than it has, or a refusal's " +
			"clauses do not " +
			"come\n" +
			"out again from the record that it carries.",
		Example: "  souk sim stale --json\n  souk sim stale --report docs/results-stale.md",
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", 1, "the seed")
	f.IntVar(&o.Buyers, "buyers", 16, "how many buyers")
	f.IntVar(&o.Workers, "workers", 100, "how many workers")
	f.Float64Var(&o.Full, "full", 0.95, "how full they are")
	f.Float64Var(&o.Rate, "rate", 2000, "machines that end, and are wanted again, a second")
	f.Float64Var(&o.Seconds, "seconds", 2, "simulated, of each run")
	f.IntVar(&members, "gossip", 0,
		"also with views as old as gossip among so many members makes them, by the registry's own code; 0: not")
	f.StringVar(&report, "report", "", "write the table to this file, and the plots beside it as .svg")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Buyers < 1 || o.Workers < 1 || o.Full <= 0 || o.Full > 1 || o.Rate <= 0 || o.Seconds <= 0 {
			return cli.Usagef("--buyers, --workers, --rate and --seconds are above 0, --full is above 0 and at most 1")
		}
		done := func() {}
		reps, err := stale.Sweep(o, func(mode string, age time.Duration) {
			done()
			done = c.Progress("simulating %s, views %v old", mode, age)
		})
		done()
		if err == nil && members > 1 {
			done = c.Progress("simulating gossip among %d members", members)
			var more []stale.Report
			more, err = stale.Gossiped(o, members, simKnobs(gossip.LAN()))
			reps = append(reps, more...)
			done()
		}
		if err != nil {
			return err
		}
		if report != "" {
			return writeStale(report, reps)
		}
		if c.JSON {
			c.JSONLine(c.Out, map[string]any{"runs": reps})
			return nil
		}
		stale.Markdown(c.Out, reps, "results-stale.svg")
		return nil
	}
	return cmd
}

func writeStale(report string, reps []stale.Report) error {
	plot := strings.TrimSuffix(report, filepath.Ext(report)) + ".svg"
	var text, drawn bytes.Buffer
	stale.Markdown(&text, reps, filepath.Base(plot))
	stale.SVG(&drawn, reps)
	for name, b := range map[string][]byte{report: text.Bytes(), plot: drawn.Bytes()} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			return fault.Wrap(err, fault.Invalid, codeSim, "the report %s cannot be written", name)
		}
	}
	return nil
}
