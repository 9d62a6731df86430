// Package apollo is Apollo-like (Boutin et al., OSDI'14): every job's scheduler knows a matrix of the workers' expected
// waiting times, which is published now and then (section 3.2); it puts each task into the queue at the worker where it
// will end first (3.3); a worker that finds its wait longer than was believed says so, and the task is queued a second
// time elsewhere, the first copy whose turn comes being the one that runs (3.4); and what a job has beyond its part of
// the cluster is opportunistic: it goes to random workers that seem idle, runs there when no regular task waits, and
// becomes regular when a regular task of the job has ended (3.5). A job's part, its tokens, is an equal one here.
//
// Apollo's estimates of input and run time have no counterpart here: all workers are alike, so the least wait decides.
package apollo

import (
	"cmp"
	"math"
	"slices"

	"github.com/soukhq/souk/sim/scheduler"
)

// Options are Apollo's parameters.
type Options struct {
	Publish scheduler.Time // between two publications of the matrix; 0: 1 s
	// how much longer than believed a wait must be before a task is queued again elsewhere; 0: 1 s
	Late scheduler.Time
}

type task struct{ job, n int32 }

// due is a queued regular task and its believed start.
type due struct {
	task
	at scheduler.Time
}

type worker struct {
	regular       []due
	opportunistic []task // opportunistic
	free          int32
	queued        scheduler.Time // estimated work in regular
	runs          scheduler.Time // sum of the estimates of running tasks
	since         scheduler.Time // sum of their start times
	busy          int32
}

// Apollo is the architecture.
type Apollo struct {
	opt           Options
	workers       []worker
	seen          []scheduler.Time // the matrix as published, plus what was placed since
	heap          []place
	open          int // number of open jobs
	publishing    bool
	slots         int
	idle          int32 // workers that seem idle, approximately
	jobs          map[int32]*job
	order         []int32       // jobs with tasks to place, in order of arrival
	twice         map[task]bool // tasks that are or may become queued twice; true: one copy runs
	opportunistic map[task]bool // running opportunistic tasks
}

// job is a scheduler's state of an open job.
type job struct {
	left    int32  // tasks that have not ended, as its scheduler knows
	next    int32  // earlier tasks have been placed
	regular int32  // number placed and not ended
	spares  []hint // opportunistic tasks, and where they were sent
}

type hint struct{ n, worker int32 }

type place struct {
	at     scheduler.Time
	worker int32
}

const (
	kindTask          scheduler.Kind = iota // regular task N of Job arrives at worker To, with believed wait X
	kindOpportunistic                       // opportunistic task N of Job arrives at worker To
	kindUpgrade                             // an opportunistic task becomes regular
	kindLate                                // the scheduler of Job learns that task N waits for X at worker From
	kindFree                                // a slot of worker To is free again
	kindEnded                               // the scheduler of Job learns that task N has ended
	kindPublish
)

// New makes Apollo for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Apollo {
	opt.Publish = cmp.Or(opt.Publish, scheduler.Second)
	opt.Late = cmp.Or(opt.Late, scheduler.Second)
	a := &Apollo{opt: opt, workers: make([]worker, fleet.Workers), seen: make([]scheduler.Time, fleet.Workers),
		slots: fleet.Workers * max(1, fleet.Slots), twice: map[task]bool{}, jobs: map[int32]*job{},
		opportunistic: map[task]bool{}}
	for i := range a.workers {
		a.workers[i].free = int32(max(1, fleet.Slots))
	}
	return a
}

// expectedWait returns how long a worker expects a new regular task to wait.
func (w *worker) expectedWait(now scheduler.Time) scheduler.Time {
	if w.free > 0 {
		return 0
	}
	rest := max(1, w.runs-(scheduler.Time(w.busy)*now-w.since))
	return max(1, (w.queued+rest)/scheduler.Time(max(1, w.busy)))
}

func (a *Apollo) publishWaits(d *scheduler.Env) {
	a.idle = 0
	for i := range a.workers {
		if a.seen[i] = a.workers[i].expectedWait(d.Now); a.seen[i] == 0 {
			a.idle++
		}
		a.reportOverdue(d, int32(i))
	}
	d.Messages += int64(len(a.workers))
	kept := a.order[:0]
	for _, id := range a.order {
		if j := a.jobs[id]; j != nil && j.next < d.Jobs[id].Tasks {
			kept = append(kept, id)
			a.dispatchTasks(d, id)
		}
	}
	a.order = kept
}

