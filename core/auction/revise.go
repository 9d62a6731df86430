package auction

import "slices"

// Revise returns the tasks of a job another estimate and the place that follows from it. A job that is not in the queue
// is left alone.
func (q *TaskQueue) Revise(job int32, long bool, estimate int64) {
	l := q.jobs[job]
	if l == nil || (l.Long == long && l.Estimate == estimate) {
		return
	}
	n := l.Left()
	q.countTasks(l, -n)
	if l.Long != long {
		q.removeFromHeaps(l)
		q.Observe(JobTasks{Long: long, Estimate: estimate})
	}
	l.Long, l.Estimate = long, estimate
	q.countTasks(l, n)
	q.rerankJob(l)
}

// rememberedJobs is how many long jobs a queue remembers the tasks of: at twice as many what it has seen counts half.
const rememberedJobs = 512

// Observe counts a job that has come to the buyer, whether or not its tasks will ever wait in the queue. Long jobs are
// how the market knows what is usual.
func (q *TaskQueue) Observe(l JobTasks) {
	if !l.Long {
		return
	}
	q.seen++
	q.usual += l.Estimate
	if q.seen >= 2*rememberedJobs {
		q.seen, q.usual = q.seen/2, q.usual/2
	}
}

// Withdraw takes a job's tasks out of the queue, and gives how many there were.
func (q *TaskQueue) Withdraw(job int32) int32 {
	l := q.jobs[job]
	if l == nil {
		return 0
	}
	n := l.Left()
	q.countTasks(l, -n)
	q.dropJob(l)
	return n
}

// Ahead returns how many tasks of how many other jobs come before this job's now, by remaining work. The order by age
// is left out: it concerns few.
func (q *TaskQueue) Ahead(rank int64, job int32) (tasks, jobs int32) {
	for id, l := range q.jobs {
		if r := l.remainingWork(); id != job && (r < rank || (r == rank && id < job)) {
			tasks += l.Left()
			jobs++
		}
	}
	return tasks, jobs
}

// Rank returns a job's place by remaining work, for Ahead, and NoWork when the job is not in the queue.
func (q *TaskQueue) Rank(job int32) int64 {
	if l := q.jobs[job]; l != nil {
		return l.remainingWork()
	}
	return NoWork
}

func (l *JobTasks) remainingWork() int64 {
	if l.Long {
		return l.rank[ByLong]
	}
	return l.rank[ByShort]
}

// removeFromHeaps takes a job out of the heaps.
func (q *TaskQueue) removeFromHeaps(l *JobTasks) {
	for h := ByShort; h <= ByAge; h++ {
		i := l.heapIndex[h]
		if i < 0 {
			continue
		}
		last := len(q.heaps[h]) - 1
		q.swap(h, i, last)
		q.heaps[h] = q.heaps[h][:last]
		l.heapIndex[h] = -1
		if i < last {
			q.settleInHeap(h, i)
		}
	}
}

// AddTasks puts these tasks of a job in the queue, and no others: the first of them goes first.
func (q *TaskQueue) AddTasks(terms JobTasks, tasks []int32) {
	terms.Next, terms.returned = terms.Tasks, slices.Clone(tasks)
	slices.Reverse(terms.returned) // they are taken from the end
	q.Add(terms)
}
