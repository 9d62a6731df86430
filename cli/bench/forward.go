package bench

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

const forwardLong = `Start three agents of its own on loopback, as the README does, launch real
processes through the first one, and end it all:

  forward        launches pinned to the worker of the agent that is asked, and to another's, in turns: what the way costs.
                 local_calls and far_calls are the round trips between members that a launch takes, counted at the agent
  refused_first  the best worker has become full and the agent that is asked has not heard of it yet: it asks there, is
                 refused, and asks the next. calls are the round trips of such a launch, counted`

func cmdBenchForward(c *cli.Env) *cobra.Command {
	n, refused := 200, 20
	cmd := &cobra.Command{
		Use:     "forward",
		Short:   "Measure what a launch costs through a member that is not the worker's",
		Long:    forwardLong,
		Example: "  souk bench forward\n  souk bench forward --n 500 --json",
		Args:    cli.Args(0, 0, "no argument"),
	}
	cmd.Flags().IntVar(&n, "n", n, "how many launches of each kind")
	cmd.Flags().IntVar(&refused, "refused", refused, "how many launches whose first choice refuses")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if n < 1 || refused < 1 {
			return cli.Usagef("--n and --refused are at least 1")
		}
		return bench.Forward(cmd.Context(), n, refused, &reporter{c: c})
	}
	return cmd
}
