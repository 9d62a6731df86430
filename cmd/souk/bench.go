package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/fault"
)

// benchRow is one measurement. What does not apply is null. Value and Unit are only in rows that measure no time.
type benchRow struct {
	Name     string   `json:"name"`
	N        int      `json:"n"`
	P50      *float64 `json:"p50_ms"`
	P99      *float64 `json:"p99_ms"`
	FloorP50 *float64 `json:"floor_p50_ms"`
	RatioP50 *float64 `json:"ratio_p50"` // p50_ms / floor_p50_ms; of a rate: per_second / floor_per_second
	RatioP99 *float64 `json:"ratio_p99"` // p99_ms / floor_p50_ms: against the floor's middle, not its tail
	PerSec   *float64 `json:"per_second"`
	FloorSec *float64 `json:"floor_per_second"`

	Value *float64 `json:"value,omitempty"`
	Unit  string   `json:"unit,omitempty"`
}

type benchFlags struct {
	n           int
	concurrency int
	machines    int
	only        []string
	idle        time.Duration
}

const benchLong = `Start a souk of its own in a temporary directory, measure it, and end it with all its machines.

Figures of one machine mean nothing on another, so each is told as a ratio to a floor measured in the same run, in
turns with it. The floor of a launch is what no orchestrator of this kind can avoid: one HTTP round trip on loopback,
fork and exec of the same program, and one append with fsync, one after the other.

Ratios are to the floor's median, also that of the p99: a floor that is slow at times excuses nothing.

  launch_sequential      a machine created and answered "started", one at a time: ratio to the floor's median
  start_stopped          a stopped machine started, one at a time
  launch_concurrent_64   launches a second of a program that ends at once, against a bare fork, exec and wait loop
                         of the same concurrency
  ps_1000                "souk ps" as a process, from its start to its end, with 1,000 machines on one worker
  memory_1000            what souk and its reapers take (PSS) per machine, the tasks themselves not counted
  idle_cpu, idle_memory  souk and its reapers without a machine; idle_1000_cpu with 1,000`

func (c *cli) cmdBench() *cobra.Command {
	o := new(benchFlags)
	launch := &cobra.Command{Use: "launch", Short: "Measure how fast machines are launched, and what souk costs", Long: benchLong,
		Example: "  souk bench launch\n  souk bench launch --n 500 --json\n  souk bench launch --only launch_sequential,start_stopped", Args: args(0, 0, "no argument")}
	f := launch.Flags()
	f.IntVar(&o.n, "n", 200, "how many launches are measured one by one; the concurrent ones are five times as many")
	f.IntVar(&o.concurrency, "concurrency", 64, "how many are under way at once in launch_concurrent")
	f.IntVar(&o.machines, "machines", 1000, "how many machines ps and memory are measured with")
	f.DurationVar(&o.idle, "idle", 10*time.Second, "for how long idleness is measured")
	f.StringSliceVar(&o.only, "only", nil, "only these rows")
	launch.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.n < 1 || o.concurrency < 1 || o.machines < 1 || o.idle < time.Second {
			return usagef("--n, --concurrency and --machines are at least 1, --idle at least 1s")
		}
		return c.benchLaunch(cmd.Context(), o)
	}
	return parent(&cobra.Command{Use: "bench", Short: "Measure this machine", Example: "  souk bench launch --json\n  souk bench submit"}, launch, c.cmdBenchSubmit(), c.cmdBenchPropagation(), c.cmdBenchForward(), c.cmdBenchDecide())
}

// benchStep measures some rows.
type benchStep struct {
	rows []string
	run  func(b *bench, ctx context.Context) ([]benchRow, error)
}

func benchSteps(o *benchFlags) []benchStep {
	named := func(s string, n int) string { return fmt.Sprintf("%s_%d", s, n) }
	return []benchStep{
		{[]string{"idle_cpu", "idle_memory"}, (*bench).idle},
		{[]string{"launch_sequential"}, (*bench).sequential},
		{[]string{"start_stopped"}, (*bench).startStopped},
		{[]string{named("launch_concurrent", o.concurrency)}, (*bench).concurrent},
		{[]string{named("ps", o.machines), named("memory", o.machines), fmt.Sprintf("idle_%d_cpu", o.machines)}, (*bench).many},
	}
}

