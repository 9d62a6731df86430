package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// simFlags are the flags of souk sim run and compare.
type simFlags struct {
	trace, compat, html, baseline string
	schedulers, failIf            []string
	workers, slots, seeds         int
	seed                          uint64
	cutoff, reserve, wrong, delay float64
	loss, warmup                  float64
	noBounds                      bool
}

const simLong = `Run a trace of jobs through scheduling architectures in simulated time.

Workers are equal slots; a job is tasks that need one slot each; a message takes 0.5 ms. A job's runtime is the end of
its last task minus its submission. A job is long when its mean task duration is above the cutoff. Schedulers know of a
task's duration what its job's mean says; --error makes that wrong.

"market" is souk's own: a pull auction among 10 buyers. The others are the architectures of the literature, each from
its paper; see docs/results.md. Beside them stand three bounds, which know all durations and have no delay: A, no task
ever waits; B, least remaining work first, preempting at no cost; C, shortest job first, longest task first, without
preemption.

The trace is a .tr file (arrival n mean d1 ... dn), SWF (.swf), or CSV with the columns submit_s, tasks and duration_s,
each also as .gz or .zip; or a generated load: gen:SHAPE:LOAD, as gen:sparrow:0.8 (see "souk trace gen --help").`

func (c *cli) cmdSim() *cobra.Command {
	run, cmp := new(simFlags), new(simFlags)
	one := "market"
	r := &cobra.Command{Use: "run", Short: "Run one scheduler on a trace", Long: simLong, Args: args(0, 0, "no argument"),
		Example: "  souk sim run --trace yahoo.tr.gz --workers 4000\n  souk sim run --scheduler sparrow --trace gen:sparrow:0.8 --workers 10000 --slots 4 --json"}
	r.Flags().StringVar(&one, "scheduler", "market", "the scheduler: "+strings.Join(sim.Schedulers(), ", "))
	run.register(r, 1)
	r.RunE = func(cmd *cobra.Command, _ []string) error {
		run.schedulers = []string{one}
		return c.simCompare(cmd.Context(), run)
	}
	m := &cobra.Command{Use: "compare", Short: "Run several schedulers on one trace, over several seeds", Long: simLong, Args: args(0, 0, "no argument"),
		Example: "  souk sim compare --schedulers market,sparrow,hawk,eagle --trace yahoo.tr.gz --workers 4000 --seeds 5 --cutoff 90.5811 --reserve 2\n" +
			"  souk sim compare --schedulers eagle,market --trace yahoo.tr.gz --workers 4000 --fail-if 'p99(short) > 1.05 * baseline'"}
	m.Flags().StringSliceVar(&cmp.schedulers, "schedulers", []string{"market", "sparrow", "hawk", "eagle"}, "the schedulers, or all: "+strings.Join(sim.Schedulers(), ", "))
	m.Flags().StringArrayVar(&cmp.failIf, "fail-if", nil, "exit with 1 if a row but the baseline's meets this, as 'p99(short) > 1.05 * baseline' or 'unfinished > 0'; repeatable")
	m.Flags().StringVar(&cmp.baseline, "baseline", "", "the row that --fail-if compares with (default the first scheduler)")
	m.Flags().StringVar(&cmp.html, "html", "", "write a report with plots to this file, which needs nothing else")
	cmp.register(m, 5)
	m.RunE = func(cmd *cobra.Command, _ []string) error { return c.simCompare(cmd.Context(), cmp) }
	return parent(&cobra.Command{Use: "sim", Short: "Compare scheduling architectures on traces", Example: "  souk sim compare --trace yahoo.tr.gz --workers 4000"},
		append([]*cobra.Command{r, m, c.cmdSimChaos(), c.cmdSimResults()}, c.cmdSimCell()...)...)
}

func (o *simFlags) register(cmd *cobra.Command, seeds int) {
	f := cmd.Flags()
	f.StringVar(&o.trace, "trace", "", "the trace file, or gen:SHAPE:LOAD")
	f.IntVar(&o.workers, "workers", 0, "how many workers")
	f.IntVar(&o.slots, "slots", 1, "slots of each worker")
	f.IntVar(&o.seeds, "seeds", seeds, "how many seeds to run; figures are means over them")
	f.Uint64Var(&o.seed, "seed", 1, "the first seed")
	f.Float64Var(&o.cutoff, "cutoff", 0, "seconds of mean task duration above which a job is long (default the trace's 90th percentile)")
	f.Float64Var(&o.reserve, "reserve", -1, "percent of the workers that take short jobs only (default the short jobs' share of the work)")
	f.Float64Var(&o.wrong, "error", 0, "estimates are wrong by up to this share, up or down: 0.5 is 50 percent")
	f.Float64Var(&o.delay, "delay", 0.5, "milliseconds that a message takes")
	f.Float64Var(&o.loss, "loss", 0, "share of messages that are lost (market only)")
	f.Float64Var(&o.warmup, "warmup", 0, "seconds at the beginning whose jobs do not count")
	f.StringVar(&o.compat, "compat", "", "eagle-sim: with the quirks of Eagle's simulator (whole seconds, arrivals 10 ms apart, stealing without delay)")
	f.BoolVar(&o.noBounds, "no-bounds", false, "leave out the bounds A, B and C")
}

