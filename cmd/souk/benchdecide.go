package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/decisionlog"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/placement/index"
	"github.com/soukhq/souk/policy"
	synth "github.com/soukhq/souk/sim/fleet"
)

// decideRates is what "souk bench decide" prints. Rates are decisions a second of one goroutine; each decision enters its
// grant in the index, and on average one machine ends for each that comes.
type decideRates struct {
	Workers    int     `json:"workers"`
	Decisions  int     `json:"decisions"`
	PerSecond  float64 `json:"per_second"`
	PerCPU     float64 `json:"per_cpu_second"` // of the process's CPU time, its garbage collection too: for a machine that is busy
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Full       float64 `json:"full"`        // of the fleet, at the end
	FullLowest float64 `json:"full_lowest"` // on the way
	FullMost   float64 `json:"full_most"`
	Refused    int     `json:"refused"`          // fitted nowhere; the scan says the same
	Examined   float64 `json:"examined"`         // workers looked at, a decision
	Warm       float64 `json:"warm_up_s"`        // for the index to meet every class of requests once
	Floor      float64 `json:"floor_per_second"` // the same stream of requests, without decisions
	Updates    float64 `json:"updates_per_second"`

	ScoreRegret  float64 `json:"score_regret"`  // (best - chosen) / best, mean; best by a scan of all workers
	RegretRange  float64 `json:"regret_range"`  // (best - chosen) / (best - mean of those that fit), mean: 0 is the best, 1 is chance
	BetterShare  float64 `json:"better_share"`  // of the workers that fit, how many are better than the one chosen, mean
	Compared     int     `json:"compared"`      // decisions held against the scan
	Disagreement int     `json:"disagreements"` // of them, where only one of both said that something fits: 0

	Exhaustive       float64 `json:"exhaustive_per_second"`
	CEL              float64 `json:"cel_per_second"`
	CELRegret        float64 `json:"cel_score_regret"`
	CELExhaustive    float64 `json:"cel_exhaustive_per_second"`
	Logged           float64 `json:"logged_per_second"`
	LoggedWaits      int     `json:"logged_waits"` // times the log was behind, and was waited for; all decisions are in it
	LogBytes         float64 `json:"log_bytes"`    // on disk, a decision
	MemoryMB         float64 `json:"memory_mb"`    // of the whole process, at its most
	ConstrainedShare float64 `json:"constrained"`
}

const benchDecideLong = `Make decisions over a synthetic fleet and measure how many a second, on one core.

The fleet has workers of five sizes in four regions, with 20 attributes, some with GPUs, reservations and requirements
of their own. It fills to 95 % and empties to 60 % in turns. Requests come in 240 shapes, 50 apps each; 5 % have
conditions: attributes, GPU kinds, spreads, anti-affinity, reservations. Each decision is resolved, picked by the index,
judged whole by the judge, and its grant entered, so that the next one sees it; machines end as others come.

A sample of the decisions is held against a scan of all workers. The CEL policy is the default one written as three
expressions. The log is the decision log, with the six best workers of each decision and their records.`

