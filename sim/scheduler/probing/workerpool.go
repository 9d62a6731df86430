// Package probing is the worker's and the buyer's side of late binding, which Sparrow, Hawk, Eagle and the central
// queues share: a worker keeps a queue of reservations (probes), and when a slot is free it asks the next
// reservation's buyer for a task. Sparrow (SOSP'13) section 3.4; Hawk (ATC'15) section 3; Eagle (SoCC'16) sections 3
// and 4.
//
// The get-task round trip is one tick: the task is bound when the worker asks, and begins one round trip later. The
// authors' own simulators do the same.
package probing

import "github.com/soukhq/souk/sim/scheduler"

// The kinds of messages. Architectures that add their own begin at KindOwn.
const (
	KindProbe  scheduler.Kind = iota // a reservation for Job arrives at worker To
	KindFree                         // the buyer had no task for worker To: its slot is free again
	KindLess                         // workers learn that Job's remaining work falls by one estimate
	KindStolen                       // a reservation that To stole arrives
	KindCancel                       // Job needs no more reservations: worker To forgets its own
	KindOwn
)

// Order is how a worker chooses among its reservations.
type Order uint8

// The orders.
const (
	FIFO     Order = iota
	SRPT           // least remaining estimated work, bypassing no reservation by more than Cap estimates
	StickyIn       // SRPT, and a short job's reservation stays until the job has no tasks: as in Eagle
)

// Probe is a reservation in a worker's queue.
type Probe struct {
	Job      int32
	Bypassed scheduler.Time // estimated work that has overtaken it
}

// Worker is one worker's queue.
type Worker struct {
	Queue      []Probe
	Free       int32 // free slots
	LongQueued int32
	RunsLong   bool
	LongSince  scheduler.Time // start of its running long task; -1: none runs
	LongTakes  scheduler.Time // estimate of that task
}

// HasLong reports whether the worker runs or has queued a task of a long job.
func (w *Worker) HasLong() bool { return w.RunsLong || w.LongQueued > 0 }

// WorkerPool is all workers. Idle, if set, is called when a worker has a free slot and an empty queue. Begun, if set,
// is called when a worker gets a task.
type WorkerPool struct {
	Workers []Worker
	Order   Order
	Cap     scheduler.Time // how many times its own estimate a reservation may be bypassed; 0: no bound
	Lag     bool           // workers learn remaining work a round trip late, as in Eagle's simulator
	Timed   bool           // LongSince is also kept for short tasks
	Cancel  bool           // reservations of a job without tasks are cancelled
	Idle    func(d *scheduler.Env, worker int32)
	left    []scheduler.Time // with Lag: remaining estimated work by job; -1: all tasks are given out
	where   [][]int32        // with Cancel: workers probed, by job
}

// NewWorkerPool makes the workers of a fleet, with all slots free.
func NewWorkerPool(fleet scheduler.Fleet) *WorkerPool {
	f := &WorkerPool{Workers: make([]Worker, fleet.Workers)}
	for i := range f.Workers {
		f.Workers[i].Free = int32(max(1, fleet.Slots))
		f.Workers[i].LongSince = -1
	}
	return f
}

// Open registers a job before its probes are sent.
func (f *WorkerPool) Open(d *scheduler.Env, job int32) {
	if f.Lag {
		for int(job) >= len(f.left) {
			f.left = append(f.left, 0)
		}
		f.left[job] = d.Jobs[job].Work()
	}
}

// Send sends a reservation for a job to a worker, with more extra delay.
func (f *WorkerPool) Send(d *scheduler.Env, worker, job int32, more scheduler.Time) {
	d.Messages++
	d.Outs = append(d.Outs, scheduler.Out{Msg: scheduler.Msg{Kind: KindProbe, To: worker, Job: job}, After: more})
	if f.Cancel {
		for int(job) >= len(f.where) {
			f.where = append(f.where, nil)
		}
		f.where[job] = append(f.where[job], worker)
	}
}

// Deliver handles the kinds below KindOwn.
func (f *WorkerPool) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case KindProbe, KindStolen:
		f.Add(d, m.To, m.Job)
	case KindFree:
		f.Freed(d, m.To)
	case KindLess:
		j := &d.Jobs[m.Job]
		if f.left[m.Job] -= j.Estimate; j.Left() == 0 {
			f.left[m.Job] = -1
		}
	case KindCancel:
		w := &f.Workers[m.To]
		for i := range w.Queue {
			if w.Queue[i].Job == m.Job {
				w.removeAt(i)
				break
			}
		}
	}
}

