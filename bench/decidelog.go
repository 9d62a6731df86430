package bench

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	synth "github.com/soukhq/souk/sim/fleet"
	"github.com/soukhq/souk/store/decisionlog"
)

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

// measureExpressions measures the default policy written in CEL, over the same fleet.
func (o *Rates) measureExpressions(ctx context.Context, d *synth.Decider, decisions int) error {
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

// measureLogged measures decisions that are recorded, until the last is on disk.
func (o *Rates) measureLogged(ctx context.Context, d *synth.Decider, decisions int) error {
	dir, err := os.MkdirTemp("", "souk-bench-")
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeBench,
			"no temporary directory can be made for the decision log")
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
		rec := w.nextDecision()
		for !log.Append(rec) { // the writer is behind: wait, so that nothing is lost
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
		return fault.New(fault.Internal, fault.CodeBench,
			"%d decisions were made and %d are in the log", decisions, s.Recorded)
	}
	return nil
}

// decisionRecorder makes the record of each decision as a buyer that keeps an index does: with the examined workers
// that fit, their subscores, and their records, unless the log has them already.
type decisionRecorder struct {
	d       *synth.Decider
	workers map[cluster.WorkerID]*recorded
	last    string
	rng     *rand.Rand
}

// recorded tracks the versions of a worker's record.
type recorded struct {
	version uint64 // as the worker would count it
	written uint64 // version last given to the log
}

func (w *decisionRecorder) recordedWorker(id cluster.WorkerID) *recorded {
	v := w.workers[id]
	if v == nil {
		v = &recorded{version: 1}
		w.workers[id] = v
	}
	return v
}

func (w *decisionRecorder) nextDecision() *decision.Decision {
	at := time.Now()
	r, choices, examined := w.d.Decide()
	w.last = machine.NextULID(w.last, at, w.rng)
	rec := &decision.Decision{
		ID:       w.last,
		At:       at,
		Why:      decision.Create,
		Request:  *r,
		Strategy: decision.Direct,
		Outcome:  decision.Refused,
		Policy: decision.Policy{
			Name: w.d.Policy.Name,
		},
		Workers:    w.d.Index.Len(),
		Evaluated:  examined,
		Candidates: examined,
		Fitting:    len(choices),
	}
	rec.Considered = make([]decision.Considered, 0, len(choices))
	rec.Records = make([]*cluster.Record, 0, len(choices))
	for i := range choices {
		c := &choices[i]
		now, _ := w.d.Index.Chosen(c)
		known := w.recordedWorker(c.Worker)
		ref := decision.Ref{Incarnation: now.Incarnation, Version: known.version}
		if known.written != ref.Version {
			known.written = ref.Version
			kept := new(*now)
			rec.Records = append(rec.Records, kept)
			kept.Version, kept.Apps, kept.GPUs = ref.Version, maps.Clone(now.Apps), slices.Clone(now.GPUs)
		}
		score, terms := w.d.Policy.Parts(r, now)
		rec.Considered = append(rec.Considered, decision.Considered{Ref: ref,
			Candidate: machine.Candidate{Worker: string(c.Worker), Fits: true, Score: score, Terms: terms}})
	}
	if len(choices) > 0 {
		rec.Outcome, rec.Winner = decision.Placed, choices[0].Worker
		rec.Asks = []decision.Ask{{Worker: rec.Winner, Ref: rec.Considered[0].Ref, Result: market.ResultGranted}}
		rec.Reason = fmt.Sprintf("best score %.2f of %d workers looked at (of %d)", choices[0].Score, examined,
			rec.Workers)
		w.recordedWorker(rec.Winner).version++
	}
	rec.Took.Rank = decision.Millis(time.Since(at))
	w.d.Enter(r, choices)
	w.d.End(func(id cluster.WorkerID) { w.recordedWorker(id).version++ })
	return rec
}