func (c *cli) cmdBenchDecide() *cobra.Command {
	workers, decisions := 10_000, 200_000
	seed := uint64(1)
	cmd := &cobra.Command{Use: "decide", Short: "Measure how fast placements are decided, and how well", Long: benchDecideLong,
		Example: "  souk bench decide --workers 10000 --json\n  souk bench decide --workers 50000 --decisions 100000", Args: args(0, 0, "no argument")}
	cmd.Flags().IntVar(&workers, "workers", workers, "of the synthetic fleet")
	cmd.Flags().IntVar(&decisions, "decisions", decisions, "how many are measured")
	cmd.Flags().Uint64Var(&seed, "seed", seed, "of the fleet and the requests")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if workers < 10 || workers > 1_000_000 || decisions < 1000 {
			return usagef("--workers is 10 to 1000000, --decisions at least 1000")
		}
		done := c.progress("measuring decisions over %d workers", workers)
		r, err := benchDecide(cmd.Context(), workers, decisions, seed)
		done()
		if err != nil {
			return err
		}
		if c.json {
			c.jsonLine(c.out, r)
			return nil
		}
		fmt.Fprintf(c.out, "%d workers, %.0f %% full (%.0f to %.0f): %.0f decisions/s (%.0f a CPU second, p50 %.1f us, p99 %.1f us), %.1f workers looked at each\n",
			r.Workers, 100*r.Full, 100*r.FullLowest, 100*r.FullMost, r.PerSecond, r.PerCPU, r.P50, r.P99, r.Examined)
		fmt.Fprintf(c.out, "  score regret %.4f %%, %.1f %% of what chance would lose, %.1f %% of fitting workers are better; %d of %d disagree with the scan\n",
			100*r.ScoreRegret, 100*r.RegretRange, 100*r.BetterShare, r.Disagreement, r.Compared)
		fmt.Fprintf(c.out, "  scan of all %.0f/s; CEL %.0f/s (regret %.4f %%, scan %.1f/s); with the decision log %.0f/s; no decision %.0f/s; updates %.0f/s\n",
			r.Exhaustive, r.CEL, 100*r.CELRegret, r.CELExhaustive, r.Logged, r.Floor, r.Updates)
		return nil
	}
	return cmd
}

// celSpread is the default policy in expressions.
const celSpread = `name = "spread-cel"

[[score]]
name = "region"
weight = 50
expr = "size(request.regions) == 0 || request.regions[0] == worker.region ? 1.0 : 0.5"

[[score]]
name = "headroom"
weight = 2
expr = "min(min(1.0 * (worker.free.cpu - request.cpu) / worker.capacity.cpu, 1.0 * (worker.free.memory - request.memory) / worker.capacity.memory), 1.0 * (worker.free.disk - request.disk) / worker.capacity.disk)"

[[score]]
name = "spread"
weight = 1
expr = "request.app in worker.apps ? 1.0 / (1 + worker.apps[request.app]) : 1.0"
`

func benchDecide(ctx context.Context, workers, decisions int, seed uint64) (*decideRates, error) {
	o := &decideRates{Workers: workers, Decisions: decisions}
	p := placement.Default()
	d := synth.NewDecider(synth.New(synth.Options{Workers: workers, Seed: seed}), &p)
	begin := time.Now()
	warm(d)
	o.Warm = time.Since(begin).Seconds()
	if err := o.decide(ctx, d, decisions); err != nil {
		return nil, err
	}
	o.rest(d)
	if err := o.expressions(ctx, d, decisions/10); err != nil {
		return nil, err
	}
	if err := o.logged(ctx, d, decisions/2); err != nil {
		return nil, err
	}
	o.MemoryMB = peakMemory()
	return o, nil
}

// warm lets the index meet the shapes.
func warm(d *synth.Decider) {
	for range 20_000 {
		d.Step()
	}
	d.Placed, d.Refused, d.Examined = 0, 0, 0
}

// decide measures in rounds, and holds some decisions after each against the scan. Rounds are so long that the scans, which
// push all else out of the processor's caches, are little of what is measured.
func (o *decideRates) decide(ctx context.Context, d *synth.Decider, decisions int) error {
	round := min(5000, decisions)
	const compared = 10
	var took, cpu time.Duration
	var each []time.Duration
	o.FullLowest = 1
	for range decisions / round {
		begin, used := time.Now(), cpuTime()
		last := begin
		for k := range round {
			d.Step()
			if k%50 == 49 { // the mean of 50: the clock is not free
				now := time.Now()
				each = append(each, now.Sub(last)/50)
				last = now
			}
		}
		took, cpu = took+time.Since(begin), cpu+cpuTime()-used
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		o.FullLowest, o.FullMost = min(o.FullLowest, d.Fleet.Full()), max(o.FullMost, d.Fleet.Full())
		for range compared {
			o.compare(d)
		}
	}
	n := float64(decisions / round * round)
	o.PerCPU = n / cpu.Seconds()
	o.PerSecond, o.P50, o.P99 = n/took.Seconds(), 1000*quantile(each, 0.5), 1000*quantile(each, 0.99)
	o.Examined, o.Refused, o.Full = float64(d.Examined)/n, d.Refused, d.Fleet.Full()
	k := float64(max(1, o.Compared))
	o.ScoreRegret, o.RegretRange, o.BetterShare = o.ScoreRegret/k, o.RegretRange/k, o.BetterShare/k
	return nil
}