// Add appends a reservation to a worker's queue.
func (f *WorkerPool) Add(d *scheduler.Env, worker, job int32) {
	w := &f.Workers[worker]
	w.Queue = append(w.Queue, Probe{Job: job})
	if d.Jobs[job].Long {
		w.LongQueued++
	}
	if w.Free > 0 {
		f.serveNext(d, worker)
	}
}

// Freed frees a slot.
func (f *WorkerPool) Freed(d *scheduler.Env, worker int32) {
	w := &f.Workers[worker]
	w.Free++
	w.RunsLong = false
	if len(w.Queue) > 0 {
		f.serveNext(d, worker)
	} else if f.Idle != nil {
		f.Idle(d, worker)
	}
}

// Ended implements scheduler.Strategy for architectures that need no more.
func (f *WorkerPool) Ended(d *scheduler.Env, worker, _, _ int32) {
	f.Workers[worker].LongSince = -1
	f.Freed(d, worker)
}

// serveNext asks the next reservation's buyer for a task, and runs it if there is one.
func (f *WorkerPool) serveNext(d *scheduler.Env, worker int32) {
	w := &f.Workers[worker]
	w.Free--
	pos := 0
	if f.Order != FIFO {
		if pos = f.chooseReservation(d, w); pos < 0 {
			d.Note(0, scheduler.Msg{Kind: KindFree, To: worker})
			return
		}
	}
	job := w.Queue[pos].Job
	j := &d.Jobs[job]
	if j.Long {
		w.LongQueued--
	}
	w.RunsLong = j.Long
	w.LongSince = -1
	if j.Long || f.Timed {
		w.LongSince, w.LongTakes = d.Now, j.Estimate
	}
	trip := 2 * d.Delay
	d.Messages += 2
	given := j.Left() > 0
	if !given {
		d.Idled++
		d.Note(trip, scheduler.Msg{Kind: KindFree, To: worker})
	} else {
		d.Run(worker, job, j.Next, trip)
		j.Next++
		if f.Lag {
			d.Note(trip, scheduler.Msg{Kind: KindLess, Job: job})
		}
		if f.Cancel && j.Left() == 0 {
			f.cancelProbes(d, job)
		}
	}
	if f.Order != FIFO && given && (f.Order == SRPT || !j.Long) {
		for i := range pos {
			w.Queue[i].Bypassed += j.Estimate
		}
	}
	if f.Order != StickyIn || !given || j.Long {
		w.removeAt(pos)
	}
}

func (f *WorkerPool) cancelProbes(d *scheduler.Env, job int32) {
	for _, w := range f.where[job] {
		d.Messages++
		d.Outs = append(d.Outs, scheduler.Out{Msg: scheduler.Msg{Kind: KindCancel, To: w, Job: job}, After: d.Delay})
	}
	f.where[job] = nil
}

// removeAt removes a reservation from the queue, which keeps its order.
func (w *Worker) removeAt(i int) {
	if i == 0 && len(w.Queue) < cap(w.Queue) {
		w.Queue = w.Queue[1:]
		return
	}
	w.Queue = append(w.Queue[:i], w.Queue[i+1:]...)
}

func (f *WorkerPool) remainingWork(d *scheduler.Env, job int32) scheduler.Time {
	if f.Lag {
		return f.left[job]
	}
	if d.Jobs[job].Left() == 0 {
		return -1
	}
	return d.Jobs[job].Work()
}

const never = scheduler.Time(1) << 62

// chooseReservation returns the index of the reservation with least remaining work that bypasses no other beyond the
// cap; -1 if the queue has become empty. A long job's reservation at the head is always next. With StickyIn, it drops
// reservations of jobs without tasks left.
func (f *WorkerPool) chooseReservation(d *scheduler.Env, w *Worker) int {
	best, chosen, slack := never, -1, never
	for i := 0; i < len(w.Queue); {
		job := w.Queue[i].Job
		left := f.remainingWork(d, job)
		j := &d.Jobs[job]
		if f.Order == StickyIn && left == -1 {
			if j.Long {
				w.LongQueued--
			}
			w.removeAt(i)
			continue
		}
		if f.Order == StickyIn && j.Long && i == 0 {
			return 0
		}
		if left < best && (j.Estimate < slack || (j.Estimate == slack && f.Order == StickyIn)) {
			best, chosen = left, i
		}
		if f.Cap > 0 && (!j.Long || f.Order == SRPT) {
			slack = min(slack, f.Cap*j.Estimate-w.Queue[i].Bypassed)
		}
		i++
	}
	return chosen
}