// reportOverdue has a worker report the first task in its queue if it should long have started.
func (a *Apollo) reportOverdue(d *scheduler.Env, id int32) {
	w := &a.workers[id]
	if len(w.regular) == 0 || d.Now < w.regular[0].at+a.opt.Late {
		return
	}
	if t := w.regular[0].task; !a.isKnown(t) {
		a.handleLate(d, id, t, w.expectedWait(d.Now)-w.queued)
	}
}

func (a *Apollo) isKnown(t task) bool {
	_, copied := a.twice[t]
	return copied
}

func (a *Apollo) handleLate(d *scheduler.Env, id int32, t task, wait scheduler.Time) {
	a.twice[t] = false
	d.Send(scheduler.Msg{Kind: kindLate, From: id, Job: t.job, Task: t.n, Time: max(wait, d.Jobs[t.job].Estimate)})
}

// Arrive implements scheduler.Strategy.
func (a *Apollo) Arrive(d *scheduler.Env, id int32) {
	if a.open++; !a.publishing {
		a.publishing = true
		a.publishWaits(d)
		d.Note(a.opt.Publish, scheduler.Msg{Kind: kindPublish})
	}
	a.order = append(a.order, id)
	a.jobs[id] = &job{left: d.Jobs[id].Tasks}
	d.Jobs[id].Next = d.Jobs[id].Tasks
	a.dispatchTasks(d, id)
}

// dispatchTasks places the tasks that the job may place now: regular ones up to its tokens, beginning with its
// opportunistic ones, and opportunistic ones if a bounded number of draws finds workers that seem idle.
func (a *Apollo) dispatchTasks(d *scheduler.Env, id int32) {
	j, tasks := a.jobs[id], d.Jobs[id].Tasks
	room := int32(max(1, a.slots/a.open)) - j.regular
	for ; room > 0 && len(j.spares) > 0; room-- {
		d.Send(scheduler.Msg{Kind: kindUpgrade, To: j.spares[0].worker, Job: id, Task: j.spares[0].n})
		j.spares = j.spares[1:]
	}
	if n := min(room, tasks-j.next); n > 0 {
		a.placeTasks(d, id, j.next, j.next+n)
		j.next += n
		j.regular += n
	}
	for draws := 4 * min(tasks-j.next, a.idle); draws > 0 && j.next < tasks && a.idle > 0; draws-- {
		w := d.RNG.Int32N(int32(len(a.workers)))
		if a.seen[w] > 0 {
			continue
		}
		a.idle--
		a.seen[w] = max(1, d.Jobs[id].Estimate)
		j.spares = append(j.spares, hint{j.next, w})
		d.Send(scheduler.Msg{Kind: kindOpportunistic, To: w, Job: id, Task: j.next})
		j.next++
	}
}

// placeTasks queues tasks from to end-1 at the workers where they are believed to start first. Ties are broken at
// random, so that schedulers with one matrix do not all choose the same worker.
func (a *Apollo) placeTasks(d *scheduler.Env, job, from, end int32) {
	j := &d.Jobs[job]
	slots := scheduler.Time(a.slots / len(a.workers))
	a.heap = a.heap[:0]
	turn := d.RNG.IntN(len(a.workers))
	for k := range a.workers {
		w := (k + turn) % len(a.workers)
		a.heap = append(a.heap, place{a.seen[w], int32(w)})
	}
	for i := len(a.heap)/2 - 1; i >= 0; i-- {
		siftDown(a.heap, i)
	}
	for n := from; n < end; n++ {
		p := &a.heap[0]
		d.Send(scheduler.Msg{Kind: kindTask, To: p.worker, Job: job, Task: n, Time: p.at})
		p.at += max(1, j.Estimate/slots)
		a.seen[p.worker] = p.at
		siftDown(a.heap, 0)
	}
}

