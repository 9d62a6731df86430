// Package eagle is Eagle (Delgado et al., SoCC'16): long jobs are placed by a central queue on the long partition, and
// short jobs never wait behind them: a worker with a long task rejects a probe and returns what it knows about the
// places of other long tasks (succinct state sharing, section 4.1). A reservation stays until its job has no tasks
// (sticky batch probing, 4.2), and workers serve the job with least remaining work first, within a cap (4.3).
package eagle

import (
	"github.com/soukhq/souk/sim/scheduler"
	"github.com/soukhq/souk/sim/scheduler/central"
	"github.com/soukhq/souk/sim/scheduler/probing"
)

// Options are Eagle's parameters.
type Options struct {
	Ratio  int            // probes for each task of a short job; 2 when 0
	Least  int            // probes of a job at least; 20 when 0
	Rounds int            // rounds of probing before the short partition; 2 when 0
	Cap    scheduler.Time // how many times its own estimate a reservation may be bypassed; 0: 5
}

// Eagle is the architecture.
type Eagle struct {
	*probing.WorkerPool
	long    *central.Waits
	reserve int
	opt     Options
	seen    [][]uint64       // by worker: where long tasks were when it last got one
	at      []scheduler.Time // by worker: when that was; -1 never
	probes  []int32
}

// New makes Eagle for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Eagle {
	if opt.Ratio == 0 {
		opt.Ratio = 2
	}
	if opt.Least == 0 {
		opt.Least = 20
	}
	if opt.Rounds == 0 {
		opt.Rounds = 2
	}
	if opt.Cap == 0 {
		opt.Cap = 5
	}
	f := probing.NewWorkerPool(fleet)
	f.Order, f.Cap, f.Lag = probing.StickyIn, opt.Cap, true
	e := &Eagle{WorkerPool: f, long: central.NewWaits(f), reserve: fleet.Reserve, opt: opt,
		seen: make([][]uint64, fleet.Workers), at: make([]scheduler.Time, fleet.Workers)}
	for i := range e.at {
		e.at[i] = -1
	}
	return e
}

// Arrive implements scheduler.Strategy.
func (e *Eagle) Arrive(d *scheduler.Env, job int32) {
	e.Open(d, job)
	j := &d.Jobs[job]
	if j.Long {
		for _, w := range e.long.Place(d, job, e.reserve) {
			e.Send(d, w, job, 0)
		}
		return
	}
	e.probes = e.probes[:0]
	for range max(e.opt.Ratio*int(j.Tasks), e.opt.Least) {
		e.probes = append(e.probes, d.RNG.Int32N(int32(len(e.Workers))))
	}
	known, at := []uint64(nil), scheduler.Time(-1)
	for round := range e.opt.Rounds {
		if known, at = e.probeRound(d, job, round, known, at); len(e.probes) == 0 {
			return
		}
		for i := range e.probes {
			e.probes[i] = e.drawWorker(d, known)
		}
	}
	if e.reserve > 0 {
		for i := range e.probes {
			e.probes[i] = d.RNG.Int32N(int32(e.reserve))
		}
	}
	e.probeRound(d, job, e.opt.Rounds, known, at)
}

// probeRound probes the workers drawn; those that have a long task reject. The rejected probes stay in e.probes, and
// it returns the newest knowledge of long tasks among the probed workers. Each round after the first takes a round
// trip.
func (e *Eagle) probeRound(d *scheduler.Env, job int32, round int, known []uint64,
	at scheduler.Time) ([]uint64, scheduler.Time) {
	last := e.reserve == 0 && round == e.opt.Rounds // there is no partition to fall back on: they wait
	left := e.probes[:0]
	for _, w := range e.probes {
		if !e.Workers[w].HasLong() || last {
			e.Send(d, w, job, scheduler.Time((round+1)/2)*d.Delay)
		} else {
			d.Messages += 2
			left = append(left, w)
		}
		if e.at[w] > at {
			known, at = e.seen[w], e.at[w]
		}
	}
	e.probes = left
	return known, at
}

// drawWorker returns a worker that is in the short partition, or has no long task by the known bits.
func (e *Eagle) drawWorker(d *scheduler.Env, known []uint64) int32 {
	n := int32(len(e.Workers))
	for range 64 { // an unlucky streak ends in the short partition
		w := d.RNG.Int32N(n)
		if int(w) < e.reserve || known == nil || known[w/64]&(1<<(w%64)) == 0 {
			return w
		}
	}
	if e.reserve > 0 {
		return d.RNG.Int32N(int32(e.reserve))
	}
	return d.RNG.Int32N(n)
}

// Deliver implements scheduler.Strategy. A long job's reservation carries the places of long tasks.
func (e *Eagle) Deliver(d *scheduler.Env, m scheduler.Msg) {
	if m.Kind == probing.KindProbe && d.Jobs[m.Job].Long {
		if e.seen[m.To] == nil {
			e.seen[m.To] = make([]uint64, len(e.long.Bits))
		}
		copy(e.seen[m.To], e.long.Bits)
		e.at[m.To] = d.Now
	}
	e.WorkerPool.Deliver(d, m)
}

// Ended implements scheduler.Strategy.
func (e *Eagle) Ended(d *scheduler.Env, worker, job, n int32) {
	if d.Jobs[job].Long {
		e.long.Done(worker, d.Jobs[job].Estimate)
	}
	e.WorkerPool.Ended(d, worker, job, n)
}
