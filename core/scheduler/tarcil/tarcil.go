// Package tarcil is Tarcil (Delimitrou, Sanchez, Kozyrakis, SoCC'15): schedulers that sample workers, as Sparrow's do,
// but look at the quality of what they find, draw as many as it takes to find a good slot at the present load, and keep
// a task back where that is unlikely (admission control).
//
// The quality of a slot for a job is how near to its best a task runs there: by the worker's hardware, and by who runs
// beside it (scheduler.Slowing, which stands for the paper's classification of jobs). A good slot has at least Quality.
// A scheduler counts how many of the workers that it samples have one, and draws so many that one of them does with
// probability Surely, up to Most. Where that is not enough, tasks wait: for slots that the scheduler's own tasks free,
// and for later samples. A task takes a slot that is not good once it has waited for as long as it loses there.
//
// The paper has the distribution of qualities at a load from its analysis. Here it is counted.
package tarcil

import (
	"cmp"
	"math"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/probing"
)

// Options are Tarcil's parameters.
type Options struct {
	Quality float64 // of a good slot, from 0 to 1: its part of the best speed; 0: 0.85
	Surely  float64 // 0: 0.95
	Most    int     // workers sampled for a task; 0: 32
}

// Tarcil is the architecture.
type Tarcil struct {
	opt     Options
	slowing scheduler.Slowing
	slots   int32 // of each worker
	workers []worker
	agents  []agent
}

// worker is a worker's state.
type worker struct{ free int32 }

// agent is a scheduler: the state of a buyer.
type agent struct {
	draws   probing.Draws
	waiting []waiting // tasks without a slot, first come first
	answers []answer  // of the round of sampling in progress
	missing int       // answers
	found   []slot    // what they have, the best first
	noted   bool      // a later round is noted
	good    float64   // how likely a worker has a good slot, by the samples so far
}

// waiting is tasks next to end-1 of a job.
type waiting struct{ job, next, end int32 }

// slot is a free one of a worker, and how many times as long as at its best the first waiting task takes there.
type slot struct {
	worker int32
	factor float64
}

// answer is a sampled worker's.
type answer struct{ worker, free int32 }

const (
	kindSample scheduler.Kind = iota // to a worker: agent From asks how many slots are free
	kindAnswer                       // to an agent: worker From has Count free slots
	kindTask                         // to a worker: Task of Job
	kindRefuse                       // to an agent: worker From has no slot for Task of Job
	kindEnded                        // to an agent: a task of Job has ended at worker From, which has Count free slots
	kindRound                        // a note to an agent: sample again
)

// New makes Tarcil for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Tarcil {
	opt.Quality, opt.Surely, opt.Most = cmp.Or(opt.Quality, 0.85), cmp.Or(opt.Surely, 0.95), cmp.Or(opt.Most, 32)
	t := &Tarcil{opt: opt, slowing: fleet.Slowing, slots: int32(max(1, fleet.Slots)),
		workers: make([]worker, fleet.Workers), agents: make([]agent, max(1, fleet.Buyers))}
	for w := range t.workers {
		t.workers[w].free = fleet.FreeSlots()
	}
	for i := range t.agents {
		if !fleet.Busy {
			t.agents[i].good = 1 // all are idle
		}
	}
	return t
}

// Parties implements scheduler.Strategy.
func (t *Tarcil) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(t.workers), Buyers: len(t.agents)}
}

// Entry implements scheduler.Strategy.
func (t *Tarcil) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive implements scheduler.Strategy.
func (t *Tarcil) Arrive(d *scheduler.Env, job int32) {
	a := &t.agents[d.Self.ID]
	a.waiting = append(a.waiting, waiting{job, 0, d.Job(job).Tasks})
	t.sampleWorkers(d, a)
}

// Deliver implements scheduler.Strategy.
func (t *Tarcil) Deliver(d *scheduler.Env, m scheduler.Msg) {
	if m.Role == scheduler.Worker {
		t.deliverToWorker(d, m)
		return
	}
	a := &t.agents[m.To]
	switch m.Kind {
	case kindAnswer:
		a.answers = append(a.answers, answer{m.From, m.Count})
		if a.missing--; a.missing == 0 {
			t.placeTasks(d, a)
		}
	case kindRefuse:
		d.Conflicts++
		a.waiting = slices.Insert(a.waiting, 0, waiting{m.Job, m.Task, m.Task + 1})
		t.sampleLater(d, a)
	case kindEnded:
		if len(a.waiting) > 0 && t.isWorthIt(d, a, t.factorOf(a, answer{m.From, m.Count})) {
			a.placeNext(d, m.From)
		}
	case kindRound:
		a.noted = false
		t.sampleWorkers(d, a)
	}
}

func (t *Tarcil) deliverToWorker(d *scheduler.Env, m scheduler.Msg) {
	w := &t.workers[m.To]
	switch {
	case m.Kind == kindSample:
		d.Send(scheduler.Msg{Kind: kindAnswer, Role: scheduler.Buyer, To: m.From, From: m.To, Count: w.free})
	case w.free > 0:
		w.free--
		d.Run(m.Job, m.Task)
	default:
		d.Send(scheduler.Msg{Kind: kindRefuse, Role: scheduler.Buyer, To: m.From, From: m.To, Job: m.Job, Task: m.Task})
	}
}

