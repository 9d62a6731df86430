package auction

import "cmp"

// JobTasks is the unstarted tasks of one job. Task numbers from Next on have never been given out.
type JobTasks struct {
	Job       int32
	Tasks     int32
	Next      int32
	Long      bool
	Submitted int64 // microseconds
	Estimate  int64 // microseconds, of one task
	Behind    int32 // tasks that wait, and are not in the queue yet: they count in its work

	returned  []int32 // tasks given out and put back
	rank      [3]int64
	heapIndex [3]int // index in each of the queue's heaps; -1: not in it
}

// Left returns the number of tasks not given out.
func (l *JobTasks) Left() int32 { return l.Tasks - l.Next + int32(len(l.returned)) }

// TaskQueue is one buyer's unstarted tasks. It is for one goroutine; the zero TaskQueue is not ready, use NewTaskQueue.
type TaskQueue struct {
	rules Rules
	jobs  map[int32]*JobTasks
	heaps [3][]*JobTasks
	tasks int32
	work  int64       // estimated work of the long jobs in the queue
	seen  int64       // long jobs counted by Observe; halved now and then
	usual int64       // sum of those jobs' estimates of one task
	free  []*JobTasks // records for reuse
}

// NewTaskQueue returns an empty queue.
func NewTaskQueue(rules Rules) *TaskQueue {
	return &TaskQueue{rules: rules, jobs: map[int32]*JobTasks{}}
}

// LeftOf returns how many tasks of a job are in the queue.
func (q *TaskQueue) LeftOf(job int32) int32 {
	if j := q.jobs[job]; j != nil {
		return j.Left()
	}
	return 0
}

// Tasks returns the number of tasks in the queue.
func (q *TaskQueue) Tasks() int32 { return q.tasks }

// Bid returns the queue's best offers.
func (q *TaskQueue) Bid() Bid {
	bid := NoBid()
	bid.Seen, bid.Tasks = q.seen, q.usual
	if h := q.heaps[ByShort]; len(h) > 0 {
		bid.Short = h[0].rank[ByShort]
	}
	if h := q.heaps[ByLong]; len(h) > 0 {
		oldest := q.heaps[ByAge][0]
		bid.Long, bid.Age = h[0].rank[ByLong], oldest.rank[ByAge]
		bid.Least, bid.Left = int64(h[0].Left()), int64(oldest.Left())
		bid.Work, bid.Task, bid.Since = q.work, oldest.Estimate, oldest.Submitted-oldest.Estimate
	}
	return bid
}

// Add puts the tasks of a job in the queue.
func (q *TaskQueue) Add(l JobTasks) {
	if l.Left() == 0 {
		return
	}
	var j *JobTasks
	if n := len(q.free); n > 0 {
		j, q.free = q.free[n-1], q.free[:n-1]
		l.returned = append(j.returned[:0], l.returned...)
	} else {
		j = &JobTasks{}
	}
	*j = l
	j.heapIndex = [3]int{-1, -1, -1}
	q.jobs[l.Job] = j
	q.countTasks(j, j.Left())
	q.rerankJob(j)
}

// Return puts back a task that was given out. terms describes its job, which may no longer be in the queue.
func (q *TaskQueue) Return(terms JobTasks, task int32) {
	j := q.jobs[terms.Job]
	if j == nil {
		terms.Next, terms.returned = terms.Tasks, []int32{task}
		q.Add(terms)
		return
	}
	j.returned = append(j.returned, task)
	q.countTasks(j, 1)
	q.rerankJob(j)
}

// Take removes and returns the best task of the queue by an order that Choose returned.
func (q *TaskQueue) Take(order Order) (terms JobTasks, task int32, ok bool) {
	if len(q.heaps[order]) == 0 {
		return terms, 0, false
	}
	return q.takeFrom(q.heaps[order][0])
}

// Jobs calls visit for each job with tasks in the queue, in no order.
func (q *TaskQueue) Jobs(visit func(job int32)) {
	for n := range q.jobs {
		visit(n)
	}
}

