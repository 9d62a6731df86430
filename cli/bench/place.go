package bench

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench/place"
	"github.com/soukhq/souk/cli"
)

const benchPlaceLong = `Place machines on workers in memory and measure what a placement costs this process.

It is the path that a create takes after its body was read: broker, fleet, index, catalog, the worker's own ledger and
what it tells the fleet, the decision log. No process is started and no socket is opened. The fleet knows the machines
that are given by --machines beforehand; a fifth of them are of one app, in which the named machines are made.

The floor is a grant alone, at a worker that was chosen beforehand: its ledger, and what it tells the fleet. CPU is that
of the whole process, its garbage collection too. The same is measured over ten workers.`

func cmdBenchPlace(c *cli.Env) *cobra.Command {
	o := place.Options{Workers: 10_000, Creates: 20_000}
	cmd := &cobra.Command{Use: "place", Short: "Measure what a placement costs among many workers",
		Long:    benchPlaceLong,
		Example: "  souk bench place --workers 10000 --json\n  souk bench place --workers 1000 --machines 50000",
		Args:    cli.Args(0, 0, "no argument")}
	f := cmd.Flags()
	f.IntVar(&o.Workers, "workers", o.Workers, "how many there are")
	f.IntVar(&o.Machines, "machines", 0, "how many are known beforehand (default: ten for each worker)")
	f.IntVar(&o.Creates, "creates", o.Creates, "how many are measured, with names and without")
	f.IntVar(&o.Callers, "callers", 0, "how many create at the same time (default: one for each core)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Workers < 1 || o.Workers > 1_000_000 || o.Creates < 1000 || o.Machines < 0 || o.Callers < 0 {
			return cli.Usagef("--workers is 1 to 1000000, --creates at least 1000, --machines and --callers are not " +
				"negative")
		}
		done := c.Progress("measuring placements over %d workers", o.Workers)
		r, err := place.Run(cmd.Context(), o)
		done()
		if err != nil {
			return err
		}
		(&reporter{c: c}).Row(r)
		return nil
	}
	return cmd
}
