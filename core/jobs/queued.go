package jobs

import "github.com/soukhq/souk/core/auction"

// isQueued reports whether those waiting tasks of a job that are eligible are in its queue.
func (j *job) isQueued() bool {
	return j.unpaid.IsZero() && !j.uncertain && !j.fresh && j.why == "" && !j.isGated()
}

// enqueueJob counts a job that has come, and puts its waiting tasks into its queue.
func (d *Dispatcher) enqueueJob(j *job) {
	if j.hasScheduler() {
		d.noteLoose(j)
		return
	}
	d.queueOf(j.shape()).queue.Observe(j.tasksOf())
	d.requeueWaiting(j)
}

// requeueWaiting updates the queue to the tasks of a job that wait and may start.
func (d *Dispatcher) requeueWaiting(j *job) {
	if j.hasScheduler() {
		d.noteLoose(j)
		return
	}
	sh := d.queueOf(j.shape())
	had := sh.queue.Withdraw(j.number)
	if !j.isQueued() || j.counts[waiting] == 0 {
		return
	}
	if j.counts[waiting] == len(j.tasks) && j.spec.AtOnce == 0 && len(j.after) == 0 {
		sh.queue.Add(j.tasksOf())
	} else if list := d.eligiblePlaces(j); len(list) > 0 {
		terms := j.tasksOf()
		terms.Behind = int32(j.counts[waiting] - len(list))
		sh.queue.AddTasks(terms, list)
	}
	sh.stale = sh.stale || sh.queue.LeftOf(j.number) > had // workers may have no quota left
}

// eligiblePlaces lists the waiting tasks of a job that may be in its queue, and notes where the rest of them begins if
// only so many may run at once.
func (d *Dispatcher) eligiblePlaces(j *job) (list []int32) {
	room := len(j.tasks)
	if n := j.spec.AtOnce; n > 0 {
		room = n - j.counts[granted] - j.counts[running]
	}
	for i := range j.tasks {
		if len(list) >= room {
			j.next = i
			return list
		}
		if j.tasks[i].state == waiting && d.isEligible(j, i) {
			list = append(list, int32(i))
		}
	}
	j.next = len(j.tasks)
	return list
}

// topUp puts a task of a job into its queue after another one has ended, if only so many may run at once.
func (d *Dispatcher) topUp(j *job) {
	if j.hasScheduler() && j.spec.AtOnce > 0 {
		d.noteMore(j)
	}
	if j.hasScheduler() || j.spec.AtOnce == 0 || j.next >= len(j.tasks) || !j.isQueued() {
		return
	}
	queue := d.queueOf(j.shape()).queue
	for j.next < len(j.tasks) &&
		int(queue.LeftOf(j.number))+j.counts[granted]+j.counts[running] < j.spec.AtOnce {
		i := j.next
		if j.next++; j.tasks[i].state == waiting && !j.isUnwanted(i) && d.isEligible(j, i) {
			d.returnTask(j, i)
		}
	}
}

// queueTask puts a waiting task into its queue, or has it follow when there is room for it.
func (d *Dispatcher) queueTask(j *job, i int) {
	if j.spec.AtOnce > 0 || j.hasScheduler() {
		d.requeueWaiting(j) // only so many are in the queue, and this one may not be the next
		return
	}
	d.returnTask(j, i)
}

// returnTask puts a waiting task into its queue.
func (d *Dispatcher) returnTask(j *job, i int) {
	sh := d.queueOf(j.shape())
	terms := j.tasksOf()
	if j.spec.AtOnce > 0 {
		terms.Behind = int32(max(0, j.counts[waiting]-int(sh.queue.LeftOf(j.number))-1))
	}
	sh.queue.Return(terms, int32(i))
	sh.stale = true // workers may have no quota left
}

// tasksOf returns the job in the queue's form, as if none of its tasks had been given out.
func (j *job) tasksOf() auction.JobTasks {
	return auction.JobTasks{Job: j.number, Tasks: int32(len(j.tasks)), Long: j.isLong(),
		Submitted: j.submitted.UnixMicro() + j.spec.Priority.startRank(), Estimate: j.estimate}
}
