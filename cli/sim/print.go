package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// simPrint prints the comparison: JSON for machines, else a table.
func simPrint(c *cli.Env, out simOutput, info trace.Info, baseline string) {
	if c.JSON {
		c.JSONLine(c.Out, out)
		return
	}
	fmt.Fprintf(
		c.Out,
		"%s: %d jobs, %d tasks; %d workers, %.4g%% for short jobs only; long is above %.6g s (%.1f%% of jobs, "+
			"%.1f%% of "+
			"work)\n",
		out.Trace,
		info.Jobs,
		info.Tasks,
		out.Workers,
		out.Reserve,
		out.Cutoff,
		100*info.LongJobs,
		100*info.LongSeconds,
	)
	simTimes(c, out)
	simCosts(c, out)
	if out.Bounds != nil {
		simRegret(c, out, baseline)
	}
}

// simTimes prints the jobs' runtimes.
func simTimes(c *cli.Env, out simOutput) {
	head := []string{
		"SCHEDULER",
		"SHORT p50",
		"p90",
		"p99",
		"mean",
		"LONG p50",
		"p90",
		"p99",
		"mean",
		"ALL mean",
		"±95%",
		"OVER C",
	}
	var rows [][]cli.Cell
	add := func(s sim.Summary) {
		half, over := "-", "-"
		if s.Interval != nil {
			half = figure(s.Interval.Mean)
		}
		if out.Bounds != nil {
			over = fmt.Sprintf("%+.1f%%", 100*sim.Regret(s, out.Bounds.C))
		}
		name := cli.Cell{Text: s.Scheduler}
		if s.Unfinished > 0 {
			name = cli.Cell{Text: fmt.Sprintf("%s (%d unfinished)", s.Scheduler, s.Unfinished), Colour: "31"}
		}
		row := []cli.Cell{name}
		for _, class := range []sim.Class{s.Short, s.Long} {
			if class == (sim.Class{}) { // no job of this class
				row = append(row, cli.Cells("-", "-", "-", "-")...)
				continue
			}
			row = append(row, cli.Cells(figure(class.P50), figure(class.P90), figure(class.P99), figure(class.Mean))...)
		}
		rows = append(rows, append(row, cli.Cells(figure(s.Mean), half, over)...))
	}
	for _, r := range out.Rows {
		add(r)
	}
	if out.Bounds != nil {
		add(out.Bounds.C)
		add(out.Bounds.B)
		add(out.Bounds.A)
	}
	c.Table(cli.Columns(head...), rows)
}

// simCosts prints the runs' durations and costs.
func simCosts(c *cli.Env, out simOutput) {
	var rows [][]cli.Cell
	for _, s := range out.Rows {
		rows = append(
			rows,
			cli.Cells(s.Scheduler, figure(s.Makespan), fmt.Sprintf("%.0f%%", 100*s.Busy),
				fmt.Sprintf("%.1f", s.Messages),
				fmt.Sprintf("%.4f", s.Conflicts), fmt.Sprintf("%.4f", s.Idled), fmt.Sprintf("%.3f", s.Fairness),
				figure(s.Thought),
				fmt.Sprintf("%.2f M", float64(s.Events)/1e6), fmt.Sprintf("%.2f", s.CPU)),
		)
	}
	fmt.Fprintln(c.Out)
	c.Table(cli.Columns("SCHEDULER", "MAKESPAN", "UTIL", "MSGS/TASK", "CONFLICTS", "WASTED HOLDS", "FAIRNESS",
		"DECIDING s", "EVENTS", "CPU s"),
		rows,
	)
}

// simRegret prints how far each figure is above bound A, and how much of the distance to bound C is used.
func simRegret(c *cli.Env, out simOutput, baseline string) {
	if baseline == "" {
		baseline = "eagle"
	}
	at := slices.IndexFunc(out.Rows, func(s sim.Summary) bool { return s.Scheduler == baseline })
	head := []string{"OVER BOUND A", "SHORT p50", "p90", "p99", "mean", "LONG p50", "p90", "p99", "mean", "ALL mean"}
	if at >= 0 {
		head = append(head, strings.ToUpper(baseline)+" TO C")
	}
	percent := func(x float64) string { return fmt.Sprintf("%+.1f%%", 100*x) }
	var rows [][]cli.Cell
	for _, s := range append(slices.Clone(out.Rows), out.Bounds.C) {
		r := sim.Regrets(s, out.Bounds.A)
		line := cli.Cells(s.Scheduler, percent(r.Short.P50), percent(r.Short.P90), percent(r.Short.P99),
			percent(r.Short.Mean), percent(r.Long.P50), percent(r.Long.P90), percent(r.Long.P99), percent(r.Long.Mean),
			percent(r.Mean))
		if at >= 0 {
			line = append(line, cli.Cells(fmt.Sprintf("%.0f%%", 100*sim.Closed(s, out.Rows[at], out.Bounds.C)))...)
		}
		rows = append(rows, line)
	}
	fmt.Fprintln(c.Out)
	c.Table(cli.Columns(head...), rows)
}

// figure prints seconds with significant digits only.
func figure(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1:
		return fmt.Sprintf("%.4f", s)
	case s < 1000:
		return fmt.Sprintf("%.1f", s)
	}
	return fmt.Sprintf("%.0f", s)
}

// simProgress shows a comparison's progress on a terminal.
type simProgress struct {
	c           *cli.Env
	done, total int
	began       time.Time
	shown       time.Time
	last        ticks.Time // last arrival in the trace
	wrote       bool
}

func (p *simProgress) watch(ctx context.Context, name string) func(ticks.Time, int64) error {
	return func(now ticks.Time, _ int64) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if p.c.JSON || !cli.IsTerminal(p.c.Err) || time.Since(p.shown) < cli.Patience/4 {
			return nil
		}
		p.shown = time.Now()
		part := 1.0
		if p.last > 0 {
			part = min(1, float64(now)/float64(p.last))
		}
		all := (float64(p.done) + part) / float64(p.total)
		left := time.Duration(float64(time.Since(p.began)) * (1 - all) / max(all, 1e-6))
		fmt.Fprintf(cli.Raw(p.c.Err), "\r\x1b[K%s: run %d of %d, %.0f%%, about %v left", name, p.done+1, p.total,
			100*all, left.Round(time.Second))
		p.wrote = true
		return nil
	}
}

func (p *simProgress) clear() {
	if p.wrote {
		fmt.Fprint(cli.Raw(p.c.Err), "\r\x1b[K")
	}
}
