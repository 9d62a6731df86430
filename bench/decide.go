package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/index"
	synth "github.com/soukhq/souk/sim/fleet"
)

// Rates is what "souk bench decide" prints. Rates are decisions a second of one goroutine; each decision enters its
// grant in the index, and on average one machine ends for each that comes.
type Rates struct {
	Workers    int     `json:"workers"`
	Decisions  int     `json:"decisions"`
	PerSecond  float64 `json:"per_second"`
	PerCPU     float64 `json:"per_cpu_second"` // decisions per second of CPU time, for a busy host
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Full       float64 `json:"full"`        // used part of the fleet, at the end
	FullLowest float64 `json:"full_lowest"` // lowest used part on the way
	FullMost   float64 `json:"full_most"`
	Refused    int     `json:"refused"`          // requests that fitted nowhere, by the scan, too
	Examined   float64 `json:"examined"`         // workers examined per decision
	Warm       float64 `json:"warm_up_s"`        // for the index to meet every class of requests once
	Floor      float64 `json:"floor_per_second"` // the same stream of requests, without decisions
	Updates    float64 `json:"updates_per_second"`

	ScoreRegret float64 `json:"score_regret"` // (best - chosen) / best, mean; best by a scan of all workers
	RegretRange float64 `json:"regret_range"` // (best - chosen) / (best - mean that fit): 0 is the best, 1 is random
	// mean share of the fitting workers that are better than the chosen one
	BetterShare  float64 `json:"better_share"`
	Compared     int     `json:"compared"`      // decisions compared with the scan
	Disagreement int     `json:"disagreements"` // of those: only one of both found a fit; should be 0

	Exhaustive    float64 `json:"exhaustive_per_second"`
	CEL           float64 `json:"cel_per_second"`
	CELRegret     float64 `json:"cel_score_regret"`
	CELExhaustive float64 `json:"cel_exhaustive_per_second"`
	Logged        float64 `json:"logged_per_second"`
	// how often the log was full and was waited for; no decision is lost
	LoggedWaits      int     `json:"logged_waits"`
	LogBytes         float64 `json:"log_bytes"` // on disk, per decision
	MemoryMB         float64 `json:"memory_mb"` // peak of the whole process
	ConstrainedShare float64 `json:"constrained"`
}

// Text returns the rates as they are printed for people.
func (r *Rates) Text() string {
	text := fmt.Sprintf(
		"%d workers, %.0f %% full (%.0f to %.0f): %.0f decisions/s (%.0f a CPU second, p50 %.1f us, p99 %.1f us), "+
			"%.1f workers looked at each\n",
		r.Workers,
		100*r.Full,
		100*r.FullLowest,
		100*r.FullMost,
		r.PerSecond,
		r.PerCPU,
		r.P50,
		r.P99,
		r.Examined,
	)
	text += fmt.Sprintf(
		"  score regret %.4f %%, %.1f %% of what chance would lose, %.1f %% of fitting workers are better; %d of %d "+
			"disagree with the scan\n",
		100*r.ScoreRegret,
		100*r.RegretRange,
		100*r.BetterShare,
		r.Disagreement,
		r.Compared,
	)
	return text + fmt.Sprintf(
		"  scan of all %.0f/s; CEL %.0f/s (regret %.4f %%, scan %.1f/s); with the decision log %.0f/s; no decision "+
			"%.0f/s; updates %.0f/s",
		r.Exhaustive,
		r.CEL,
		100*r.CELRegret,
		r.CELExhaustive,
		r.Logged,
		r.Floor,
		r.Updates,
	)
}

// Decide measures decisions over a synthetic fleet.
func Decide(ctx context.Context, workers, decisions int, seed uint64) (*Rates, error) {
	o := &Rates{Workers: workers, Decisions: decisions}
	p := placement.Default()
	d := synth.NewDecider(synth.New(synth.Options{Workers: workers, Seed: seed}), &p)
	begin := time.Now()
	warmIndex(d)
	o.Warm = time.Since(begin).Seconds()
	if err := o.measureDecisions(ctx, d, decisions); err != nil {
		return nil, err
	}
	o.measureRest(d)
	if err := o.measureExpressions(ctx, d, decisions/10); err != nil {
		return nil, err
	}
	if err := o.measureLogged(ctx, d, decisions/2); err != nil {
		return nil, err
	}
	o.MemoryMB = peakMemory()
	return o, nil
}

// warmIndex lets the index see all request shapes once.
func warmIndex(d *synth.Decider) {
	for range 20_000 {
		d.Step()
	}
	d.Placed, d.Refused, d.Examined = 0, 0, 0
}

// measureDecisions measures in rounds, and compares some decisions with the scan after each. Rounds are so long that
// the cold CPU caches after the scans hardly matter.
func (o *Rates) measureDecisions(ctx context.Context, d *synth.Decider, decisions int) error {
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
			if k%50 == 49 { // time 50 at once: reading the clock takes time
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
			o.compareWithScan(d)
		}
	}
	n := float64(decisions / round * round)
	o.PerCPU = n / cpu.Seconds()
	o.PerSecond, o.P50, o.P99 = n/took.Seconds(), 1000*Quantile(each, 0.5), 1000*Quantile(each, 0.99)
	o.Examined, o.Refused, o.Full = float64(d.Examined)/n, d.Refused, d.Fleet.Full()
	k := float64(max(1, o.Compared))
	o.ScoreRegret, o.RegretRange, o.BetterShare = o.ScoreRegret/k, o.RegretRange/k, o.BetterShare/k
	return nil
}

func (o *Rates) compareWithScan(d *synth.Decider) {
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

// measureRest measures the scan, the stream without decisions, and the update of whole records.
func (o *Rates) measureRest(d *synth.Decider) {
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

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory returns the most memory that the process has had, in MB.
func peakMemory() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Maxrss) / 1000
}
