// Package probing is late binding, which Sparrow, Hawk, Eagle and the central queues share: a worker keeps a queue of
// reservations (probes), and when a slot is free it asks the scheduler of the next one for a task. That scheduler, a
// buyer or a center, is a Binder. Sparrow (SOSP'13) section 3.4; Hawk (ATC'15) section 3; Eagle (SoCC'16) sections 3
// and 4.
package probing

import (
	"cmp"
	"math"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
)

// The kinds of messages. Architectures that add their own begin at KindOwn.
const (
	KindProbe scheduler.Kind = iota // to a worker: a reservation for Job, which has Count tasks left
	KindAsk                         // to the scheduler of Job: worker From is free, and its reservation Offer is next
	KindTask                        // to a worker, for its reservation Offer: Task of Job, which has Count tasks left
	KindNone                        // to a worker, for its reservation Offer: Job has no task left
	KindLeft                        // to a worker: Job has Count tasks left
	KindOwn
)

// Order is how a worker chooses among its reservations.
type Order uint8

// The orders. By remaining work, a worker goes by the newest message that it has about the job.
const (
	FIFO     Order = iota
	SRPT           // least remaining estimated work, bypassing no reservation by more than Cap estimates
	StickyIn       // SRPT, and a short job's reservation stays until the job has no tasks: as in Eagle
)

// Probe is a reservation in a worker's queue.
type Probe struct {
	Job      int32          `json:"j"`
	Number   int32          `json:"n,omitempty"` // of the reservation, counted by the worker
	Left     int32          `json:"l,omitempty"` // tasks of the job that are not given out, as the worker was told last
	Bypassed scheduler.Time `json:"b,omitempty"` // estimated work that has overtaken it
}

// Check refuses a reservation from another worker that is for no job, or for fewer tasks than none.
func (p Probe) Check() error {
	return cmp.Or(scheduler.CheckRange("job", p.Job, 1, math.MaxInt32),
		scheduler.CheckRange("number", p.Number, 0, math.MaxInt32),
		scheduler.CheckRange("tasks left", p.Left, 0, math.MaxInt32))
}

// Worker is one worker's queue.
type Worker struct {
	Queue      []Probe
	Free       int32 // free slots
	LongQueued int32 // reservations of long jobs in the queue
	LongRuns   int32 // slots that run a task of a long job, or wait for one
	number     int32 // of the last reservation
}

// HasLong reports whether the worker runs or has queued a task of a long job.
func (w *Worker) HasLong() bool { return w.LongRuns > 0 || w.LongQueued > 0 }

// Idle reports whether the worker has a free slot and nothing to run on it.
func (w *Worker) Idle() bool { return w.Free > 0 && len(w.Queue) == 0 }

// WorkerPool is the workers.
type WorkerPool struct {
	Workers []Worker
	Order   Order
	// how many times its own estimate a reservation may be bypassed; 0: no bound
	Cap scheduler.Time
	Of  func(j scheduler.Job) scheduler.Party // the scheduler of a job

	// If set, they are called in the step of a worker: when it becomes idle, and when it begins a task.
	Rested func(d *scheduler.Env, worker int32)
	Began  func(d *scheduler.Env, worker, job int32)
}

// NewWorkerPool makes the workers of a fleet, with all slots free. of returns the scheduler of a job.
func NewWorkerPool(fleet scheduler.Fleet, of func(scheduler.Job) scheduler.Party) *WorkerPool {
	f := &WorkerPool{Workers: make([]Worker, fleet.Workers), Of: of}
	for i := range f.Workers {
		f.Workers[i].Free = fleet.FreeSlots()
	}
	return f
}

// Deliver handles the messages below KindOwn that are for workers.
func (f *WorkerPool) Deliver(d *scheduler.Env, m scheduler.Msg) {
	w := &f.Workers[m.To]
	switch m.Kind {
	case KindProbe:
		f.Add(d, m.To, Probe{Job: m.Job, Left: m.Count})
	case KindTask:
		if f.Order != FIFO {
			w.wasBypassed(d.Job(m.Job), m.Offer, f.Order)
		}
		w.setLeft(d, w.find(m.Offer), m.Count)
		d.Run(m.Job, m.Task)
		if f.Began != nil {
			f.Began(d, m.To, m.Job)
		}
	case KindNone:
		w.setLeft(d, w.find(m.Offer), 0)
		f.freeSlot(d, m.To, m.Job)
	case KindLeft:
		w.setLeft(d, slices.IndexFunc(w.Queue, func(p Probe) bool { return p.Job == m.Job }), m.Count)
	}
}

