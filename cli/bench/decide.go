package bench

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

const benchDecideLong = `Make decisions over a synthetic fleet and measure how many a second, on one core.

The fleet has workers of five sizes in four regions, with 20 attributes, some with GPUs, reservations and
requirements of their own. It fills to 95 % and empties to 60 % in turns. Requests come in 240 shapes, 50 apps
each; 5 % have conditions: attributes, GPU kinds, spreads, anti-affinity, reservations. Each decision is resolved,
picked by the index, judged whole by the judge, and its grant entered, so that the next one sees it; machines end
as others come.

A sample of the decisions is held against a scan of all workers. The CEL policy is the default one written as three
expressions. The log is the decision log, with the six best workers of each decision and their records.`

func cmdBenchDecide(c *cli.Env) *cobra.Command {
	workers, decisions := 10_000, 200_000
	seed := uint64(1)
	cmd := &cobra.Command{
		Use:     "decide",
		Short:   "Measure how fast placements are decided, and how well",
		Long:    benchDecideLong,
		Example: "  souk bench decide --workers 10000 --json\n  souk bench decide --workers 50000 --decisions 100000",
		Args:    cli.Args(0, 0, "no argument"),
	}
	cmd.Flags().IntVar(&workers, "workers", workers, "of the synthetic fleet")
	cmd.Flags().IntVar(&decisions, "decisions", decisions, "how many are measured")
	cmd.Flags().Uint64Var(&seed, "seed", seed, "of the fleet and the requests")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if workers < 10 || workers > 1_000_000 || decisions < 1000 {
			return cli.Usagef("--workers is 10 to 1000000, --decisions at least 1000")
		}
		done := c.Progress("measuring decisions over %d workers", workers)
		r, err := bench.Decide(cmd.Context(), workers, decisions, seed)
		done()
		if err != nil {
			return err
		}
		(&reporter{c: c}).Row(r)
		return nil
	}
	return cmd
}
