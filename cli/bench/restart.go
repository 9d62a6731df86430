package bench

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

const restartLong = `Start an agent of its own, fill it with machines, kill -9 its process, and measure how long a new one takes.

Most machines are made and not started, some run. Afterwards machines are changed, so that the journal's log has what
its file has not. The agent is back when /readyz says so, the list of all machines was read, and one more was made.

The floor is what no restart can avoid, one after the other: one exec of the program, the same bytes read from disk,
and the machines decoded once.`

func cmdBenchRestart(c *cli.Env) *cobra.Command {
	o := bench.RestartOptions{Machines: 20_000, Running: 200, Changes: 4000, Concurrency: 32, Rounds: 3}
	cmd := &cobra.Command{
		Use:     "restart",
		Short:   "Measure how long an agent with many machines is away when it is killed",
		Long:    restartLong,
		Example: "  souk bench restart --json\n  souk bench restart --machines 2000",
		Args:    cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.IntVar(&o.Machines, "machines", o.Machines, "how many it has")
	f.IntVar(&o.Running, "running", o.Running, "how many of them run")
	f.IntVar(&o.Changes, "changes", o.Changes, "how often one of them is changed before the agent is killed")
	f.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "how many are made or changed at once")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "how often the agent is killed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Machines < 1 || o.Concurrency < 1 || o.Rounds < 1 || o.Running < 0 || o.Changes < 0 {
			return cli.Usagef(
				"--machines, --concurrency and --rounds are at least 1, --running and --changes at least 0")
		}
		return bench.Restart(cmd.Context(), o, &reporter{c: c})
	}
	return cmd
}