// check refuses what cannot be meant, and fills in what was left out.
func (o *simFlags) check() (sim.Setup, sim.Opener, trace.Info, error) {
	var info trace.Info
	s := sim.Setup{Workers: o.workers, Slots: o.slots, Compat: o.compat == "eagle-sim", Warmup: o.warmup,
		Options: slots.Options{Seed: o.seed, Error: o.wrong, Loss: o.loss, Delay: ticks.Time(o.delay * float64(ticks.Millisecond))}}
	switch {
	case o.trace == "":
		return s, nil, info, usagef("a trace is missing; give --trace FILE or --trace gen:sparrow:0.8")
	case o.workers < 1 || o.workers > 1<<22:
		return s, nil, info, usagef("--workers is %d; give the number of workers, from 1 to %d", o.workers, 1<<22)
	case o.slots < 1 || o.slots > 1024 || o.seeds < 1 || o.seeds > 10_000:
		return s, nil, info, usagef("--slots is from 1 to 1024 and --seeds from 1 to 10000")
	case o.compat != "" && o.compat != "eagle-sim":
		return s, nil, info, usagef("--compat knows eagle-sim, not %q", o.compat)
	case o.wrong < 0 || o.wrong > 1 || o.loss < 0 || o.loss > 0.9 || o.delay < 0 || o.delay > 1e6 || o.reserve > 100 || o.cutoff < 0:
		return s, nil, info, usagef("--error is from 0 to 1, --loss from 0 to 0.9, --delay from 0 to 1000000, --reserve from 0 to 100, --cutoff 0 or more")
	}
	if s.Delay == 0 {
		s.Delay = -1 // none, and not the default
	}
	open, err := opener(o.trace, o.workers*o.slots)
	if err != nil {
		return s, nil, info, err
	}
	src, done, err := open(o.seed)
	if err != nil {
		return s, nil, info, err
	}
	info, err = trace.Scan(src, o.cutoff)
	if err := cmp.Or(err, done()); err != nil {
		return s, nil, info, err
	}
	if info.Jobs == 0 {
		return s, nil, info, fault.New(fault.Invalid, "trace", "%s has no jobs", o.trace)
	}
	s.Cutoff, s.Reserve = info.Cutoff, o.reserve
	if o.reserve < 0 {
		s.Reserve = info.Reserve()
	}
	return s, open, info, nil
}

// opener opens a trace by what the user wrote: a file, or gen:SHAPE:LOAD for a cluster of so many slots.
func opener(name string, slotCount int) (sim.Opener, error) {
	spec, ok := strings.CutPrefix(name, "gen:")
	if !ok {
		return sim.FromFile(name), nil
	}
	shape := trace.Shape{Jobs: 10_000, Slots: slotCount, Load: 0.8}
	var rest string
	shape.Name, rest, _ = strings.Cut(spec, ":")
	if rest != "" {
		if _, err := fmt.Sscanf(rest, "%g", &shape.Load); err != nil {
			return nil, usagef("the load in %q is no number; write gen:%s:0.8", name, shape.Name)
		}
	}
	return func(seed uint64) (trace.Source, func() error, error) {
		shape.Seed = seed
		src, err := trace.Generate(shape)
		return src, func() error { return nil }, err
	}, nil
}

// simOutput is souk sim compare --json.
type simOutput struct {
	Rows    []sim.Summary `json:"rows"`
	Bounds  *sim.Bounds   `json:"bounds,omitempty"`
	Trace   string        `json:"trace"`
	Workers int           `json:"workers"`
	Slots   int           `json:"slots"`
	Cutoff  float64       `json:"cutoff"`
	Reserve float64       `json:"reserve"`
	Error   float64       `json:"error"`
	Compat  string        `json:"compat,omitempty"`
}

func (c *cli) simCompare(ctx context.Context, o *simFlags) error {
	var gates []sim.Gate
	for _, text := range o.failIf {
		g, err := sim.ParseGate(text)
		if err != nil {
			return err
		}
		gates = append(gates, g)
	}
	names, err := sim.Known(o.schedulers)
	if err != nil {
		return err
	}
	setup, open, info, err := o.check()
	if err != nil {
		return err
	}
	out := simOutput{Trace: o.trace, Workers: o.workers, Slots: o.slots, Cutoff: setup.Cutoff, Reserve: setup.Reserve, Error: o.wrong, Compat: o.compat}
	p := &simProgress{c: c, total: len(names) * o.seeds, began: time.Now(), last: ticks.Time(info.Last * 1e6), shown: time.Now()}
	for _, name := range names {
		setup.Scheduler = name
		setup.Watch = p.watch(ctx, name)
		row, err := sim.Each(open, setup, o.seeds, func(sim.Row) { p.done++ })
		if err := cmp.Or(context.Cause(ctx), err); err != nil {
			p.clear()
			return err
		}
		out.Rows = append(out.Rows, row)
	}
	setup.Watch = nil
	if !o.noBounds {
		b, err := sim.Yardsticks(open, setup)
		if err != nil {
			return err
		}
		out.Bounds = &b
	}
	p.clear()
	if o.html != "" {
		if err := c.simHTML(o.html, out); err != nil {
			return err
		}
	}
	c.simPrint(out, info)
	return c.simGates(gates, out, o.baseline)
}

