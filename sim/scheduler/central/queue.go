package central

import "github.com/soukhq/souk/sim/scheduler"

// Order is the key of a job: the lowest goes first. It may fall as tasks of the job are given out, and must not
// otherwise change.
type Order func(j *scheduler.Job) scheduler.Time

// Arrival orders jobs first come, first served.
func Arrival(j *scheduler.Job) scheduler.Time { return j.Submitted }

// Shortest orders jobs by the estimated work of the whole job: SJF.
func Shortest(j *scheduler.Job) scheduler.Time { return scheduler.Time(j.Tasks) * j.Estimate }

// Remaining orders jobs by remaining estimated work.
func Remaining(j *scheduler.Job) scheduler.Time { return j.Work() }

// Queue is one queue for all workers with late binding: a worker gets a job's task when it is free. Without delay and
// with exact estimates it is the bound that no market without preemption is expected to beat.
type Queue struct {
	order   Order
	backlog [2]Backlog // of short jobs, and of long ones
	idle    [2][]int32 // reserved workers, and the others
	reserve int32
}

const kindFree scheduler.Kind = 0 // worker To is free

// NewQueue makes the queue of a fleet.
func NewQueue(fleet scheduler.Fleet, order Order) *Queue {
	q := &Queue{order: order, reserve: int32(fleet.Reserve)}
	for w := range int32(fleet.Workers) {
		for range max(1, fleet.Slots) {
			q.idle[q.sideOf(w)] = append(q.idle[q.sideOf(w)], w)
		}
	}
	return q
}

func (q *Queue) sideOf(worker int32) int {
	if worker < q.reserve {
		return 0
	}
	return 1
}

// Arrive implements scheduler.Strategy.
func (q *Queue) Arrive(d *scheduler.Env, job int32) {
	class := 0
	if d.Jobs[job].Long {
		class = 1
	}
	q.backlog[class].Add(job, q.order(&d.Jobs[job]))
	for side := range q.idle {
		for len(q.idle[side]) > 0 && q.giveTask(d, q.idle[side][len(q.idle[side])-1]) {
			q.idle[side] = q.idle[side][:len(q.idle[side])-1]
		}
	}
}

// giveTask gives a free worker the next task that it may run.
func (q *Queue) giveTask(d *scheduler.Env, worker int32) bool {
	b := &q.backlog[0]
	if long := &q.backlog[1]; worker >= q.reserve && (b.Len() == 0 || (long.Len() > 0 && long.Key() < b.Key())) {
		b = long
	}
	if b.Len() == 0 {
		return false
	}
	job := b.Job()
	j := &d.Jobs[job]
	d.Messages++
	d.Run(worker, job, j.Next, d.Delay)
	if j.Next++; j.Left() == 0 {
		b.Drop()
	} else {
		b.Fall(q.order(j))
	}
	return true
}

// Deliver implements scheduler.Strategy.
func (q *Queue) Deliver(d *scheduler.Env, m scheduler.Msg) {
	if !q.giveTask(d, m.To) {
		q.idle[q.sideOf(m.To)] = append(q.idle[q.sideOf(m.To)], m.To)
	}
}

// Ended implements scheduler.Strategy.
func (q *Queue) Ended(d *scheduler.Env, worker, _, _ int32) {
	if d.Delay > 0 {
		d.Send(scheduler.Msg{Kind: kindFree, To: worker})
	} else {
		q.Deliver(d, scheduler.Msg{To: worker})
	}
}

// Backlog is a heap of jobs by key, then by job number.
type Backlog struct{ heap []wait }

// Len returns the number of jobs.
func (b *Backlog) Len() int { return len(b.heap) }

// Job returns the job with the lowest key.
func (b *Backlog) Job() int32 { return b.heap[0].worker }

// Key returns the lowest key.
func (b *Backlog) Key() scheduler.Time { return b.heap[0].at }

// Add adds a job.
func (b *Backlog) Add(job int32, key scheduler.Time) {
	b.heap = append(b.heap, wait{key, job})
	for i := len(b.heap) - 1; i > 0; {
		p := (i - 1) / 2
		if !b.heap[i].less(b.heap[p]) {
			return
		}
		b.heap[i], b.heap[p] = b.heap[p], b.heap[i]
		i = p
	}
}

// Fall sets the key of the first job, which stays first or moves down.
func (b *Backlog) Fall(key scheduler.Time) {
	b.heap[0].at = key
	siftDown(b.heap, 0)
}

// Drop removes the first job.
func (b *Backlog) Drop() {
	n := len(b.heap) - 1
	b.heap[0] = b.heap[n]
	b.heap = b.heap[:n]
	siftDown(b.heap, 0)
}
