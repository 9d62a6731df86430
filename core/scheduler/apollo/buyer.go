package apollo

import (
	"math"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
)

// buyer is the state of the scheduler of a buyer's jobs.
type buyer struct {
	matrix []seen         // by worker; nil before the buyer's first job or publication
	idle   int32          // number of workers that seem idle
	open   int32          // number of open jobs, as published, and its own since
	jobs   map[int32]*job // its own open jobs
	order  []int32        // those with tasks to place, in order of arrival
	tried  scheduler.Time // when it last tried to place them
	noted  bool           // the next try is noted
	heap   []place
}

// seen is what a buyer knows of a worker.
type seen struct {
	load                  // as published
	placed scheduler.Time // what this buyer has placed there since
}

func (s *seen) expectedWait(now scheduler.Time) scheduler.Time {
	return s.load.expectedWait(now) + s.placed
}

func (s *seen) isIdle() bool { return s.Free > 0 && s.placed == 0 }

// job is a buyer's state of an open job.
type job struct {
	left    int32          // tasks that have not ended
	next    int32          // earlier tasks have been placed
	regular int32          // number placed and not ended
	spares  []spare        // opportunistic tasks, and where they were sent
	late    map[int32]bool // tasks that were reported late and have a second copy, or run; true: one copy runs
}

type spare struct{ n, worker int32 }

type place struct {
	at     scheduler.Time
	worker int32
}

func isSooner(a, b *place) bool { return a.at < b.at }

// buyerOf returns the buyer whose step it is.
func (a *Apollo) buyerOf(d *scheduler.Env) *buyer {
	b := &a.buyers[d.Self.ID]
	if b.matrix == nil {
		b.jobs, b.matrix = map[int32]*job{}, make([]seen, len(a.workers))
		for w := range b.matrix {
			if b.matrix[w].Free = a.free; a.free > 0 {
				b.idle++
			}
		}
	}
	return b
}

// Arrive implements scheduler.Strategy.
func (a *Apollo) Arrive(d *scheduler.Env, id int32) {
	b := a.buyerOf(d)
	d.Send(scheduler.Msg{Kind: kindOpened, Role: scheduler.Center, From: d.Self.ID})
	b.jobs[id] = &job{left: d.Job(id).Tasks, late: map[int32]bool{}}
	b.open++
	if a.dispatchTasks(d, b, id); b.jobs[id].next < d.Job(id).Tasks {
		b.order = append(b.order, id)
		a.noteTry(d, b)
	}
}

func (a *Apollo) deliverToBuyer(d *scheduler.Env, m scheduler.Msg) {
	b := a.buyerOf(d)
	switch m.Kind {
	case kindLate:
		a.queueAgain(d, b, m)
	case kindMayRun:
		answer := kindDrop
		if j := b.jobs[m.Job]; j != nil && !j.late[m.Task] {
			j.late[m.Task] = true
			answer = kindRun
		}
		d.Send(scheduler.Msg{Kind: answer, Role: scheduler.Worker, To: m.From, From: m.To, Job: m.Job, Task: m.Task})
	case kindEnded:
		a.endTask(d, b, m)
	case kindPublish:
		b.readPublication(m.Payload.(*publication))
		a.dispatchAll(d, b)
	case kindTry:
		if b.noted = false; d.Now >= b.tried+a.opt.Publish {
			a.dispatchAll(d, b)
		}
		a.noteTry(d, b)
	}
}

func (b *buyer) readPublication(p *publication) {
	b.open = p.Open
	for _, r := range p.Changes {
		s := &b.matrix[r.Worker]
		if s.isIdle() {
			b.idle--
		}
		if s.load, s.placed = r.load, 0; s.isIdle() {
			b.idle++
		}
	}
}

// placeAt records that work was placed at a worker.
func (b *buyer) placeAt(w int32, work scheduler.Time) {
	if b.matrix[w].isIdle() {
		b.idle--
	}
	b.matrix[w].placed += max(1, work)
}

// dispatchAll has all jobs with tasks left place them.
func (a *Apollo) dispatchAll(d *scheduler.Env, b *buyer) {
	b.tried = d.Now
	kept := b.order[:0]
	for _, id := range b.order {
		j := b.jobs[id]
		if j == nil {
			continue
		}
		if a.dispatchTasks(d, b, id); j.next < d.Job(id).Tasks {
			kept = append(kept, id)
		}
	}
	b.order = kept
	a.noteTry(d, b)
}

// noteTry has the buyer try again after a period in which nothing was published, as its draws may have missed the idle
// workers.
func (a *Apollo) noteTry(d *scheduler.Env, b *buyer) {
	if !b.noted && b.idle > 0 && len(b.order) > 0 {
		b.noted = true
		d.Note(a.opt.Publish, scheduler.Msg{Kind: kindTry})
	}
}