func (o *decideRates) compare(d *synth.Decider) {
	switch q := d.Judge(); {
	case !q.Agrees:
		o.Disagreement++
	case q.Fits:
		o.Compared++
		o.ScoreRegret += q.Regret
		o.RegretRange += q.Range
		o.BetterShare += q.Better
	}
}

// rest measures the scan, the stream without decisions, and records that come in whole.
func (o *decideRates) rest(d *synth.Decider) {
	constrained := 0
	begin, n := time.Now(), 0
	for time.Since(begin) < time.Second {
		r := d.Index.Resolve(d.Fleet.Next(), nil)
		d.Index.Best(&r, d.Policy)
		n++
	}
	o.Exhaustive = float64(n) / time.Since(begin).Seconds()

	idle := *d
	idle.Fleet = synth.New(synth.Options{Workers: o.Workers, Seed: 2})
	const stream = 200_000
	begin = time.Now()
	for range stream {
		idle.Idle()
	}
	o.Floor = stream / time.Since(begin).Seconds()
	for range 20_000 {
		if r := idle.Fleet.Next(); synth.Constrained(&r) {
			constrained++
		}
	}
	o.ConstrainedShare = float64(constrained) / 20_000

	rng := rand.New(rand.NewPCG(1, 3))
	recs := idle.Fleet.Records
	x := index.New()
	for i := range recs {
		x.Update(recs[i])
	}
	begin, n = time.Now(), 0
	for ; n < 100_000; n++ {
		w := &recs[rng.IntN(len(recs))]
		w.Version++
		w.Used.CPU = w.Capacity.CPU * int64(rng.IntN(100)) / 100
		x.Update(*w)
	}
	o.Updates = float64(n) / time.Since(begin).Seconds()
}

