// Package borg is a scheduler like Borg's (Verma et al., EuroSys'15, sections 3.2 and 3.4) on workers of equal slots: one
// place has a queue of pending tasks, and scans it from high to low priority, round-robin between users within a priority,
// so that a large job holds up no other user. For each task it finds workers where the task can run (feasibility), and takes the one with
// the best score.
//
// What makes it scale in the paper does so here. It looks at workers in random order until it has found enough of them to
// score (relaxed randomization). The tasks of a job are one equivalence class: their workers are looked for and scored once,
// together. Scores are kept until the worker has changed (score caching).
//
// A score is how much longer than at its best the task takes on the worker, as far as that is known (scheduler.Slowing), and then
// how many of its slots are busy: tasks are spread, as by E-PVM. Packing them leaves room for large tasks, and no task
// is larger than another here. Jobs of short tasks have the higher priority.
package borg

import (
	"cmp"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/slotset"
)

// Options are the scheduler's parameters.
type Options struct {
	Enough int // feasible workers that are scored for a task; 0: 10
}

// Borg is the architecture.
type Borg struct {
	opt    Options
	fleet  scheduler.Fleet
	slots  int32 // of each worker
	free   *slotset.Set
	bands  [2]band // of short jobs and of long ones, the higher priority first
	lacked []bool  // by kind: in this scan, no worker for a job that needs it was found
}

// band is the pending tasks of one priority.
type band struct {
	users []user // by buyer
	next  int    // the user whose task is next
}

// user is the jobs of one user with pending tasks, by arrival.
type user struct{ jobs []*pending }

// pending is the tasks next to end-1 of a job.
type pending struct {
	job, next, end int32
	scored         []candidate // a heap, the best first
}

// candidate is a feasible worker with its score.
type candidate struct {
	worker int32
	free   int32 // its free slots when it was scored
	factor float64
}

func isBetter(a, b *candidate) bool {
	return a.factor < b.factor || a.factor == b.factor && a.free > b.free
}

const (
	kindFree scheduler.Kind = iota // to the center: a slot of worker From is free
	kindTask                       // to a worker: it runs Task of Job
)

// New makes the scheduler for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Borg {
	opt.Enough = cmp.Or(opt.Enough, 10)
	b := &Borg{opt: opt, fleet: fleet, slots: int32(max(1, fleet.Slots)),
		free: slotset.New(fleet.Workers, fleet.FreeSlots()), lacked: make([]bool, fleet.Kinds+1)}
	for i := range b.bands {
		b.bands[i].users = make([]user, max(1, fleet.Buyers))
	}
	return b
}

// Parties implements scheduler.Strategy. Buyers are users, who do nothing themselves.
func (b *Borg) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: b.fleet.Workers, Buyers: len(b.bands[0].users), Centers: 1}
}

// Entry implements scheduler.Strategy.
func (b *Borg) Entry(scheduler.Job) scheduler.Party { return scheduler.Party{Role: scheduler.Center} }

// Arrive implements scheduler.Strategy.
func (b *Borg) Arrive(d *scheduler.Env, job int32) {
	j, band := d.Job(job), &b.bands[0]
	if j.Long {
		band = &b.bands[1]
	}
	u := &band.users[j.Buyer]
	u.jobs = append(u.jobs, &pending{job: job, end: j.Tasks})
	b.scan(d)
}

// Deliver implements scheduler.Strategy.
func (b *Borg) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case kindFree:
		b.free.Add(m.From)
		b.scan(d)
	case kindTask:
		d.Run(m.Job, m.Task)
	}
}

// Ended implements scheduler.Strategy.
func (b *Borg) Ended(d *scheduler.Env, _, _ int32) { b.Freed(d) }

// Freed implements scheduler.Strategy.
func (b *Borg) Freed(d *scheduler.Env) {
	d.Send(scheduler.Msg{Kind: kindFree, Role: scheduler.Center, From: d.Self.ID})
}

// scan places pending tasks, until no slot is free or no task can run where one is.
func (b *Borg) scan(d *scheduler.Env) {
	clear(b.lacked)
	for i := range b.bands {
		for b.free.Total() > 0 && b.placeNext(d, &b.bands[i]) {
		}
	}
}

// placeNext places a task of the next user who has one that can run; false: nobody has.
func (b *Borg) placeNext(d *scheduler.Env, band *band) bool {
	for range band.users {
		u := &band.users[band.next]
		if band.next++; band.next == len(band.users) {
			band.next = 0
		}
		for i, p := range u.jobs {
			if !b.findWorker(d, p) {
				continue
			}
			w := p.scored[0].worker
			b.free.Take(w)
			d.Send(scheduler.Msg{Kind: kindTask, To: w, Job: p.job, Task: p.next})
			if p.next++; p.next == p.end {
				u.jobs = append(u.jobs[:i], u.jobs[i+1:]...)
			}
			return true
		}
	}
	return false
}

// findWorker has a job's best candidate first in its heap; false: no worker with a free slot can run its tasks. A worker
// that has changed since it was scored is scored again when its turn comes.
func (b *Borg) findWorker(d *scheduler.Env, p *pending) bool {
	kind := d.Job(p.job).Kind
	if b.lacked[kind] {
		return false
	}
	for {
		for len(p.scored) > 0 {
			c := &p.scored[0]
			switch free := b.free.Free(c.worker); free {
			case c.free:
				return true
			case 0:
				last := len(p.scored) - 1
				p.scored[0] = p.scored[last]
				p.scored = p.scored[:last]
			default:
				*c = b.score(p.job, c.worker)
			}
			scheduler.SiftDown(p.scored, 0, isBetter)
		}
		suits := func(w int32) bool { return kind == 0 || w%int32(b.fleet.Kinds)+1 == kind }
		found := b.free.Sample(d.RNG, b.opt.Enough*int(p.end-p.next), suits)
		if len(found) == 0 {
			b.lacked[kind] = true
			return false
		}
		for _, w := range found {
			p.scored = append(p.scored, b.score(p.job, w))
		}
		scheduler.Heapify(p.scored, isBetter)
	}
}

// score scores a worker with a free slot for a job's tasks.
func (b *Borg) score(job, worker int32) candidate {
	free := b.free.Free(worker)
	return candidate{worker, free, b.fleet.Factor(job, worker, int(b.slots-free))}
}
