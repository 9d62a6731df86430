package bench

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench/rollouts"
	"github.com/soukhq/souk/cli"
)

const benchRolloutLong = `Start souks of their own in a temporary directory, measure how a service's machines are replaced, and end them.

  rolling_50         a release of 50 machines, five at a time, until its rollout is done. Floor: a client that makes each
                     machine's successor, then cordons, stops and destroys the machine, five at a time
  bluegreen_switch   a blue-green rollout of five replicas on five members, under requests through each: how long old
                     and new machines answered side by side. Needs root, runc and a static busybox
  rest_...           what 10,000 services at rest take of a member's CPU and memory, and what members say to each other
                     for them: more than the same members with the same apps before`

func cmdBenchRollout(c *cli.Env) *cobra.Command {
	o := rollouts.Options{}
	cmd := &cobra.Command{
		Use:     "rollout",
		Short:   "Measure how fast a release replaces machines",
		Long:    benchRolloutLong,
		Example: "  souk bench rollout --json\n  souk bench rollout --only rolling --machines 200",
		Args:    cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.IntVar(&o.Machines, "machines", 50, "how many machines are replaced in rolling")
	f.IntVar(&o.At, "at-once", 5, "how many of them at a time")
	f.IntVar(&o.Rounds, "rounds", 5, "how many rollouts of them, in turns with the floor")
	f.IntVar(&o.Members, "members", 5, "how many members and replicas there are in bluegreen_switch")
	f.IntVar(&o.Switches, "switches", 20, "how many rollouts of those")
	f.IntVar(&o.Services, "services", 10000, "how many services rest in rest")
	f.StringSliceVar(&o.Only, "only", nil, "only these rows: rolling, bluegreen_switch, rest")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if min(o.Machines, o.At, o.Rounds, o.Members, o.Switches, o.Services) < 1 || o.Machines > 1000 ||
			o.Members > 20 {
			return cli.Usagef("--machines is from 1 to 1000, --members from 1 to 20, the others are at least 1")
		}
		if err := checkRows(o.Only, rollouts.Rows()); err != nil {
			return err
		}
		return rollouts.Run(cmd.Context(), o, &reporter{c: c, head: rollouts.Head()})
	}
	return cmd
}
