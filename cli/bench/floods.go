package bench

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

const floodsLong = `Start two agents of its own on loopback and launch machines at one of them, without a flood and with each
of these floods in turn. A flood comes from a process of its own, from the agents' own address, without a token, a key
or a certificate. What the other end closes it opens again, at --rate connections a second at most:

  api      1,500 connections to each API, GET /livez on each, which then stay
  gossip   1,500 connections to each gossip port that say nothing
  wire     4,400 connections to each wire port that say nothing
  resets   3 connections to the door for joins, which begin 33,000 questions a second and take them back

Meanwhile the agent is asked over new connections, it asks the other one over the wire, and tells it objects of 4 KB
by gossip: told is the longest until an answer. CPU is what the flood's own process takes of a core: on a host with
few of them that alone makes launches slower.`

func cmdBenchFloods(c *cli.Env) *cobra.Command {
	o := &bench.FloodsOptions{N: 200, For: 20 * time.Second, Rate: 1000}
	cmd := &cobra.Command{
		Use:     "floods",
		Short:   "Measure how launches and answers fare while strangers flood the ports",
		Long:    floodsLong,
		Example: "  souk bench floods\n  souk bench floods --only gossip,resets --json",
		Args:    cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.IntVar(&o.N, "n", o.N, "how many launches without and with each flood, at least")
	f.DurationVar(&o.For, "for", o.For, "how long each is measured, at least")
	f.IntVar(&o.Rate, "rate", o.Rate, "how many connections a flood opens a second, at most")
	f.StringSliceVar(&o.Only, "only", nil, "only these floods")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.N < 2 || o.For < time.Second || o.Rate < 1 || o.Rate > 50_000 {
			return cli.Usagef("--n is at least 2, --for at least 1s, --rate 1 to 50000")
		}
		if !o.Known() {
			return cli.Usagef("--only names no flood there is; see \"souk bench floods --help\"")
		}
		return bench.Floods(cmd.Context(), o, &reporter{c: c, head: bench.FloodsHead()})
	}
	return cmd
}
