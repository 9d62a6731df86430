// Package sim has the commands of the simulator: souk sim and souk trace.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// The codes of this package's errors.
const (
	codeHtml fault.Code = "html" // the HTML report cannot be written
	codeSim  fault.Code = "sim"  // the report of a simulation cannot be written
)

// simFlags are the flags of souk sim run and compare.
type simFlags struct {
	trace, compat, html, baseline string
	schedulers, failIf            []string
	workers, slots, seeds         int
	seed                          uint64
	cutoff, reserve, wrong, delay float64
	deaths                        float64
	loss, warmup                  float64
	think                         [2]time.Duration
	task                          time.Duration
	beside, uneven, bound, load   float64
	kinds                         int
	noBounds, frontier, apart     bool
}

const simLong = `Run a trace of jobs through scheduling architectures in simulated time.

Workers are equal slots; a job is tasks that need one slot each; a message takes 0.5 ms. A job's runtime is the end
of its last task minus its submission. A job is long when its mean task duration is above the cutoff. Schedulers
know of a task's duration what its job's mean says; --error makes that wrong.

"market" is souk's own: a pull auction among 10 buyers. The others are the architectures of the literature, each
from its paper; docs/results.md of the source compares them. Most take a number, as sparrow:4 (four probes for each task);
see "souk schedulers". With --think-short and --think-long decisions take time: "monolithic" has one path, in which every job
waits for the slowest decision, and "multipath" one for each class. Beside them stand three bounds, which know all
durations and have no delay: A, no task ever waits; B, least remaining work first, preempting at no cost; C,
shortest job first, longest task first, without preemption.

The trace is a .tr file (arrival n mean d1 ... dn), SWF (.swf), CSV with the columns submit_s, tasks and duration_s
or those of openb's pods, or a part of Google's task_events of 2011, each also as .gz, .xz or .zip; or a folder
with all of Google's tables; or a generated load: gen:SHAPE:LOAD, as gen:sparrow:0.8 (see "souk trace gen --help").`