// Add appends a reservation to a worker's queue.
func (f *WorkerPool) Add(d *scheduler.Env, worker int32, p Probe) {
	w := &f.Workers[worker]
	w.number++
	p.Number = w.number
	w.Queue = append(w.Queue, p)
	if d.Job(p.Job).Long {
		w.LongQueued++
	}
	f.serveNext(d, worker)
}

// Ended frees the slot of a task that has ended.
func (f *WorkerPool) Ended(d *scheduler.Env, job, _ int32) { f.freeSlot(d, d.Self.ID, job) }

// Freed implements scheduler.Strategy.
func (f *WorkerPool) Freed(d *scheduler.Env) { f.freeSlot(d, d.Self.ID, 0) }

// freeSlot frees a slot that a job had; 0: something else had it.
func (f *WorkerPool) freeSlot(d *scheduler.Env, worker, job int32) {
	w := &f.Workers[worker]
	w.Free++
	if job != 0 && d.Job(job).Long {
		w.LongRuns--
	}
	f.serveNext(d, worker)
	if f.Rested != nil && w.Idle() {
		f.Rested(d, worker)
	}
}

// serveNext asks for a task of the next reservation, if a slot is free.
func (f *WorkerPool) serveNext(d *scheduler.Env, worker int32) {
	w := &f.Workers[worker]
	if w.Free == 0 || len(w.Queue) == 0 {
		return
	}
	pos := 0
	if f.Order != FIFO {
		pos = f.chooseProbe(d, w)
	}
	p := w.Queue[pos]
	j := d.Job(p.Job)
	w.Free--
	if j.Long {
		w.LongRuns++
	}
	to := f.Of(j)
	d.Send(scheduler.Msg{Kind: KindAsk, Role: to.Role, To: to.ID, From: worker, Job: p.Job, Offer: p.Number})
	if f.Order != StickyIn || j.Long {
		w.dropProbe(d, pos)
	}
}

func (w *Worker) find(number int32) int {
	return slices.IndexFunc(w.Queue, func(p Probe) bool { return p.Number == number })
}

// setLeft sets how many tasks the job of the i-th reservation has left; -1: there is no such reservation.
func (w *Worker) setLeft(d *scheduler.Env, i int, left int32) {
	switch {
	case i < 0:
	case left == 0:
		w.dropProbe(d, i)
	default:
		w.Queue[i].Left = left
	}
}

// wasBypassed notes that a task of a job goes before the reservations that came before the job's.
func (w *Worker) wasBypassed(j scheduler.Job, number int32, order Order) {
	if order == StickyIn && j.Long {
		return
	}
	for i := range w.Queue {
		if p := &w.Queue[i]; p.Number < number {
			p.Bypassed += j.Estimate
		}
	}
}

// dropProbe removes a reservation from the queue, which keeps its order.
func (w *Worker) dropProbe(d *scheduler.Env, i int) {
	if d.Job(w.Queue[i].Job).Long {
		w.LongQueued--
	}
	if i == 0 && len(w.Queue) < cap(w.Queue) {
		w.Queue = w.Queue[1:]
		return
	}
	w.Queue = append(w.Queue[:i], w.Queue[i+1:]...)
}

const never = scheduler.Time(1) << 62

// chooseProbe returns the index of the reservation with least remaining work that bypasses no other beyond the cap. A
// long job's reservation at the head is next with StickyIn.
func (f *WorkerPool) chooseProbe(d *scheduler.Env, w *Worker) int {
	best, chosen, slack := never, 0, never
	for i := range w.Queue {
		p := &w.Queue[i]
		j := d.Job(p.Job)
		if f.Order == StickyIn && j.Long && i == 0 {
			return 0
		}
		left := scheduler.Time(p.Left) * j.Estimate
		if left < best && (j.Estimate < slack || (j.Estimate == slack && f.Order == StickyIn)) {
			best, chosen = left, i
		}
		if f.Cap > 0 && (!j.Long || f.Order == SRPT) {
			slack = min(slack, f.Cap*j.Estimate-p.Bypassed)
		}
	}
	return chosen
}