func siftDown(h []place, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].at < h[c].at {
			c++
		}
		if h[i].at <= h[c].at {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// Deliver implements scheduler.Strategy.
func (a *Apollo) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case kindTask:
		w := &a.workers[m.To]
		t := task{m.Job, m.Task}
		if real := w.expectedWait(d.Now); !m.Flag && !a.isKnown(t) && real > m.Time+a.opt.Late {
			a.handleLate(d, m.To, t, real)
		}
		a.queueAt(d, m.To, t, m.Time)
	case kindOpportunistic:
		w := &a.workers[m.To]
		w.opportunistic = append(w.opportunistic, task{m.Job, m.Task})
		a.serveNext(d, m.To)
	case kindUpgrade:
		w := &a.workers[m.To]
		if i := slices.Index(w.opportunistic, task{m.Job, m.Task}); i >= 0 {
			w.opportunistic = slices.Delete(w.opportunistic, i, i+1)
			a.jobs[m.Job].regular++
			a.queueAt(d, m.To, task{m.Job, m.Task}, 0)
		}
	case kindLate:
		a.queueAgain(d, m)
	case kindFree:
		a.workers[m.To].free++
		a.serveNext(d, m.To)
	case kindEnded:
		a.taskEnded(d, m.Job, m.Task)
	case kindPublish:
		a.publishWaits(d)
		if a.publishing = a.open > 0; a.publishing {
			d.Note(a.opt.Publish, m)
		}
	}
}

func (a *Apollo) queueAt(d *scheduler.Env, w int32, t task, wait scheduler.Time) {
	a.workers[w].regular = append(a.workers[w].regular, due{t, d.Now + wait})
	a.workers[w].queued += d.Jobs[t.job].Estimate
	a.serveNext(d, w)
}

// queueAgain queues a task a second time, at a worker believed to be free sooner, if there is one. It examines a
// bounded number of workers.
func (a *Apollo) queueAgain(d *scheduler.Env, m scheduler.Msg) {
	t := task{m.Job, m.Task}
	if a.twice[t] { // it has started meanwhile
		delete(a.twice, t)
		return
	}
	best, least := int32(-1), scheduler.Time(math.MaxInt64)
	for range min(64, len(a.workers)) {
		if w := d.RNG.Int32N(int32(len(a.workers))); w != m.From && a.seen[w] < least {
			best, least = w, a.seen[w]
		}
	}
	if best < 0 || least+a.opt.Late >= m.Time {
		delete(a.twice, t)
		return
	}
	a.seen[best] += d.Jobs[m.Job].Estimate
	d.Send(scheduler.Msg{Kind: kindTask, To: best, Job: m.Job, Task: m.Task, Time: least, Flag: true})
}

// serveNext runs the next task: regular ones in order, or an opportunistic one if there is none.
func (a *Apollo) serveNext(d *scheduler.Env, id int32) {
	w := &a.workers[id]
	for w.free > 0 {
		var t task
		switch {
		case len(w.regular) > 0:
			t, w.regular = w.regular[0].task, w.regular[1:]
			w.queued -= d.Jobs[t.job].Estimate
		case len(w.opportunistic) > 0:
			i := d.RNG.IntN(len(w.opportunistic))
			t = w.opportunistic[i]
			w.opportunistic = slices.Delete(w.opportunistic, i, i+1)
			a.opportunistic[t] = true
		default:
			return
		}
		w.free--
		after := scheduler.Time(0)
		if ran, copied := a.twice[t]; copied { // ask whether the other copy runs
			after = 2 * d.Delay
			d.Messages += 2
			if ran {
				delete(a.twice, t)
				d.Idled++
				d.Note(after, scheduler.Msg{Kind: kindFree, To: id})
				continue
			}
			a.twice[t] = true
		}
		w.busy++
		w.runs += d.Jobs[t.job].Estimate
		w.since += d.Now
		d.Run(id, t.job, t.n, after)
	}
}

// Ended implements scheduler.Strategy: the job's scheduler learns of it, and places further tasks.
func (a *Apollo) Ended(d *scheduler.Env, worker, id, n int32) {
	w := &a.workers[worker]
	// only sums are kept of running tasks: subtract their mean
	w.runs -= w.runs / scheduler.Time(w.busy)
	w.since -= w.since / scheduler.Time(w.busy)
	if w.busy--; w.busy == 0 {
		w.runs, w.since = 0, 0
	}
	w.free++
	a.serveNext(d, worker)
	d.Send(scheduler.Msg{Kind: kindEnded, To: worker, Job: id, Task: n})
}

// taskEnded is the job's scheduler's part of Ended.
func (a *Apollo) taskEnded(d *scheduler.Env, id, n int32) {
	j := a.jobs[id]
	if t := (task{id, n}); a.opportunistic[t] {
		delete(a.opportunistic, t)
		j.spares = slices.DeleteFunc(j.spares, func(h hint) bool { return h.n == n })
	} else {
		j.regular--
	}
	if j.left--; j.left == 0 {
		a.open--
		delete(a.jobs, id)
		return
	}
	a.dispatchTasks(d, id)
}