// expressions measures the default policy written in CEL, over the same fleet.
func (o *decideRates) expressions(ctx context.Context, d *synth.Decider, decisions int) error {
	source, err := policy.Load([]byte(celSpread))
	if err != nil {
		return err
	}
	p := source.Bind(policy.NewEvaluator())
	before := d.Policy
	d.Policy = &p
	defer func() { d.Policy = before }()
	for range 5000 {
		d.Step()
	}
	begin := time.Now()
	for range decisions {
		d.Step()
	}
	o.CEL = float64(decisions) / time.Since(begin).Seconds()
	fits := 0
	begin, n := time.Now(), 0
	for n < 5 || time.Since(begin) < 2*time.Second {
		if q := d.Judge(); q.Fits {
			o.CELRegret += q.Regret
			fits++
		}
		if n++; ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	o.CELExhaustive, o.CELRegret = float64(n)/time.Since(begin).Seconds(), o.CELRegret/float64(max(1, fits))
	return nil
}

// logged measures decisions that are recorded, until the last is on disk.
func (o *decideRates) logged(ctx context.Context, d *synth.Decider, decisions int) error {
	dir, err := os.MkdirTemp("", "souk-bench-")
	if err != nil {
		return fault.Wrap(err, fault.Internal, "bench", "no temporary directory can be made for the decision log")
	}
	defer os.RemoveAll(dir)
	log, err := decisionlog.Open(decisionlog.Options{Dir: dir, MaxBytes: 1 << 30})
	if err != nil {
		return err
	}
	defer log.Close()
	w := &decisionRecorder{d: d, workers: map[cluster.WorkerID]*recorded{}, rng: rand.New(rand.NewPCG(1, 4))}
	d.Candidates = 1 + decision.KeepLosers
	defer func() { d.Candidates = 0 }()
	begin := time.Now()
	for k := range decisions {
		rec := w.step()
		for !log.Append(rec) { // the writer is behind, and nothing is to be lost here
			o.LoggedWaits++
			if err := log.Flush(ctx); err != nil {
				return err
			}
		}
		if k%1000 == 999 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := log.Flush(ctx); err != nil {
		return err
	}
	o.Logged = float64(decisions) / time.Since(begin).Seconds()
	s := log.Stats()
	o.LogBytes = float64(s.Bytes) / float64(max(1, s.Recorded))
	if s.Recorded != uint64(decisions) {
		return fault.New(fault.Internal, "bench", "%d decisions were made and %d are in the log", decisions, s.Recorded)
	}
	return nil
}

// decisionRecorder makes the record of each decision as a buyer that keeps an index does: with the workers that were looked at
// and fit, their subscores, and their records as they were, where the log has not got them yet.
type decisionRecorder struct {
	d       *synth.Decider
	workers map[cluster.WorkerID]*recorded
	last    string
	rng     *rand.Rand
}

// recorded is how far a worker's record has come.
type recorded struct {
	version uint64 // as the worker would count it
	written uint64 // handed to the log
}

func (w *decisionRecorder) worker(id cluster.WorkerID) *recorded {
	v := w.workers[id]
	if v == nil {
		v = &recorded{version: 1}
		w.workers[id] = v
	}
	return v
}

func (w *decisionRecorder) step() *decision.Decision {
	at := time.Now()
	r, choices, examined := w.d.Decide()
	w.last = machine.NextULID(w.last, at, w.rng)
	rec := &decision.Decision{ID: w.last, At: at, Why: decision.Create, Request: *r, Strategy: decision.Direct, Outcome: decision.Refused,
		Policy: decision.Policy{Name: w.d.Policy.Name}, Workers: w.d.Index.Len(), Evaluated: examined, Candidates: examined, Fitting: len(choices)}
	rec.Considered = make([]decision.Considered, 0, len(choices))
	rec.Records = make([]cluster.Record, 0, len(choices))
	for i := range choices {
		c := &choices[i]
		now, _ := w.d.Index.Chosen(c)
		known := w.worker(c.Worker)
		ref := decision.Ref{Incarnation: now.Incarnation, Version: known.version}
		if known.written != ref.Version {
			known.written = ref.Version
			rec.Records = append(rec.Records, *now)
			kept := &rec.Records[len(rec.Records)-1]
			kept.Version, kept.Apps, kept.GPUs = ref.Version, maps.Clone(now.Apps), slices.Clone(now.GPUs)
		}
		score, terms := w.d.Policy.Parts(r, now)
		rec.Considered = append(rec.Considered, decision.Considered{Ref: ref,
			Candidate: machine.Candidate{Worker: string(c.Worker), Fits: true, Score: score, Terms: terms}})
	}
	if len(choices) > 0 {
		rec.Outcome, rec.Winner = decision.Placed, choices[0].Worker
		rec.Asks = []decision.Ask{{Worker: rec.Winner, Ref: rec.Considered[0].Ref, Result: market.ResultGranted}}
		rec.Reason = fmt.Sprintf("best score %.2f of %d workers looked at (of %d)", choices[0].Score, examined, rec.Workers)
		w.worker(rec.Winner).version++
	}
	rec.Took.Rank = decision.Millis(time.Since(at))
	w.d.Enter(r, choices)
	w.d.End(func(id cluster.WorkerID) { w.worker(id).version++ })
	return rec
}

// cpuTime gives the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory gives the most memory that the process has had, in MB.
func peakMemory() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Maxrss) / 1000
}
