// Package bench has the command souk bench; package bench at the root does the measuring.
package bench

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

const benchLong = `Start a souk of its own in a temporary directory, measure it, and end it with all its machines.

Figures of one machine mean nothing on another, so each is told as a ratio to a floor measured in the same run, in
turns with it. The floor of a launch is what no orchestrator of this kind can avoid: one HTTP round trip on
loopback, fork and exec of the same program, and one append with fsync, one after the other.

Ratios are to the floor's median, also that of the p99: a floor that is slow at times excuses nothing.

  launch_sequential      a machine created and answered "started", one at a time: ratio to the floor's median
  launch_volume          the same with a volume, which as root needs a mount namespace
  start_stopped          a stopped machine started, one at a time
  resize                 CPU and memory of a machine that runs changed, one at a time, against a read of the machine
  launch_concurrent_64   launches a second of a program that ends at once, against a bare fork, exec and wait loop
                         of the same concurrency
  ps_1000                "souk ps" as a process, from its start to its end, with 1,000 machines on one worker
  memory_1000            what souk and its reapers take (PSS) per machine, the tasks themselves not counted
  idle_cpu, idle_memory  souk and its reapers without a machine; idle_1000_cpu with 1,000`

// Bench makes the command "souk bench".
func Bench(c *cli.Env) *cobra.Command {
	o := new(bench.LaunchOptions)
	launch := &cobra.Command{
		Use:   "launch",
		Short: "Measure how fast machines are launched, and what souk costs",
		Long:  benchLong,
		Example: "  souk bench launch\n  souk bench launch --n 500 --json\n  souk bench launch --only " +
			"launch_sequential,start_stopped",
		Args: cli.Args(0, 0, "no argument"),
	}
	f := launch.Flags()
	f.IntVar(&o.N, "n", 200, "how many launches are measured one by one; the concurrent ones are five times as many")
	f.IntVar(&o.Concurrency, "concurrency", 64, "how many are under way at once in launch_concurrent")
	f.IntVar(&o.Machines, "machines", 1000, "how many machines ps and memory are measured with")
	f.DurationVar(&o.Idle, "idle", 10*time.Second, "for how long idleness is measured")
	f.StringSliceVar(&o.Only, "only", nil, "only these rows")
	launch.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.N < 1 || o.Concurrency < 1 || o.Machines < 1 || o.Idle < time.Second {
			return cli.Usagef("--n, --concurrency and --machines are at least 1, --idle at least 1s")
		}
		if !o.Known() {
			return cli.Usagef("--only names no row there is; see \"souk bench launch --help\"")
		}
		return bench.Launch(cmd.Context(), o, &reporter{c: c, head: bench.LaunchHead()})
	}
	return cli.Parent(
		&cobra.Command{
			Use:     "bench",
			Short:   "Measure this machine",
			Example: "  souk bench launch --json\n  souk bench submit",
		},
		launch,
		cmdBenchSubmit(c),
		cmdBenchPropagation(c),
		cmdBenchForward(c),
		cmdBenchDecide(c),
		cmdBenchChurn(c), cmdBenchSoak(c), cmdBenchRestart(c),
		cmdBenchPlace(c), cmdBenchFloods(c), cmdBenchContainer(c), cmdBenchWake(c), cmdBenchProxy(c),
		cmdBenchRollout(c), cmdBenchArchitectures(c),
	)
}

// checkRows refuses a row in --only that does not exist.
func checkRows(only, rows []string) error {
	for _, name := range only {
		if !slices.Contains(rows, name) {
			return cli.Usagef("--only names %q, which is no row; there are %s", name, strings.Join(rows, ", "))
		}
	}
	return nil
}