// Ended implements scheduler.Strategy: the task's agent hears of it.
func (t *Tarcil) Ended(d *scheduler.Env, job, _ int32) {
	w := &t.workers[d.Self.ID]
	w.free++
	d.Send(scheduler.Msg{Kind: kindEnded, Role: scheduler.Buyer, To: d.Job(job).Buyer, From: d.Self.ID, Job: job,
		Count: w.free})
}

// Freed implements scheduler.Strategy: samples will find the slot.
func (t *Tarcil) Freed(d *scheduler.Env) { t.workers[d.Self.ID].free++ }

// factorOf returns how many times as long as at its best the first waiting task takes on a worker.
func (t *Tarcil) factorOf(a *agent, x answer) float64 {
	return t.slowing.Factor(a.waiting[0].job, x.worker, int(t.slots-x.free))
}

func (t *Tarcil) isGood(factor float64) bool { return factor*t.opt.Quality <= 1 }

// isWorthIt reports whether the first waiting task takes a slot: it has waited for as long as it loses there.
func (t *Tarcil) isWorthIt(d *scheduler.Env, a *agent, factor float64) bool {
	j := d.Job(a.waiting[0].job)
	return float64(d.Now-j.Submitted) >= (factor-1/t.opt.Quality)*float64(j.Estimate)
}

// mostSamples bounds a round of sampling.
const mostSamples = 1024

// sampleWorkers begins a round of sampling for the tasks of the first job that waits, unless one is in progress.
func (t *Tarcil) sampleWorkers(d *scheduler.Env, a *agent) {
	if a.missing > 0 || len(a.waiting) == 0 {
		return
	}
	if a.draws == nil {
		for w := range t.workers {
			a.draws = append(a.draws, int32(w))
		}
	}
	n := t.sampleSize(a.good)
	if n < t.opt.Most { // else a good slot is unlikely: look for one, and no more
		n = min(n*int(a.waiting[0].end-a.waiting[0].next), mostSamples)
	}
	n = min(n, len(t.workers))
	a.answers, a.missing = a.answers[:0], n
	for _, w := range a.draws.Draw(d, n) {
		d.Send(scheduler.Msg{Kind: kindSample, To: w, From: d.Self.ID})
	}
}

// sampleSize returns how many workers to sample for a task, if one has a good slot with probability good.
func (t *Tarcil) sampleSize(good float64) int {
	if good >= t.opt.Surely {
		return 2
	}
	n := math.Ceil(math.Log(1-t.opt.Surely) / math.Log1p(-max(good, 1e-9)))
	return int(min(max(n, 2), float64(t.opt.Most)))
}

// forget is the weight of older samples when a scheduler counts good slots.
const forget = 0.8

// placeTasks gives the slots that were found to the tasks of the first job, the best first. For those that get none, or
// none that they take yet, there is another round: at once if this one placed some, else later.
func (t *Tarcil) placeTasks(d *scheduler.Env, a *agent) {
	if len(a.waiting) == 0 { // slots of ended tasks were enough
		return
	}
	t.countGood(a)
	job, placed := a.waiting[0].job, false
	t.sortByFactor(a)
	for len(a.found) > 0 && len(a.waiting) > 0 && a.waiting[0].job == job && t.isWorthIt(d, a, a.found[0].factor) {
		placed = true
		a.placeNext(d, a.found[0].worker)
		a.found = a.found[1:]
	}
	if placed || len(a.waiting) > 0 && a.waiting[0].job != job {
		t.sampleWorkers(d, a)
	} else {
		t.sampleLater(d, a)
	}
}

// countGood counts how many of the workers sampled have a good slot.
func (t *Tarcil) countGood(a *agent) {
	good := 0
	for _, x := range a.answers {
		if x.free > 0 && t.isGood(t.factorOf(a, x)) {
			good++
		}
	}
	a.good = forget*a.good + (1-forget)*float64(good)/float64(len(a.answers))
}

// sortByFactor lists the free slots of the workers sampled, the best first.
func (t *Tarcil) sortByFactor(a *agent) {
	a.found = a.found[:0]
	for _, x := range a.answers {
		for ; x.free > 0; x.free-- {
			a.found = append(a.found, slot{x.worker, t.factorOf(a, x)})
		}
	}
	slices.SortStableFunc(a.found, func(a, b slot) int { return cmp.Compare(a.factor, b.factor) })
}

// sampleLater notes another round of sampling, if tasks wait.
func (t *Tarcil) sampleLater(d *scheduler.Env, a *agent) {
	if len(a.waiting) == 0 || a.noted {
		return
	}
	a.noted = true
	wait := min(max(d.Job(a.waiting[0].job).Estimate/4, scheduler.Second/50), 600*scheduler.Second)
	d.Note(wait, scheduler.Msg{Kind: kindRound})
}

// placeNext sends the first waiting task to a worker.
func (a *agent) placeNext(d *scheduler.Env, worker int32) {
	w := &a.waiting[0]
	d.Send(scheduler.Msg{Kind: kindTask, To: worker, From: d.Self.ID, Job: w.job, Task: w.next, Gives: true})
	if w.next++; w.next == w.end {
		a.waiting = a.waiting[1:]
	}
}
