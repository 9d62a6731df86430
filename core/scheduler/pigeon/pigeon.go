// Package pigeon is Pigeon (Wang et al., SoCC'19): workers are divided into groups, each with a master; a distributor
// sends the tasks of a job evenly to the masters (section 3.1), and a master gives each task to an idle worker of its
// group or queues it, short jobs' tasks before long ones' by weighted fair queueing, some workers being reserved for
// short jobs (section 3.2).
//
// It is written from the paper's text. The published simulator differs: its masters share the reserved workers, and a
// worker that is given a second task runs both at once.
package pigeon

import (
	"math"

	"github.com/soukhq/souk/core/scheduler"
)

// Options are Pigeon's parameters.
type Options struct {
	Group  int // workers of a group; 100 when 0
	Weight int // tasks of short jobs that may go before one of a long job; all when 0, as in the authors' runs
}

// Pigeon is the architecture.
type Pigeon struct {
	masters []master
	buyers  int
	opt     Options
	group   []int32 // by worker
	special []bool  // by worker: reserved for short jobs
}

type task struct{ job, n int32 }

type master struct {
	idle     []int32
	reserved []int32 // idle
	short    []task
	long     []task
	streak   int
}

const (
	kindTask  scheduler.Kind = iota // to a master: Task of Job
	kindStart                       // to a worker: Task of Job
	kindFree                        // to a master: worker From is free
)

// New makes Pigeon for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Pigeon {
	if opt.Group == 0 {
		opt.Group = 100
	}
	if opt.Weight == 0 {
		opt.Weight = math.MaxInt
	}
	groups := max(1, fleet.Workers/opt.Group)
	p := &Pigeon{masters: make([]master, groups), buyers: max(1, fleet.Buyers), opt: opt,
		group: make([]int32, fleet.Workers), special: make([]bool, fleet.Workers)}
	for w := range fleet.Workers {
		g := w % groups
		p.group[w], p.special[w] = int32(g), w < fleet.Reserve
		for range fleet.FreeSlots() {
			p.masters[g].restWorker(int32(w), p.special[w])
		}
	}
	return p
}

func (m *master) restWorker(worker int32, special bool) {
	if special {
		m.reserved = append(m.reserved, worker)
	} else {
		m.idle = append(m.idle, worker)
	}
}

// Parties implements scheduler.Strategy: buyers are the distributors, and the centers the masters.
func (p *Pigeon) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(p.group), Buyers: p.buyers, Centers: len(p.masters)}
}

// Entry implements scheduler.Strategy.
func (p *Pigeon) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive implements scheduler.Strategy.
func (p *Pigeon) Arrive(d *scheduler.Env, job int32) {
	at := d.RNG.Int32N(int32(len(p.masters)))
	for n := range d.Job(job).Tasks {
		d.Send(scheduler.Msg{Kind: kindTask, Role: scheduler.Center, To: (at + n) % int32(len(p.masters)), Job: job,
			Task: n})
	}
}

// Deliver implements scheduler.Strategy.
func (p *Pigeon) Deliver(d *scheduler.Env, msg scheduler.Msg) {
	switch msg.Kind {
	case kindStart:
		d.Run(msg.Job, msg.Task)
	case kindTask:
		p.taskArrived(d, &p.masters[msg.To], task{msg.Job, msg.Task})
	case kindFree:
		p.workerFreed(d, &p.masters[msg.To], msg.From)
	}
}

func (p *Pigeon) taskArrived(d *scheduler.Env, m *master, t task) {
	long := d.Job(t.job).Long
	switch {
	case len(m.idle) > 0:
		p.startTask(d, popFirst(&m.idle), t)
	case !long && len(m.reserved) > 0:
		p.startTask(d, popFirst(&m.reserved), t)
	case long:
		m.long = append(m.long, t)
	default:
		m.short = append(m.short, t)
	}
}

func popFirst(list *[]int32) int32 {
	n := len(*list) - 1
	w := (*list)[n]
	*list = (*list)[:n]
	return w
}

func (p *Pigeon) startTask(d *scheduler.Env, worker int32, t task) {
	d.Send(scheduler.Msg{Kind: kindStart, To: worker, Job: t.job, Task: t.n})
}

// workerFreed gives a free worker the next task: a short job's, unless Weight of them have gone before a waiting long
// job's.
func (p *Pigeon) workerFreed(d *scheduler.Env, m *master, worker int32) {
	special := p.special[worker]
	switch {
	case len(m.short) > 0 && (special || m.streak < p.opt.Weight || len(m.long) == 0):
		m.streak++
		t := m.short[0]
		m.short = m.short[1:]
		p.startTask(d, worker, t)
	case len(m.long) > 0 && !special:
		m.streak = 0
		t := m.long[0]
		m.long = m.long[1:]
		p.startTask(d, worker, t)
	default:
		m.restWorker(worker, special)
	}
}

// Ended implements scheduler.Strategy.
func (p *Pigeon) Ended(d *scheduler.Env, _, _ int32) { p.Freed(d) }

// Freed implements scheduler.Strategy.
func (p *Pigeon) Freed(d *scheduler.Env) {
	w := d.Self.ID
	d.Send(scheduler.Msg{Kind: kindFree, Role: scheduler.Center, To: p.group[w], From: w})
}
