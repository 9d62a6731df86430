package bench

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/server"
	"github.com/soukhq/souk/core/jobs"
)

const benchSubmitLong = `Start a souk of its own in a temporary directory and submit arrays of short
tasks to it, end to end: from the submission until the answer that the job has ended, all results durable. The
floor is a bare fork, exec and wait loop of the same program with the same concurrency, in this process, in turns
with souk; both tell their median round.

  submit_sleep_50ms   tasks of 50 ms that use no CPU
  submit_true         tasks that end at once: nothing but overhead`

func cmdBenchSubmit(c *cli.Env) *cobra.Command {
	o := new(bench.SubmitOptions)
	cmd := &cobra.Command{Use: "submit", Short: "Measure how fast arrays of short tasks run", Long: benchSubmitLong,
		Example: "  souk bench submit\n  souk bench submit --tasks 500 --json", Args: cli.Args(0, 0, "no argument")}
	f := cmd.Flags()
	f.IntVar(&o.Tasks, "tasks", 2000, "how many tasks an array has")
	f.IntVar(&o.Workers, "workers", 3, "on how many workers of this host")
	f.IntVar(&o.Concurrency, "concurrency", 48, "how many tasks have room at once, on all workers together")
	f.IntVar(&o.Rounds, "rounds", 3, "how often each is measured")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Tasks < 1 || o.Tasks > jobs.MaxTasks || o.Workers < 1 || o.Workers > server.MaxWorkers ||
			o.Concurrency < o.Workers ||
			o.Rounds < 1 {
			return cli.Usagef(
				"--tasks is 1 to %d, --workers 1 to %d, --concurrency at least one for each worker, --rounds at "+
					"least 1",
				jobs.MaxTasks, server.MaxWorkers)
		}
		return bench.Submit(cmd.Context(), o, &reporter{c: c, head: bench.SubmitHead()})
	}
	return cmd
}
