package central

import "github.com/soukhq/souk/core/scheduler"

// Order returns the key of a job; the job with the lowest goes first. left is how many of its tasks are not given out:
// as that falls, so may the key.
type Order func(j scheduler.Job, left int32) scheduler.Time

// Arrival orders jobs first come, first served.
func Arrival(j scheduler.Job, _ int32) scheduler.Time { return j.Submitted }

// Shortest orders jobs by the estimated work of the whole job: SJF.
func Shortest(j scheduler.Job, _ int32) scheduler.Time { return scheduler.Time(j.Tasks) * j.Estimate }

// Remaining orders jobs by remaining estimated work.
func Remaining(j scheduler.Job, left int32) scheduler.Time { return scheduler.Time(left) * j.Estimate }

// Queue is one queue for all workers with late binding: a worker gets a job's task when it is free. Without delay and
// with exact estimates it is the bound that no market without preemption is expected to beat.
type Queue struct {
	order   Order
	workers int
	backlog [2]Backlog      // of short jobs, and of long ones
	next    map[int32]int32 // the next task of each job in backlog
	idle    [2][]int32      // reserved workers, and the others
	reserve int32
}

const (
	kindFree scheduler.Kind = iota // to the center: a slot of worker From is free
	kindTask                       // to a worker: it runs Task of Job
)

// NewQueue makes the queue of a fleet.
func NewQueue(fleet scheduler.Fleet, order Order) *Queue {
	q := &Queue{order: order, workers: fleet.Workers, next: map[int32]int32{}, reserve: int32(fleet.Reserve)}
	for w := range int32(fleet.Workers) {
		for range fleet.FreeSlots() {
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

// Parties implements scheduler.Strategy.
func (q *Queue) Parties() scheduler.Parties { return scheduler.Parties{Workers: q.workers, Centers: 1} }

// Entry implements scheduler.Strategy.
func (q *Queue) Entry(scheduler.Job) scheduler.Party { return scheduler.Party{Role: scheduler.Center} }

// Arrive implements scheduler.Strategy.
func (q *Queue) Arrive(d *scheduler.Env, job int32) {
	class, j := 0, d.Job(job)
	if j.Long {
		class = 1
	}
	q.backlog[class].Add(job, q.order(j, j.Tasks))
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
	j, n := d.Job(job), q.next[job]
	d.Send(scheduler.Msg{Kind: kindTask, To: worker, Job: job, Task: n})
	if left := j.Tasks - n - 1; left == 0 {
		delete(q.next, job)
		b.Drop()
	} else {
		q.next[job] = n + 1
		b.Fall(q.order(j, left))
	}
	return true
}

// Deliver implements scheduler.Strategy.
func (q *Queue) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch {
	case m.Kind == kindTask:
		d.Run(m.Job, m.Task)
	case !q.giveTask(d, m.From):
		q.idle[q.sideOf(m.From)] = append(q.idle[q.sideOf(m.From)], m.From)
	}
}

// Ended implements scheduler.Strategy.
func (q *Queue) Ended(d *scheduler.Env, _, _ int32) { q.Freed(d) }

// Freed implements scheduler.Strategy.
func (q *Queue) Freed(d *scheduler.Env) {
	d.Send(scheduler.Msg{Kind: kindFree, Role: scheduler.Center, From: d.Self.ID})
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
		if !isBefore(&b.heap[i], &b.heap[p]) {
			return
		}
		b.heap[i], b.heap[p] = b.heap[p], b.heap[i]
		i = p
	}
}

// Fall sets the key of the first job, which stays first or moves down.
func (b *Backlog) Fall(key scheduler.Time) {
	b.heap[0].at = key
	scheduler.SiftDown(b.heap, 0, isBefore)
}

// Drop removes the first job.
func (b *Backlog) Drop() {
	n := len(b.heap) - 1
	b.heap[0] = b.heap[n]
	b.heap = b.heap[:n]
	scheduler.SiftDown(b.heap, 0, isBefore)
}