func (c *cli) simGates(gates []sim.Gate, out simOutput, name string) error {
	if len(gates) == 0 {
		return nil
	}
	base := out.Rows[0]
	for _, r := range out.Rows {
		if r.Scheduler == name {
			base = r
		}
	}
	if name != "" && base.Scheduler != name {
		return usagef("--baseline is %q, which is not among the schedulers compared", name)
	}
	for _, g := range gates {
		for _, r := range out.Rows {
			if r.Scheduler == base.Scheduler && len(out.Rows) > 1 {
				continue
			}
			if v, limit, fails := g.Fails(r, base); fails {
				return fault.New(fault.Internal, "gate", "%s fails %q: it has %.6g, and the limit is %.6g", r.Scheduler, g, v, limit)
			}
		}
	}
	return nil
}

// simPrint prints the comparison: JSON for machines, else a table.
func (c *cli) simPrint(out simOutput, info trace.Info) {
	if c.json {
		c.jsonLine(c.out, out)
		return
	}
	fmt.Fprintf(c.out, "%s: %d jobs, %d tasks; %d workers, %.4g%% for short jobs only; long is above %.6g s (%.1f%% of jobs, %.1f%% of work)\n",
		out.Trace, info.Jobs, info.Tasks, out.Workers, out.Reserve, out.Cutoff, 100*info.LongJobs, 100*info.LongSeconds)
	head := []string{"SCHEDULER", "SHORT p50", "p90", "p99", "mean", "LONG p50", "p90", "p99", "mean", "ALL mean", "±95%", "OVER C", "MSGS/TASK", "UTIL", "CPU s"}
	var rows [][]cell
	add := func(s sim.Summary, bound bool) {
		half, over, msgs, util, cpu := "-", "-", "-", "-", "-"
		if s.Interval != nil {
			half = figure(s.Interval.Mean)
		}
		if out.Bounds != nil {
			over = fmt.Sprintf("%+.1f%%", 100*sim.Regret(s, out.Bounds.C))
		}
		if !bound {
			msgs, util, cpu = fmt.Sprintf("%.1f", s.Messages), fmt.Sprintf("%.0f%%", 100*s.Busy), fmt.Sprintf("%.2f", s.CPU)
		}
		name := cell{text: s.Scheduler}
		if s.Unfinished > 0 {
			name = cell{fmt.Sprintf("%s (%d unfinished)", s.Scheduler, s.Unfinished), "31"}
		}
		rows = append(rows, append([]cell{name}, cells(figure(s.Short.P50), figure(s.Short.P90), figure(s.Short.P99), figure(s.Short.Mean),
			figure(s.Long.P50), figure(s.Long.P90), figure(s.Long.P99), figure(s.Long.Mean), figure(s.Mean), half, over, msgs, util, cpu)...))
	}
	for _, r := range out.Rows {
		add(r, false)
	}
	if out.Bounds != nil {
		add(out.Bounds.C, true)
		add(out.Bounds.B, true)
		add(out.Bounds.A, true)
	}
	c.table(head, rows)
}

// figure prints seconds with the digits that mean something.
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

// simProgress tells on a terminal how far a comparison is.
type simProgress struct {
	c           *cli
	done, total int
	began       time.Time
	shown       time.Time
	last        ticks.Time // arrival of the trace
	wrote       bool
}

func (p *simProgress) watch(ctx context.Context, name string) func(ticks.Time, int64) error {
	return func(now ticks.Time, _ int64) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if p.c.json || !isTerminal(p.c.err) || time.Since(p.shown) < patience/4 {
			return nil
		}
		p.shown = time.Now()
		part := 1.0
		if p.last > 0 {
			part = min(1, float64(now)/float64(p.last))
		}
		all := (float64(p.done) + part) / float64(p.total)
		left := time.Duration(float64(time.Since(p.began)) * (1 - all) / max(all, 1e-6))
		fmt.Fprintf(p.c.err, "\r\x1b[K%s: run %d of %d, %.0f%%, about %v left", name, p.done+1, p.total, 100*all, left.Round(time.Second))
		p.wrote = true
		return nil
	}
}

func (p *simProgress) clear() {
	if p.wrote {
		fmt.Fprint(p.c.err, "\r\x1b[K")
	}
}

func (c *cli) simHTML(path string, out simOutput) error {
	title := fmt.Sprintf("%s on %d workers", out.Trace, out.Workers)
	f, err := os.Create(path)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "html", "the report %s cannot be written", path)
	}
	err = sim.HTML(f, title, out.Rows, out.Bounds)
	if err := cmp.Or(err, f.Close()); err != nil {
		return fault.Wrap(err, fault.Unavailable, "html", "the report %s cannot be written", path)
	}
	return nil
}
