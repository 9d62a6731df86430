// Package sparrow is Sparrow (Ousterhout et al., SOSP'13): batch sampling with late binding (section 3), as published,
// and the two weaker techniques it is measured against: random placement and per-task and batch sampling (section 3.1
// to 3.3), where the task goes to the least loaded of the workers sampled.
package sparrow

import (
	"slices"

	"github.com/soukhq/souk/sim/scheduler"
	"github.com/soukhq/souk/sim/scheduler/probing"
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
	opt   Options
	draws draws   // of all workers
	kinds []draws // of those of each kind
}

// New makes Sparrow for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Sparrow {
	if opt.Ratio == 0 {
		opt.Ratio = 2
	}
	f := probing.NewWorkerPool(fleet)
	f.Cancel = opt.Cancel
	s := &Sparrow{WorkerPool: f, opt: opt, draws: newDraws(fleet.Workers), kinds: make([]draws, fleet.Kinds)}
	for w := range int32(fleet.Workers) {
		if fleet.Kinds > 0 {
			k := int(w) % fleet.Kinds
			s.kinds[k] = append(s.kinds[k], w)
		}
	}
	return s
}

// Arrive sends Ratio reservations for each task of the job to random workers among those that satisfy the job's
// constraint (section 4.1: only these are probed).
func (s *Sparrow) Arrive(d *scheduler.Env, job int32) {
	s.Open(d, job)
	n := s.opt.Ratio * int(d.Jobs[job].Tasks)
	from := s.draws
	if k := d.Jobs[job].Kind; k > 0 {
		from = s.kinds[k-1]
	}
	if s.opt.Replacement {
		for range n {
			s.Send(d, from[d.RNG.IntN(len(from))], job, 0)
		}
		return
	}
	for _, w := range from.drawWorkers(d, n) {
		s.Send(d, w, job, 0)
	}
}

// draws draws workers without replacement: a permutation that is shuffled only as far as needed.
type draws []int32

func newDraws(n int) draws {
	p := make(draws, n)
	for i := range p {
		p[i] = int32(i)
	}
	return p
}

// drawWorkers returns n different workers; if there are fewer, some repeatedly.
func (p draws) drawWorkers(d *scheduler.Env, n int) []int32 {
	if n > len(p) {
		out := make([]int32, 0, n)
		for n > 0 {
			k := min(n, len(p))
			out = append(out, p.drawWorkers(d, k)...)
			n -= k
		}
		return out
	}
	for i := range n {
		k := i + d.RNG.IntN(len(p)-i)
		p[i], p[k] = p[k], p[i]
	}
	return p[:n]
}

// Sampling places each task at once, into workers' queues.
type Sampling struct {
	workers []queue
	mode    Mode
	ratio   int
	draws   draws
}

type queue struct {
	tasks []task
	free  int32
}

type task struct{ job, n int32 }

// queueLoad returns the queue's length, or minus the number of free slots.
func (q *queue) queueLoad() int {
	if q.free > 0 {
		return -int(q.free)
	}
	return len(q.tasks)
}

// Mode is how Sampling chooses workers.
type Mode uint8

// The modes: a worker at random; for each task the least loaded of Ratio; for a job of m tasks the m least loaded of
// m times Ratio.
const (
	Random Mode = iota
	PerTask
	Batch
)

const (
	kindTask    scheduler.Kind = iota // task N of Job arrives at worker To
	kindSampled                       // the answers to the samples of Job are back
)

// NewSampling makes a Sampling for a fleet.
func NewSampling(fleet scheduler.Fleet, mode Mode) *Sampling {
	s := &Sampling{workers: make([]queue, fleet.Workers), mode: mode, ratio: 2, draws: newDraws(fleet.Workers)}
	for i := range s.workers {
		s.workers[i].free = int32(max(1, fleet.Slots))
	}
	return s
}

// Arrive places the tasks, or asks workers how loaded they are.
func (s *Sampling) Arrive(d *scheduler.Env, job int32) {
	if s.mode != Random {
		// the loads are those at the time the samples arrive at the workers; their answers take as long again
		d.Note(d.Delay, scheduler.Msg{Kind: kindSampled, Job: job})
		return
	}
	for i, w := range s.draws.drawWorkers(d, int(d.Jobs[job].Tasks)) {
		s.placeProbe(d, w, job, int32(i), 0)
	}
}

func (s *Sampling) placeProbe(d *scheduler.Env, worker, job, n int32, after scheduler.Time) {
	d.Jobs[job].Next++
	d.Messages++
	d.Outs = append(d.Outs, scheduler.Out{Msg: scheduler.Msg{Kind: kindTask, To: worker, Job: job, Task: n},
		After: after})
}

func (s *Sampling) compareLoads(a, b int32) int {
	return s.workers[a].queueLoad() - s.workers[b].queueLoad()
}

// Deliver implements scheduler.Strategy.
func (s *Sampling) Deliver(d *scheduler.Env, m scheduler.Msg) {
	if m.Kind == kindTask {
		q := &s.workers[m.To]
		q.tasks = append(q.tasks, task{m.Job, m.Task})
		s.serveNext(d, m.To)
		return
	}
	tasks := int(d.Jobs[m.Job].Tasks)
	drawn := s.draws.drawWorkers(d, s.ratio*tasks)
	d.Messages += 2 * int64(len(drawn))
	if s.mode == Batch {
		drawn = slices.Clone(drawn)
		slices.SortStableFunc(drawn, s.compareLoads)
	}
	for i := range tasks {
		w := drawn[i]
		if s.mode == PerTask {
			w = slices.MinFunc(drawn[s.ratio*i:s.ratio*(i+1)], s.compareLoads)
		}
		s.placeProbe(d, w, m.Job, int32(i), d.Delay)
	}
}

func (s *Sampling) serveNext(d *scheduler.Env, worker int32) {
	if q := &s.workers[worker]; q.free > 0 && len(q.tasks) > 0 {
		t := q.tasks[0]
		q.tasks = q.tasks[1:]
		q.free--
		d.Run(worker, t.job, t.n, 0)
	}
}

// Ended implements scheduler.Strategy.
func (s *Sampling) Ended(d *scheduler.Env, worker, _, _ int32) {
	s.workers[worker].free++
	s.serveNext(d, worker)
}
