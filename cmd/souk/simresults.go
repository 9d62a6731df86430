package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/sim"
)

func (c *cli) cmdSimResults() *cobra.Command {
	dir, seeds := "", 5
	cmd := &cobra.Command{Use: "results", Short: "Write docs/results.md: all schedulers on the papers' traces", Args: args(0, 0, "no argument"),
		Example: "  souk sim results --traces DIR > docs/results.md"}
	cmd.Flags().StringVar(&dir, "traces", "", "the directory that has tr/YH2_sub.tr.gz and tr/GOOG_subtrace.tr.gz (default $SOUK_TRACES)")
	cmd.Flags().IntVar(&seeds, "seeds", 5, "how many seeds to run")
	cmd.RunE = func(*cobra.Command, []string) error {
		if dir == "" {
			dir = c.getenv("SOUK_TRACES")
		}
		if dir == "" {
			return usagef("the traces are missing; give --traces DIR or set SOUK_TRACES")
		}
		began := time.Now()
		tell := func(what string) { fmt.Fprintf(c.err, "%5.0f s  %s\n", time.Since(began).Seconds(), what) }
		return sim.Results(c.out, dir, seeds, runtime.Version()+" on "+runtime.GOARCH, tell)
	}
	return cmd
}
