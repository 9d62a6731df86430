package bench

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench/request"
	"github.com/soukhq/souk/cli"
)

const benchWakeLong = `Start a souk of its own in a temporary directory, measure how long requests take that wake a machine, and end it.

  stopped        a request for a stopped machine, to the end of its answer. Floor: fork and exec of the same program until
                 its port accepts
  checked        the same for a machine with a check that must pass before: tcp or http, of its service or its own. Floor:
                 with one such check
  suspended      a request for a suspended machine. Floor: SIGCONT to a stopped program, and its answer
  burst_1000     so many requests at once, over connections that are open, for one stopped machine, until all are
                 answered; the same for one that listens half a second after its start. Floor: one such request; _work:
                 as many requests to the program itself
  asleep_10000   what many machines asleep take of memory (anonymous: files' pages are the kernel's to drop) and CPU, and
                 a wake beside them. Floor: a wake without them`

func cmdBenchWake(c *cli.Env) *cobra.Command {
	o := request.WakeOptions{}
	cmd := &cobra.Command{
		Use:     "wake",
		Short:   "Measure how long a request takes that wakes a machine",
		Long:    benchWakeLong,
		Example: "  souk bench wake --json\n  souk bench wake --only stopped --n 500",
		Args:    cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.IntVar(&o.N, "n", 100, "how many wakes of each kind are measured")
	f.IntVar(&o.Burst, "burst", 1000, "how many requests there are at once in burst")
	f.IntVar(&o.Apps, "apps", 10000, "how many machines are asleep in asleep")
	f.StringSliceVar(&o.Only, "only", nil, "only these rows")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.N < 1 || o.Burst < 1 || o.Apps < 1 {
			return cli.Usagef("--n, --burst and --apps are at least 1")
		}
		if err := checkRows(o.Only, request.WakeRows()); err != nil {
			return err
		}
		return request.Wake(cmd.Context(), o, &reporter{c: c, head: request.WakeHead()})
	}
	return cmd
}

const benchProxyLong = `Start a souk of its own in a temporary directory, measure how many requests a second its proxy leads to a machine that
is up, with routing, limits, metrics and access log, and end it.

Beside it, in turns, with the same backend: no proxy at all (direct), Go's own ReverseProxy with large pools, and nginx,
HAProxy and Caddy where they are on this host. wrk makes the load where it is on this host (apt install wrk).`

func cmdBenchProxy(c *cli.Env) *cobra.Command {
	o := request.ProxyOptions{}
	cmd := &cobra.Command{
		Use:     "proxy",
		Short:   "Measure requests a second to a machine that is up, beside other proxies",
		Long:    benchProxyLong,
		Example: "  souk bench proxy --json\n  souk bench proxy --connections 64 --for 5s",
		Args:    cli.Args(0, 0, "no argument"),
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Connections, "connections", []int{16, 64, 128}, "how many connections there are, a row each")
	f.DurationVar(&o.For, "for", 2*time.Second, "how long each is measured, in each round")
	f.IntVar(&o.Rounds, "rounds", 3, "how often all are measured in turns; the middle counts")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.For < time.Second || o.Rounds < 1 || len(o.Connections) == 0 || slices.Min(o.Connections) < 1 {
			return cli.Usagef("--for is at least 1s, --rounds and --connections at least 1")
		}
		return request.Proxy(cmd.Context(), o, &reporter{c: c, head: request.ProxyHead()})
	}
	return cmd
}