// dispatchTasks places the tasks that the job may place now: regular ones up to its tokens, beginning with its
// opportunistic ones, and opportunistic ones if a bounded number of draws finds workers that seem idle. More draws
// would fill the last idle workers with opportunistic tasks, and the regular ones of other jobs would wait for them.
func (a *Apollo) dispatchTasks(d *scheduler.Env, b *buyer, id int32) {
	j, of := b.jobs[id], d.Job(id)
	// its own jobs may be missing in the published number
	open := max(b.open, int32(len(b.jobs)))
	room := max(1, int32(len(a.workers))*a.slots/open) - j.regular
	for ; room > 0 && len(j.spares) > 0; room-- {
		t := j.spares[0]
		j.spares = j.spares[1:]
		d.Send(scheduler.Msg{Kind: kindUpgrade, Role: scheduler.Worker, To: t.worker, From: d.Self.ID, Job: id,
			Task: t.n})
		j.regular++
	}
	if n := min(room, of.Tasks-j.next); n > 0 {
		a.placeTasks(d, b, id, j.next, j.next+n)
		j.next += n
		j.regular += n
	}
	for draws := 4 * min(of.Tasks-j.next, b.idle); draws > 0 && j.next < of.Tasks && b.idle > 0; draws-- {
		w := d.RNG.Int32N(int32(len(b.matrix)))
		if !b.matrix[w].isIdle() {
			continue
		}
		b.placeAt(w, of.Estimate)
		j.spares = append(j.spares, spare{j.next, w})
		d.Send(scheduler.Msg{Kind: kindOpportunistic, Role: scheduler.Worker, To: w, From: d.Self.ID, Job: id,
			Task: j.next, Gives: true})
		j.next++
	}
}

// placeTasks queues tasks from to end-1 at the workers where they are believed to start first. Ties are broken at
// random, so that schedulers with one matrix do not all choose the same worker.
func (a *Apollo) placeTasks(d *scheduler.Env, b *buyer, job, from, end int32) {
	each := d.Job(job).Estimate / scheduler.Time(a.slots)
	b.heap = b.heap[:0]
	turn := d.RNG.IntN(len(b.matrix))
	for k := range b.matrix {
		w := k + turn
		if w >= len(b.matrix) {
			w -= len(b.matrix)
		}
		b.heap = append(b.heap, place{b.matrix[w].expectedWait(d.Now), int32(w)})
	}
	scheduler.Heapify(b.heap, isSooner)
	for n := from; n < end; n++ {
		p := &b.heap[0]
		d.Send(scheduler.Msg{Kind: kindTask, Role: scheduler.Worker, To: p.worker, From: d.Self.ID, Job: job, Task: n,
			Time: p.at, Gives: true})
		b.placeAt(p.worker, each)
		p.at += max(1, each)
		scheduler.SiftDown(b.heap, 0, isSooner)
	}
}

// queueAgain queues a late task a second time, at a worker believed to be free sooner, if there is one. It examines a
// bounded number of workers, from a random one on.
func (a *Apollo) queueAgain(d *scheduler.Env, b *buyer, m scheduler.Msg) {
	j := b.jobs[m.Job]
	if j == nil {
		return
	}
	if _, copied := j.late[m.Task]; copied {
		return
	}
	best, least := int32(-1), scheduler.Time(math.MaxInt64)
	count := len(b.matrix)
	turn := d.RNG.IntN(count)
	for k := range min(64, count) {
		w := int32((turn + k) % count)
		if at := b.matrix[w].expectedWait(d.Now); w != m.From && at < least {
			best, least = w, at
		}
	}
	if best < 0 || least+a.opt.Late >= m.Time {
		return
	}
	j.late[m.Task] = false
	b.placeAt(best, d.Job(m.Job).Estimate)
	d.Send(scheduler.Msg{Kind: kindTask, Role: scheduler.Worker, To: best, From: m.To, Job: m.Job, Task: m.Task,
		Time: least, Flag: true, Gives: true})
}

// endTask takes note of a task's end, and places further tasks.
func (a *Apollo) endTask(d *scheduler.Env, b *buyer, m scheduler.Msg) {
	j := b.jobs[m.Job]
	if i := slices.IndexFunc(j.spares, func(s spare) bool { return s.n == m.Task }); i >= 0 {
		j.spares = slices.Delete(j.spares, i, i+1)
	} else {
		j.regular--
	}
	if j.left--; j.left == 0 {
		b.open--
		delete(b.jobs, m.Job)
		d.Send(scheduler.Msg{Kind: kindClosed, Role: scheduler.Center, From: m.To})
		return
	}
	a.dispatchTasks(d, b, m.Job)
}
