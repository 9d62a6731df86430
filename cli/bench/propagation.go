package bench

import (
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

const propagationLong = `Run a cluster of so many processes on this host, each a member with gossip
over loopback, encrypted, and measure what follows. Their pace is a LAN's, the default of souk agent; where there
are more than 40 members a core it is a WAN's, for they cannot all be scheduled in the time that a LAN's probe
allows.

  propagation        a change at a random member until all others have it
  propagation_each   the same, each other member by itself
  idle_cpu           what a member takes of one core while nothing changes
  idle_bytes         what it sends and receives then, in packets and streams
  idle_memory        what it has then (PSS): what members share counts once
  join_cpu           what a member took of a core from its start until all knew all
  death              a member killed (SIGKILL) until all others hold it for dead
  false_suspicions   members thought dead that were not, in the whole run`

func cmdBenchPropagation(c *cli.Env) *cobra.Command {
	o := new(bench.PropagationOptions)
	cmd := &cobra.Command{
		Use:     "propagation",
		Short:   "Measure how fast a cluster hears of a change, and what hearing costs",
		Long:    propagationLong,
		Example: "  souk bench propagation\n  souk bench propagation --nodes 50 --json",
		Args:    cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 50, "how many processes")
	f.IntVar(&o.N, "n", 200, "how many changes")
	f.IntVar(&o.Deaths, "deaths", 5, "how many members are killed")
	f.StringVar(&o.Pace, "pace", "", "lan or wan, see souk agent (default: lan up to 40 members a core, else wan)")
	f.DurationVar(&o.Idle, "idle", 20*time.Second, "for how long idleness is measured")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Nodes < 2 || o.Nodes > 1000 || o.N < 1 || o.Deaths < 0 || o.Deaths > o.Nodes-2 || o.Idle < time.Second {
			return cli.Usagef(
				"--nodes is from 2 to 1000, --n at least 1, --deaths at most two less than the nodes, --idle at " +
					"least 1s")
		}
		if o.Pace == "" {
			if o.Pace = "lan"; o.Nodes > bench.Crowd*runtime.NumCPU() {
				o.Pace = "wan"
			}
		}
		if _, err := cli.PaceOf(o.Pace); err != nil {
			return err
		}
		return bench.Propagation(cmd.Context(), o, &reporter{c: c})
	}
	return cmd
}
