package jobs

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// adoptFor is how long the tasks of a job that was taken over are held back at most, until all workers have reported
// which of them run.
const adoptFor = 10 * time.Second

// maxLostTo bounds the jobs that are remembered as handed over.
const maxLostTo = 10_000

// adoption is a job that was taken over, and whose workers are not all known yet.
type adoption struct {
	job   *job
	until time.Time
}

func (d *Dispatcher) isAdopting(j *job) bool {
	return slices.ContainsFunc(d.adopting, func(a adoption) bool { return a.job == j })
}

// claim returns what this member claims about a job that it keeps.
func (j *job) claim(self cluster.WorkerID) Claim {
	return Claim{Job: j.id, Epoch: j.epoch, By: self, Heir: j.heir}
}

// Claims returns what this member, self, claims about the jobs with these ids that it keeps.
func (d *Dispatcher) Claims(self cluster.WorkerID, ids []string) (out []Claim) {
	for _, id := range ids {
		if j := d.jobs[id]; j != nil && j.rival == nil {
			out = append(out, j.claim(self))
		}
	}
	return out
}

// ClaimOf returns what this member, self, claims about a job; nil: it does not keep it.
func (d *Dispatcher) ClaimOf(self cluster.WorkerID, id string) *Claim {
	if c := d.Claims(self, []string{id}); len(c) > 0 {
		return &c[0]
	}
	return nil
}

// Disputable lists the jobs that another member may have taken over: they have, or had, an heir.
func (d *Dispatcher) Disputable() (ids []string) {
	for _, j := range d.order {
		if j.rival == nil && (j.heir != "" || j.epoch > 0) {
			ids = append(ids, j.id)
		}
	}
	return ids
}

// Rival reports that another member keeps a job, by a claim that outranks this member's. From now on this one gives out
// none of its tasks, and records no result. It sends the member what it has, and then forgets the job.
func (d *Dispatcher) Rival(now time.Time, c Claim) {
	j := d.jobs[c.Job]
	if j == nil || j.rival != nil && !j.rivalLost && !c.Outranks(j.rival) {
		return
	}
	d.queueOf(j.shape()).queue.Withdraw(j.number)
	d.leaveHeir(j)
	d.adopting = slices.DeleteFunc(d.adopting, func(a adoption) bool { return a.job == j })
	j.rival, j.rivalLost, j.heir, j.uncertain = &c, false, c.By, true
	j.copying = copying{whole: true}
	d.queueCopy(j)
	d.noteChanged(j)
	d.announceWork(now)
}

// Unclaimed lists the jobs that were taken over by a member that is gone, or does not keep them any more.
func (d *Dispatcher) Unclaimed(gone func(cluster.WorkerID) bool) (ids []string) {
	for _, j := range d.order {
		if j.rival != nil && d.jobs[j.id] == j && (j.rivalLost || gone(j.rival.By)) {
			ids = append(ids, j.id)
		}
	}
	return ids
}

// Reclaim takes back that another member keeps a job: that member is gone, and no other has the job.
func (d *Dispatcher) Reclaim(now time.Time, id string) {
	j := d.jobs[id]
	if j == nil || j.rival == nil {
		return
	}
	d.leaveHeir(j)
	j.epoch, j.rival, j.heir = min(j.rival.Epoch+1, MaxEpoch), nil, ""
	d.giveHeir(j)
	j.headDirty = true
	d.dirty[j] = true
	d.awaitWorkers(now, j)
}

// forgetHandedOver drops a job that another member has taken over with everything that was known of it here.
func (d *Dispatcher) forgetHandedOver(j *job) {
	if d.lostTo == nil || len(d.lostTo) >= maxLostTo {
		d.lostTo = map[string]bool{}
	}
	d.lostTo[j.id] = true
	for _, s := range d.inOrder {
		for l := range s.running {
			if l.Job == j.id {
				delete(s.running, l)
			}
		}
		for offer, g := range s.open {
			if g.job == j {
				delete(s.open, offer)
			}
		}
	}
	delete(d.jobs, j.id)
	d.forgotten = append(d.forgotten, j)
	d.noteChanged(j)
}

// dropAdopted forgets a job that was taken over after its end from a member that has purged it, which says so only now.
// That member accounts for it.
func (d *Dispatcher) dropAdopted(x *Copy) {
	j := d.jobs[x.Job]
	if j != nil && j.rival == nil && j.epoch > x.Epoch && j.endSaved {
		d.dropAtHeir(j)
		d.forgetHandedOver(j)
	}
}

// isOthers reports whether the tasks of a job are the business of another member, which has taken it over.
func (d *Dispatcher) isOthers(id string) bool {
	if j := d.jobs[id]; j != nil {
		return j.rival != nil
	}
	return d.lostTo[id]
}

