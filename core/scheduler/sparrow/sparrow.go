// Package sparrow is Sparrow (Ousterhout et al., SOSP'13): batch sampling with late binding (section 3), as published,
// and the two weaker techniques it is measured against: random placement and per-task and batch sampling (section 3.1
// to 3.3), where the task goes to the least loaded of the workers sampled.
package sparrow

import (
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/probing"
)

// Options are Sparrow's parameters.
type Options struct {
	Ratio       int  // probes for each task; 2 when 0
	Replacement bool // workers are drawn with replacement, as in the simulators of Hawk and Eagle
	Cancel      bool // proactive cancellation (section 3.5)
}

// Sparrow is batch sampling with late binding.
type Sparrow struct {
	*probing.WorkerPool
	fleet  scheduler.Fleet
	opt    Options
	buyers []buyer
}

type buyer struct {
	probing.Binder
	draws map[int32]probing.Draws // by the kind of worker; 0: of all workers
}

// New makes Sparrow for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Sparrow {
	if opt.Ratio == 0 {
		opt.Ratio = 2
	}
	s := &Sparrow{fleet: fleet, opt: opt, buyers: make([]buyer, max(1, fleet.Buyers))}
	s.WorkerPool = probing.NewWorkerPool(fleet, s.Entry)
	for i := range s.buyers {
		s.buyers[i].Cancel = opt.Cancel
		s.buyers[i].draws = map[int32]probing.Draws{}
	}
	return s
}

// Parties implements scheduler.Strategy.
func (s *Sparrow) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(s.Workers), Buyers: len(s.buyers)}
}

// Entry implements scheduler.Strategy.
func (s *Sparrow) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive sends Ratio reservations for each task of the job to random workers among those that satisfy the job's
// constraint (section 4.1: only these are probed).
func (s *Sparrow) Arrive(d *scheduler.Env, job int32) {
	b, j := &s.buyers[d.Self.ID], d.Job(job)
	b.Open(job)
	n := s.opt.Ratio * int(j.Tasks)
	from := b.workersOf(s.fleet, j.Kind)
	if s.opt.Replacement {
		for range n {
			b.Probe(d, from[d.RNG.IntN(len(from))], job, scheduler.Msg{})
		}
		return
	}
	for _, w := range from.Draw(d, n) {
		b.Probe(d, w, job, scheduler.Msg{})
	}
}

// workersOf returns the workers of a kind, to draw from; 0: all.
func (b *buyer) workersOf(fleet scheduler.Fleet, kind int32) probing.Draws {
	from := b.draws[kind]
	if from == nil {
		first, step := 0, 1
		if kind > 0 {
			first, step = int(kind)-1, fleet.Kinds
		}
		for w := first; w < fleet.Workers; w += step {
			from = append(from, int32(w))
		}
		b.draws[kind] = from
	}
	return from
}

// Deliver implements scheduler.Strategy.
func (s *Sparrow) Deliver(d *scheduler.Env, m scheduler.Msg) {
	if m.Role == scheduler.Buyer {
		s.buyers[m.To].Answer(d, m)
	} else {
		s.WorkerPool.Deliver(d, m)
	}
}