// completeWith completes the value of a flag with one of these words.
func completeWith(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// Sim makes the command "souk sim".
func Sim(c *cli.Env) *cobra.Command {
	run, cmp := new(simFlags), new(simFlags)
	one := "market"
	r := &cobra.Command{
		Use:   "run",
		Short: "Run one scheduler on a trace",
		Long:  simLong,
		Args:  cli.Args(0, 0, "no argument"),
		Example: "  souk sim run --trace yahoo.tr.gz --workers 4000\n  souk sim run --scheduler sparrow --trace " +
			"gen:sparrow:0.8 --workers 10000 --slots 4 --json",
	}
	r.Flags().StringVar(&one, "scheduler", "market", "the scheduler: "+strings.Join(registry.Names(), ", "))
	completeWith(r, "scheduler", registry.Names()...)
	run.register(r, 1)
	r.RunE = func(cmd *cobra.Command, _ []string) error {
		run.schedulers = []string{one}
		return simCompare(cmd.Context(), c, run)
	}
	m := &cobra.Command{
		Use:   "compare",
		Short: "Run several schedulers on one trace, over several seeds",
		Long:  simLong,
		Args:  cli.Args(0, 0, "no argument"),
		Example: "  souk sim compare --schedulers market,sparrow,hawk,eagle --trace yahoo.tr.gz --workers 4000 " +
			"--seeds 5 " +
			"--cutoff 90.5811 --reserve 2\n" +
			"  souk sim compare --schedulers eagle,market --trace yahoo.tr.gz --workers 4000 --fail-if 'p99(short) " +
			"> 1.05 * " +
			"baseline'",
	}
	m.Flags().StringSliceVar(&cmp.schedulers, "schedulers", []string{"market", "sparrow", "hawk", "eagle"},
		"the schedulers, or all: "+strings.Join(registry.Names(), ", "))
	completeWith(m, "schedulers", append(registry.Names(), "all")...)
	m.Flags().StringArrayVar(
		&cmp.failIf,
		"fail-if",
		nil,
		"exit with 1 if a row but the baseline's meets this, as 'p99(short) > 1.05 * baseline' or 'unfinished > 0'; "+
			"repeatable",
	)
	m.Flags().StringVar(&cmp.baseline, "baseline", "",
		"the row that --fail-if compares with (default the first scheduler)")
	m.Flags().BoolVar(&cmp.frontier, "frontier", false,
		"run each scheduler with several values of its number, to see what more messages buy")
	m.Flags().StringVar(&cmp.html, "html", "", "write a report with plots to this file, which needs nothing else")
	cmp.register(m, 5)
	m.RunE = func(cmd *cobra.Command, _ []string) error { return simCompare(cmd.Context(), c, cmp) }
	return cli.Parent(
		&cobra.Command{
			Use:     "sim",
			Short:   "Compare scheduling architectures on traces",
			Example: "  souk sim compare --trace yahoo.tr.gz --workers 4000",
		},
		append(
			[]*cobra.Command{
				r,
				m,
				cmdSimChaos(c),
				cmdSimStale(c),
				cmdSimGossip(c),
				cmdSimAB(c),
				cmdSimBackfill(c),
				cmdSimResults(c),
			},
			cmdSimCell(c)...)...)
}

func (o *simFlags) register(cmd *cobra.Command, seeds int) {
	f := cmd.Flags()
	f.StringVar(&o.trace, "trace", "", "the trace file, or gen:SHAPE:LOAD")
	f.IntVar(&o.workers, "workers", 0, "how many workers")
	f.IntVar(&o.slots, "slots", 1, "slots of each worker")
	f.IntVar(&o.seeds, "seeds", seeds, "how many seeds to run; figures are means over them")
	f.Uint64Var(&o.seed, "seed", 1, "the first seed")
	f.Float64Var(&o.cutoff, "cutoff", 0,
		"seconds of mean task duration above which a job is long (default the trace's 90th percentile)")
	f.Float64Var(&o.reserve, "reserve", -1,
		"percent of the workers that take short jobs only (default the short jobs' share of the work)")
	f.Float64Var(&o.wrong, "error", 0, "estimates are wrong by up to this share, up or down: 0.5 is 50 percent")
	f.Float64Var(&o.delay, "delay", 0.5, "milliseconds that a message takes")
	f.Float64Var(&o.loss, "loss", 0, "share of messages that are lost (market only)")
	f.Float64Var(&o.deaths, "deaths", 0,
		"share of the workers that die once while jobs come, each for a minute; what ran there runs again")
	f.Float64Var(&o.warmup, "warmup", 0, "seconds at the beginning whose jobs do not count")
	f.StringVar(&o.compat, "compat", "",
		"eagle-sim: with the quirks of Eagle's simulator (whole seconds, arrivals 10 ms apart, stealing without delay)")
	completeWith(cmd, "compat", "eagle-sim")
	f.DurationVar(&o.think[0], "think-short", 0,
		"time of a decision on a short job; who decides takes one job after the other")
	f.DurationVar(&o.think[1], "think-long", 0, "time of a decision on a long job")
	f.DurationVar(&o.task, "think-task", 0, "time of a decision for each task of the job")
	f.Float64Var(&o.beside, "slow-down", 0,
		"how much longer a task takes for each task that runs beside it on its worker when it begins: 0.1 is 10 "+
			"percent")
	f.Float64Var(&o.uneven, "uneven", 0,
		"how much longer a task takes on the worker whose hardware suits its job least: 1 is up to twice as long")
	f.BoolVar(&o.apart, "apart", false,
		"give each worker, buyer and center a scheduler of its own, which knows only what messages said; "+
			"the results are the same")
	f.IntVar(&o.kinds, "kinds", 0, "kinds of workers, for jobs with constraints (sparrow, mesos, borg)")
	f.Float64Var(&o.bound, "constrained", 0.2,
		"share of the jobs that can run on workers of one kind only, with --kinds")
	f.Float64Var(&o.load, "load", 1, "times as many jobs in the same time: 2 halves the times between arrivals")
	f.BoolVar(&o.noBounds, "no-bounds", false, "leave out the bounds A, B and C")
}

// maxApart bounds the slots of a run with --apart, whose memory grows with their square.
const maxApart = 2000

// check refuses invalid flags, and fills in defaults.
func (o *simFlags) check() (sim.Setup, sim.Opener, trace.Info, error) {
	var info trace.Info
	s := sim.Setup{Workers: o.workers, Slots: o.slots, Compat: o.compat == "eagle-sim", Warmup: o.warmup,
		Options: slots.Options{
			Seed:  o.seed,
			Error: o.wrong,
			Loss:  o.loss,
			Apart: o.apart,
			Delay: ticks.Time(o.delay * float64(ticks.Millisecond)),
		}}
	for k := range o.think {
		s.Think[k] = slots.Think{PerJob: ticks.Time(o.think[k].Microseconds()),
			PerTask: ticks.Time(o.task.Microseconds())}
	}
	if s.Beside, s.Uneven = o.beside, o.uneven; o.kinds > 0 {
		s.Kinds, s.Bound = o.kinds, o.bound
	}
	if err := o.checkRanges(); err != nil {
		return s, nil, info, err
	}
	if s.Delay == 0 {
		s.Delay = -1 // none, and not the default
	}
	open, err := opener(o.trace, o.workers*o.slots)
	if err != nil {
		return s, nil, info, err
	}
	open = open.Faster(o.load)
	src, done, err := open(o.seed)
	if err != nil {
		return s, nil, info, err
	}
	info, err = trace.Scan(src, o.cutoff)
	if err := cmp.Or(err, done()); err != nil {
		return s, nil, info, err
	}
	if info.Jobs == 0 {
		return s, nil, info, fault.New(fault.Invalid, trace.CodeTrace, "%s has no jobs", o.trace)
	}
	second := float64(ticks.Second)
	s.Deaths = sim.DrawDeaths(o.seed, o.workers, o.deaths, ticks.Time(info.First*second),
		ticks.Time(info.Last*second))
	s.Cutoff, s.Reserve = info.Cutoff, o.reserve
	if o.reserve < 0 {
		s.Reserve = info.Reserve()
	}
	return s, open, info, nil
}

// checkRanges refuses values that are out of range.
func (o *simFlags) checkRanges() error {
	switch {
	case o.think[0] < 0 || o.think[1] < 0 || o.task < 0 || o.beside < 0 || o.beside > 10 || o.uneven < 0 ||
		o.uneven > 100 || o.kinds < 0 ||
		o.kinds > o.workers || o.bound < 0 || o.bound > 1 ||
		!(o.load > 0 && o.load <= 1000):
		return cli.Usagef(
			"--think-short, --think-long and --think-task are 0 or more, --slow-down is from 0 to 10, --uneven " +
				"from 0 to 100, --kinds from 0 to the number of workers, --constrained from 0 to 1, " +
				"--load above 0 and up to 1000",
		)
	case o.trace == "":
		return cli.Usagef("a trace is missing; give --trace FILE or --trace gen:sparrow:0.8")
	case o.workers < 1 || o.workers > 1<<22:
		return cli.Usagef("--workers is %d; give the number of workers, from 1 to %d", o.workers, 1<<22)
	case o.slots < 1 || o.slots > 1024 || o.seeds < 1 || o.seeds > 10_000:
		return cli.Usagef("--slots is from 1 to 1024 and --seeds from 1 to 10000")
	case o.deaths < 0 || o.deaths > 1 || o.deaths > 0 && o.kinds > 0:
		return cli.Usagef("--deaths is from 0 to 1, and does not go with --kinds")
	case o.apart && o.workers*o.slots > maxApart:
		return cli.Usagef("--apart is for up to %d slots, and --workers times --slots is %d", maxApart,
			o.workers*o.slots)
	case o.compat != "" && o.compat != "eagle-sim":
		return cli.Usagef("--compat knows eagle-sim, not %q", o.compat)
	case o.wrong < 0 || o.wrong > 1 || o.loss < 0 || o.loss > 0.9 || o.delay < 0 || o.delay > 1e6 || o.reserve > 100 ||
		o.cutoff < 0:
		return cli.Usagef(
			"--error is from 0 to 1, --loss from 0 to 0.9, --delay from 0 to 1000000, --reserve from 0 to 100, " +
				"--cutoff 0 or " +
				"more",
		)
	}
	return nil
}

// opener opens a trace from the user's text: a file, or gen:SHAPE:LOAD for a cluster of so many slots.
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
			return nil, cli.Usagef("the load in %q is no number; write gen:%s:0.8", name, shape.Name)
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

func simCompare(ctx context.Context, c *cli.Env, o *simFlags) error {
	var gates []sim.Gate
	for _, text := range o.failIf {
		g, err := sim.ParseGate(text)
		if err != nil {
			return err
		}
		gates = append(gates, g)
	}
	names, err := registry.ParseList(o.schedulers)
	if err != nil {
		return err
	}
	if o.frontier {
		names = sim.Frontier(names)
	}
	setup, open, info, err := o.check()
	if err != nil {
		return err
	}
	out := simOutput{
		Trace:   o.trace,
		Workers: o.workers,
		Slots:   o.slots,
		Cutoff:  setup.Cutoff,
		Reserve: setup.Reserve,
		Error:   o.wrong,
		Compat:  o.compat,
	}
	p := &simProgress{
		c:     c,
		total: len(names) * o.seeds,
		began: time.Now(),
		last:  ticks.Time(info.Last * 1e6),
		shown: time.Now(),
	}
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
		for i := range out.Rows {
			r := sim.Regrets(out.Rows[i], b.A)
			out.Rows[i].Regret = &r
		}
	}
	p.clear()
	if o.html != "" {
		if err := simHTML(c, o.html, out); err != nil {
			return err
		}
	}
	simPrint(c, out, info, o.baseline)
	return simGates(c, gates, out, o.baseline)
}

func simGates(c *cli.Env, gates []sim.Gate, out simOutput, name string) error {
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
		return cli.Usagef("--baseline is %q, which is not among the schedulers compared", name)
	}
	for _, g := range gates {
		for _, r := range out.Rows {
			if r.Scheduler == base.Scheduler && len(out.Rows) > 1 {
				continue
			}
			if v, limit, fails := g.Fails(r, base); fails {
				return fault.New(fault.Internal, cli.CodeGate,
					"%s fails %q: it has %.6g, and the limit is %.6g", r.Scheduler,
					g, v,
					limit)
			}
		}
	}
	return nil
}

func simHTML(c *cli.Env, path string, out simOutput) error {
	title := fmt.Sprintf("%s on %d workers", out.Trace, out.Workers)
	f, err := os.Create(path)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, codeHtml, "the report %s cannot be written", path)
	}
	err = sim.HTML(f, title, out.Rows, out.Bounds)
	if err := cmp.Or(err, f.Close()); err != nil {
		return fault.Wrap(err, fault.Unavailable, codeHtml, "the report %s cannot be written", path)
	}
	return nil
}
