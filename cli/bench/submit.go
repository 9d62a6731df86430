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

With --members the workers are those of so many agents of a cluster on this host, and the job is submitted at the first;
with --apart at a further one, which has no room for its tasks: its CPU time is that of a buyer alone.

With --peers GNU parallel and Slurm run the same tasks, in turns with souk, as many at once, where they are installed
(on Debian: parallel; slurm-wlm, as root). Slurm's arrays have 300 tasks.

  submit_sleep_50ms   tasks of 50 ms that use no CPU
  submit_true         tasks that end at once: nothing but overhead`

func cmdBenchSubmit(c *cli.Env) *cobra.Command {
	o := new(bench.SubmitOptions)
	cmd := &cobra.Command{Use: "submit", Short: "Measure how fast arrays of short tasks run", Long: benchSubmitLong,
		Example: "  souk bench submit\n  souk bench submit --tasks 500 --json\n  souk bench submit --members 3\n" +
			"  souk bench submit --peers",
		Args: cli.Args(0, 0, "no argument")}
	f := cmd.Flags()
	f.IntVar(&o.Tasks, "tasks", 2000, "how many tasks an array has")
	f.IntVar(&o.Members, "members", 0, "use so many agents with one worker each; 0 means one souk with --workers")
	f.BoolVar(&o.Apart, "apart", false, "with --members: submit at a further agent, which has no room")
	f.IntVar(&o.Workers, "workers", 3, "on how many workers of this host")
	f.IntVar(&o.Concurrency, "concurrency", 48, "how many tasks have room at once, on all workers together")
	f.BoolVar(&o.Peers, "peers", false, "run the same tasks with GNU parallel and Slurm, too, where they are installed")
	f.IntVar(&o.Rounds, "rounds", 3, "how often each is measured")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Tasks < 1 || o.Tasks > jobs.MaxTasks || o.Workers < 1 || o.Workers > server.MaxWorkers ||
			o.Members < 0 || o.Members > server.MaxWorkers || o.Concurrency < max(o.Workers, o.Members) ||
			o.Rounds < 1 || o.Apart && o.Members == 0 {
			return cli.Usagef(
				"--tasks is 1 to %d, --workers and --members up to %d, --concurrency at least one for each worker, "+
					"--rounds at least 1; --apart needs --members",
				jobs.MaxTasks, server.MaxWorkers)
		}
		return bench.Submit(cmd.Context(), o, &reporter{c: c, head: bench.SubmitHead()})
	}
	return cmd
}