func (c *cli) benchLaunch(ctx context.Context, o *benchFlags) error {
	steps := benchSteps(o)
	wanted := func(s benchStep) bool {
		return len(o.only) == 0 || slices.ContainsFunc(s.rows, func(r string) bool { return slices.Contains(o.only, r) })
	}
	if !slices.ContainsFunc(steps, wanted) {
		return usagef("--only names no row there is; see \"souk bench launch --help\"")
	}
	b, err := c.newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	if !c.json {
		fmt.Fprintf(c.out, "%-22s %6s %9s %9s %9s %7s %7s %9s %9s  %s\n", "NAME", "N", "P50 MS", "P99 MS", "FLOOR MS", "RATIO", "P99/FL", "PER S", "FLOOR/S", "WANTED")
	}
	for _, s := range steps {
		if !wanted(s) {
			continue
		}
		done := c.progress("measuring %s", strings.Join(s.rows, ", "))
		rows, err := s.run(b, ctx)
		done()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		for _, r := range rows {
			c.printRow(r)
		}
	}
	return nil
}

func (c *cli) printRow(r benchRow) {
	if c.json {
		c.jsonLine(c.out, r)
		return
	}
	num := func(f *float64) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f", *f)
	}
	text := fmt.Sprintf("%-22s %6d %9s %9s %9s %7s %7s %9s %9s  ", r.Name, r.N, num(r.P50), num(r.P99), num(r.FloorP50), num(r.RatioP50), num(r.RatioP99), num(r.PerSec), num(r.FloorSec))
	if r.Value != nil {
		text += fmt.Sprintf("%.2f %s, ", *r.Value, r.Unit)
	}
	wish, met := wish(r)
	if !met {
		wish += "  MISSED"
	}
	fmt.Fprintln(c.out, text+wish)
}

// wish gives what a row is wanted to show, and whether it does.
func wish(r benchRow) (string, bool) {
	at := func(f *float64) float64 {
		if f == nil {
			return math.NaN() // compares false with everything
		}
		return *f
	}
	switch {
	case r.Name == "launch_sequential":
		return "p50 <= 3x, p99 <= 6x", at(r.RatioP50) <= 3 && at(r.RatioP99) <= 6
	case r.Name == "start_stopped":
		return "p50 <= 3x", at(r.RatioP50) <= 3
	case strings.HasPrefix(r.Name, "launch_concurrent"):
		return ">= 0.3 of the bare loop", at(r.RatioP50) >= 0.3
	case strings.HasPrefix(r.Name, "ps_"):
		return "p50 < 50 ms", at(r.P50) < 50
	case strings.HasPrefix(r.Name, "memory_"):
		return "< 300 KB a machine", at(r.Value) < 300
	case r.Name == "idle_memory":
		return "< 50 MB", at(r.Value) < 50
	case r.Name == "idle_cpu":
		return "< 1 % of a core", at(r.Value) < 1
	}
	return "", true
}

// quantile gives the q-quantile of durations in ms, by nearest rank. The slice is sorted afterwards.
func quantile(ds []time.Duration, q float64) float64 {
	slices.Sort(ds)
	i := min(max(int(math.Ceil(q*float64(len(ds))))-1, 0), len(ds)-1)
	return float64(ds[i]) / float64(time.Millisecond)
}

// timedRow makes the row of operations measured in turns with their floor.
func timedRow(name string, took, floor []time.Duration) benchRow {
	p50, p99, f50 := quantile(took, 0.50), quantile(took, 0.99), quantile(floor, 0.50)
	r50, r99, per := p50/f50, p99/f50, 1000/mean(took)
	fper := 1000 / mean(floor)
	return benchRow{Name: name, N: len(took), P50: &p50, P99: &p99, FloorP50: &f50, RatioP50: &r50, RatioP99: &r99, PerSec: &per, FloorSec: &fper}
}

// mean gives the mean in ms.
func mean(ds []time.Duration) float64 {
	var sum time.Duration
	for _, d := range ds {
		sum += d
	}
	return float64(sum) / float64(len(ds)) / float64(time.Millisecond)
}

func valueRow(name string, n int, value float64, unit string) benchRow {
	return benchRow{Name: name, N: n, Value: &value, Unit: unit}
}

func benchFault(err error, what string) error {
	return fault.Wrap(err, fault.Internal, "bench", "the measurement stopped: %s", what)
}