// Best returns the job that Take would take a task of, if fits is true of it, and otherwise the job with the least
// remaining work of those that fits is true of; false: there is none. rank is the one by remaining work.
func (q *TaskQueue) Best(order Order, fits func(job int32, rank int64) bool) (job int32, ok bool) {
	if h := q.heaps[order]; len(h) > 0 && fits(h[0].Job, h[0].rankByWork()) {
		return h[0].Job, true
	}
	var best *JobTasks
	for _, j := range q.jobs {
		if (best == nil || j.isBefore(best)) && fits(j.Job, j.rankByWork()) {
			best = j
		}
	}
	if best == nil {
		return 0, false
	}
	return best.Job, true
}

// isBefore compares jobs by remaining work, then by number, so that a run can be repeated.
func (l *JobTasks) isBefore(o *JobTasks) bool {
	return cmp.Or(cmp.Compare(l.rankByWork(), o.rankByWork()), cmp.Compare(l.Job, o.Job)) < 0
}

func (l *JobTasks) rankByWork() int64 {
	if l.Long {
		return l.rank[ByLong]
	}
	return l.rank[ByShort]
}

// TakeOf takes the next task of one job.
func (q *TaskQueue) TakeOf(job int32) (terms JobTasks, task int32, ok bool) {
	j := q.jobs[job]
	if j == nil {
		return terms, 0, false
	}
	return q.takeFrom(j)
}

func (q *TaskQueue) takeFrom(j *JobTasks) (JobTasks, int32, bool) {
	var task int32
	if n := len(j.returned); n > 0 {
		task, j.returned = j.returned[n-1], j.returned[:n-1]
	} else {
		task = j.Next
		j.Next++
	}
	q.countTasks(j, -1)
	terms := *j
	terms.returned = nil
	if j.Left() > 0 {
		q.rerankJob(j)
	} else {
		q.dropJob(j)
	}
	return terms, task, true
}

func (q *TaskQueue) countTasks(l *JobTasks, tasks int32) {
	q.tasks += tasks
	if l.Long {
		q.work += int64(tasks) * l.Estimate
	}
}

// rerankJob updates a job's place in the heaps from its remaining work.
func (q *TaskQueue) rerankJob(l *JobTasks) {
	fleet := float64(int64(l.Left()+l.Behind)*l.Estimate) / float64(q.rules.Workers) // all workers' time for it
	work := l.Submitted + int64(float64(q.rules.Haste)*fleet)
	if !l.Long {
		q.putInHeap(ByShort, l, work)
		return
	}
	q.putInHeap(ByLong, l, work)
	q.putInHeap(ByAge, l, l.Submitted-l.Estimate+int64(float64(q.rules.Patient)*fleet))
}

func (q *TaskQueue) dropJob(l *JobTasks) {
	q.removeFromHeaps(l)
	delete(q.jobs, l.Job)
	q.free = append(q.free, l)
}

func (q *TaskQueue) putInHeap(h Order, l *JobTasks, rank int64) {
	l.rank[h] = rank
	if l.heapIndex[h] < 0 {
		l.heapIndex[h] = len(q.heaps[h])
		q.heaps[h] = append(q.heaps[h], l)
	}
	q.settleInHeap(h, l.heapIndex[h])
}

// less orders by rank, then by job number, so that a run is repeatable.
func (q *TaskQueue) less(h Order, i, j int) bool {
	x, y := q.heaps[h][i], q.heaps[h][j]
	return x.rank[h] < y.rank[h] || (x.rank[h] == y.rank[h] && x.Job < y.Job)
}

func (q *TaskQueue) swap(h Order, i, j int) {
	hp := q.heaps[h]
	hp[i], hp[j] = hp[j], hp[i]
	hp[i].heapIndex[h], hp[j].heapIndex[h] = i, j
}

func (q *TaskQueue) settleInHeap(h Order, i int) {
	for p := (i - 1) / 2; i > 0 && q.less(h, i, p); p = (i - 1) / 2 {
		q.swap(h, i, p)
		i = p
	}
	for n := len(q.heaps[h]); ; {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && q.less(h, c+1, c) {
			c++
		}
		if !q.less(h, c, i) {
			return
		}
		q.swap(h, i, c)
		i = c
	}
}
