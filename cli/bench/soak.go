package bench

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

const soakLong = `Have work of every kind come and go for a while, and fail when something grows with the time.

An agent of its own gets machines that are started, used, leased, stopped, started and destroyed, apps with secrets,
and arrays of tasks, as fast as it takes them. Now and then all of that pauses, and memory, descriptors, threads and
goroutines of the agent and its reaper are looked at, and the size of each file and the number of entries of each
directory below theirs; files of one kind count together.

The first third of the time is warm-up. Behind it a slope of more than 0.1 % of the median a minute is growth: of the
slopes between all pairs of looks the median counts, so a log that is cut now and then does not grow.`

func cmdBenchSoak(c *cli.Env) *cobra.Command {
	o := bench.SoakOptions{For: time.Hour, Every: 10 * time.Second, Concurrency: 8}
	cmd := &cobra.Command{
		Use:     "soak",
		Short:   "Find what grows with the time while work comes and goes",
		Long:    soakLong,
		Example: "  souk bench soak\n  souk bench soak --for 10m --every 2s --json",
		Args:    cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.DurationVar(&o.For, "for", o.For, "how long there is work")
	f.DurationVar(&o.Every, "every", o.Every, "how long between two looks")
	f.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "how many clients are at work")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Every < time.Second || o.For < 12*o.Every || o.Concurrency < 1 {
			return cli.Usagef("--every is at least 1s, --for at least twelve times as long, --concurrency at least 1")
		}
		return bench.Soak(cmd.Context(), o, &reporter{c: c, head: bench.SoakHead()})
	}
	return cmd
}