// Adopt takes over a job from its copy: with a larger epoch, which workers obey. Its tasks are given out once all workers
// that can be reached have reported which of them run, or after adoptFor. Out.Renew has them connected anew.
//
// It returns false if this member keeps the job already.
func (d *Dispatcher) Adopt(now time.Time, x *CopiedJob) bool {
	j := x.job
	if d.jobs[j.id] != nil {
		return false
	}
	delete(d.lostTo, j.id)
	d.next++
	j.number = d.next
	d.jobs[j.id], d.numbers[j.number] = j, j
	d.order = append(d.order, j)
	d.tasks += len(j.tasks)
	d.noteCorr(&j.spec)
	j.epoch, j.heir, j.records = min(j.epoch+1, MaxEpoch), "", 0
	j.unsaved, j.past, j.spent = j.savedResults()
	j.adopted = len(j.unsaved)
	j.used = tally{} // of what is kept from here on, so that a restart changes nothing
	for i := range j.unsaved {
		j.used.addResult(&j.unsaved[i])
	}
	j.endSaved = !j.ended.IsZero()
	d.giveHeir(j)
	j.headDirty = true
	d.dirty[j] = true
	j.updateEstimate()
	for i := range j.tasks {
		if j.tasks[i].state == waiting && j.isUnwanted(i) {
			j.setState(i, cancelled)
		}
	}
	if j.isOver() {
		if j.ended.IsZero() {
			j.ended = j.lastEnd()
		}
		d.done = append(d.done, j)
	}
	d.awaitWorkers(now, j)
	d.noteChanged(j)
	d.out.Adopted = append(d.out.Adopted, Adopted{j.id, j.spec.Namespace, x.keeper})
	return true
}

// awaitWorkers holds a job's tasks back until all workers have reported what runs.
func (d *Dispatcher) awaitWorkers(now time.Time, j *job) {
	j.uncertain = true
	d.adopting = append(d.adopting, adoption{j, now.Add(adoptFor)})
	d.renewWorkers()
}

// renewWorkers has all workers connected anew.
func (d *Dispatcher) renewWorkers() {
	d.rebooted, d.out.Renew = true, true
	for _, s := range d.inOrder {
		s.met, s.strays = false, true
	}
}

// releaseAdopted gives out the tasks of jobs that were taken over, once all workers have reported.
func (d *Dispatcher) releaseAdopted(now time.Time) {
	if len(d.adopting) == 0 {
		return
	}
	all := !slices.ContainsFunc(d.inOrder, func(s *workerState) bool { return s.strays && (s.here || s.near) })
	for _, a := range slices.Clone(d.adopting) {
		if all || now.After(a.until) {
			d.adopting = slices.DeleteFunc(d.adopting, func(o adoption) bool { return o.job == a.job })
			d.releaseJob(now, a.job)
		}
	}
}

// Merge adds what another member knows of a job that this one has taken over from it: the ends of tasks, and cancels.
// Such an end counts if this member has recorded none.
func (d *Dispatcher) Merge(now time.Time, x *Copy) error {
	j := d.jobs[x.Job]
	if j == nil || j.rival != nil {
		return noJob(x.Job)
	}
	for _, g := range x.Groups {
		for _, r := range g {
			if i, ok := j.placeOf(r.Index); ok && !r.Retry && j.tasks[i].state < finished {
				d.mergeResult(now, j, i, r)
			}
		}
	}
	d.requeueWaiting(j)
	if x.Head == nil {
		return nil
	}
	d.renewWorkers() // they may have obeyed the other member
	h, err := decodeHead(x.Job, x.Head)
	if err != nil {
		return err
	}
	if len(h.Dropped) > 0 {
		if _, err := d.CancelTasks(now, j.id, h.Dropped); err != nil {
			return err
		}
	}
	if h.Cancelled != "" {
		d.cancelJob(now, j, h.Cancelled)
	}
	return nil
}

// mergeResult ends a task with a result that another member has recorded.
func (d *Dispatcher) mergeResult(now time.Time, j *job, i int, r Result) {
	t := &j.tasks[i]
	if t.state == running {
		l := j.lifeOf(i)
		o := d.ordersTo(t.worker)
		o.Kill = append(o.Kill, l)
		delete(d.workers[t.worker].running, l)
	}
	r.Job, r.CPU, r.Memory, r.GPUs = j.id, j.terms.Shape.CPU, j.terms.Shape.Memory, j.spec.GPUs
	t.attempt = max(t.attempt, int32(r.Attempt))
	t.result = &r
	j.unsaved = append(j.unsaved, r)
	j.addUsed(&r)
	if r.Dropped {
		d.endTask(now, j, i, cancelled)
		return
	}
	d.endTask(now, j, i, finished)
	switch {
	case r.isSuccess():
		j.ok++
		j.addRuntime(max(0, r.Ended-r.Began))
		d.reviseQueue(j)
		d.letFollow(j, i)
	case j.firstFail < 0:
		j.firstFail = i
	}
}

func errKeptBy(j *job) error {
	return fault.New(fault.Unavailable, fault.CodeJobMember,
		"job %s was taken over by %s; ask again in a moment", j.id, j.rival.By)
}
