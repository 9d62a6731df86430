package sim

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/sim"
)

func cmdSimResults(c *cli.Env) *cobra.Command {
	dir, seeds := "", 5
	cmd := &cobra.Command{
		Use:     "results",
		Short:   "Write docs/results.md: all schedulers on the papers' traces",
		Args:    cli.Args(0, 0, "no argument"),
		Example: "  souk sim results --traces DIR > docs/results.md",
	}
	cmd.Flags().StringVar(&dir, "traces", "",
		"the directory that has tr/YH2_sub.tr.gz and tr/GOOG_subtrace.tr.gz (default $SOUK_TRACES)")
	cmd.Flags().IntVar(&seeds, "seeds", 5, "how many seeds to run")
	cmd.RunE = func(*cobra.Command, []string) error {
		if dir == "" {
			dir = c.Getenv("SOUK_TRACES")
		}
		if dir == "" {
			return cli.Usagef("the traces are missing; give --traces DIR or set SOUK_TRACES")
		}
		began := time.Now()
		tell := func(what string) { fmt.Fprintf(c.Err, "%5.0f s  %s\n", time.Since(began).Seconds(), what) }
		return sim.Results(c.Out, dir, seeds, runtime.Version()+" on "+runtime.GOARCH, tell)
	}
	return cmd
}
