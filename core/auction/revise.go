package auction

import "slices"

// Revise changes the task estimate of a job, and its place in the queue with it. A job that is not in the queue is
// left alone.
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

// rememberedJobs is how many long jobs the average estimate is taken over: at twice as many, Observe halves its sums.
const rememberedJobs = 512

// Observe counts a job that has come to the buyer, whether or not its tasks will ever wait in the queue. The market
// takes the usual task length from the long jobs counted here.
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

// Withdraw takes a job's tasks out of the queue, and returns how many it removed.
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

// Ahead returns how many tasks, of how many other jobs, rank before this job by remaining work. It ignores the order
// by age, which concerns few jobs.
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

// AddTasks adds a job with only these tasks, which are given out in this order.
func (q *TaskQueue) AddTasks(terms JobTasks, tasks []int32) {
	terms.Next, terms.returned = terms.Tasks, slices.Clone(tasks)
	slices.Reverse(terms.returned) // they are taken from the end
	q.Add(terms)
}
