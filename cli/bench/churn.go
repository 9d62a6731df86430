package bench

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

const churnLong = `Start an agent of its own, launch and destroy machines through it, and read what memory its process has afterwards.

Each machine is a real process that is launched, answered "started", and destroyed. floor_mb is what the same agent
had before the first of them. All of it is read from /proc, of the agent's process alone, not of its reaper.`

func cmdBenchChurn(c *cli.Env) *cobra.Command {
	o := bench.ChurnOptions{Machines: 20_000, Concurrency: 32, Settle: 2 * time.Minute}
	cmd := &cobra.Command{
		Use:     "churn",
		Short:   "Measure what memory an agent has after many machines came and went",
		Long:    churnLong,
		Example: "  souk bench churn --json\n  souk bench churn --machines 100000",
		Args:    cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.IntVar(&o.Machines, "machines", o.Machines, "how many come and go")
	f.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "how many are on their way at once")
	f.DurationVar(&o.Settle, "settle", o.Settle, "how long after the last one memory is read")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Machines < 1 || o.Concurrency < 1 || o.Settle < time.Second {
			return cli.Usagef("--machines and --concurrency are at least 1, --settle at least 1s")
		}
		return bench.Churn(cmd.Context(), o, &reporter{c: c})
	}
	return cmd
}
