package sparrow

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/probing"
)

// Sampling places each task at once, into workers' queues.
type Sampling struct {
	fleet   scheduler.Fleet
	mode    Mode
	ratio   int
	workers []queue
	buyers  []sampler
}

// queue is a worker's.
type queue struct {
	tasks []task
	free  int32
}

type task struct{ job, n int32 }

// queueLoad returns the queue's length, or minus the number of free slots.
func (q *queue) queueLoad() int32 {
	if q.free > 0 {
		return -q.free
	}
	return int32(len(q.tasks))
}

// sampler is a buyer that waits for the answers of the workers it has sampled.
type sampler struct {
	buyer
	jobs map[int32]*samples
}

// samples are the workers sampled for a job, in the order they were drawn, and the answers.
type samples struct {
	workers []int32
	loads   []int32
	missing int
}

// Mode is how Sampling chooses workers.
type Mode uint8

// The modes: a worker at random; for each task the least loaded of two; for a job of m tasks the m least loaded of 2m.
const (
	Random Mode = iota
	PerTask
	Batch
)

const (
	kindTask   scheduler.Kind = iota // to a worker: Task of Job
	kindSample                       // to a worker: how loaded is it? For Job of buyer From; it is the Task-th sampled
	kindLoad                         // to a buyer: the Task-th worker sampled for Job has a load of Count
)

// NewSampling makes a Sampling for a fleet.
func NewSampling(fleet scheduler.Fleet, mode Mode) *Sampling {
	s := &Sampling{fleet: fleet, mode: mode, ratio: 2, workers: make([]queue, fleet.Workers),
		buyers: make([]sampler, max(1, fleet.Buyers))}
	for i := range s.workers {
		s.workers[i].free = fleet.FreeSlots()
	}
	for i := range s.buyers {
		s.buyers[i] = sampler{buyer{draws: map[int32]probing.Draws{}}, map[int32]*samples{}}
	}
	return s
}

// Parties implements scheduler.Strategy.
func (s *Sampling) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(s.workers), Buyers: len(s.buyers)}
}

// Entry implements scheduler.Strategy.
func (s *Sampling) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive places the tasks, or asks workers how loaded they are.
func (s *Sampling) Arrive(d *scheduler.Env, job int32) {
	b, tasks := &s.buyers[d.Self.ID], int(d.Job(job).Tasks)
	from := b.workersOf(s.fleet, 0)
	if s.mode == Random {
		for i, w := range from.Draw(d, tasks) {
			placeTask(d, w, job, i)
		}
		return
	}
	drawn := slices.Clone(from.Draw(d, s.ratio*tasks))
	b.jobs[job] = &samples{workers: drawn, loads: make([]int32, len(drawn)), missing: len(drawn)}
	for i, w := range drawn {
		d.Send(scheduler.Msg{Kind: kindSample, To: w, From: d.Self.ID, Job: job, Task: int32(i)})
	}
}

func placeTask(d *scheduler.Env, worker, job int32, n int) {
	d.Send(scheduler.Msg{Kind: kindTask, To: worker, Job: job, Task: int32(n), Gives: true})
}

// Deliver implements scheduler.Strategy.
func (s *Sampling) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case kindTask:
		q := &s.workers[m.To]
		q.tasks = append(q.tasks, task{m.Job, m.Task})
		q.serveNext(d)
	case kindSample:
		m.Kind, m.Role, m.To, m.Count = kindLoad, scheduler.Buyer, m.From, s.workers[m.To].queueLoad()
		d.Send(m)
	case kindLoad:
		b := &s.buyers[m.To]
		x := b.jobs[m.Job]
		x.loads[m.Task] = m.Count
		if x.missing--; x.missing == 0 {
			delete(b.jobs, m.Job)
			s.placeJob(d, m.Job, x)
		}
	}
}

// placeJob places the tasks of a job when all workers sampled for it have answered.
func (s *Sampling) placeJob(d *scheduler.Env, job int32, x *samples) {
	order := make([]int, len(x.workers))
	for i := range order {
		order[i] = i
	}
	byLoad := func(a, b int) int { return cmp.Compare(x.loads[a], x.loads[b]) }
	if s.mode == Batch {
		slices.SortStableFunc(order, byLoad)
	}
	for n := range len(order) / s.ratio {
		i := order[n]
		if s.mode == PerTask {
			i = slices.MinFunc(order[s.ratio*n:s.ratio*(n+1)], byLoad)
		}
		placeTask(d, x.workers[i], job, n)
	}
}

// serveNext runs the next task, if a slot is free.
func (q *queue) serveNext(d *scheduler.Env) {
	if q.free > 0 && len(q.tasks) > 0 {
		t := q.tasks[0]
		q.tasks = q.tasks[1:]
		q.free--
		d.Run(t.job, t.n)
	}
}

// Ended implements scheduler.Strategy.
func (s *Sampling) Ended(d *scheduler.Env, _, _ int32) { s.Freed(d) }

// Freed implements scheduler.Strategy.
func (s *Sampling) Freed(d *scheduler.Env) {
	q := &s.workers[d.Self.ID]
	q.free++
	q.serveNext(d)
}
