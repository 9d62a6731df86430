package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// isGated reports whether something other than room keeps all tasks of a job from starting.
func (j *job) isGated() bool {
	return j.onHold || j.early || slices.ContainsFunc(j.after, func(x dependency) bool {
		return x.Kind != AfterCorr && x.state != depMet
	})
}

// enterOrdering fills in what is followed of a job's Ordering.
func (j *job) enterOrdering() {
	j.onHold, j.early = j.spec.Hold, !j.spec.Begin.IsZero()
	for _, x := range j.spec.After {
		j.after = append(j.after, dependency{Dependency: x})
	}
}

// metDependencies returns which dependencies are met, for the head; nil: none is.
func (j *job) metDependencies() (met []int) {
	for i := range j.after {
		if j.after[i].state == depMet {
			met = append(met, i)
		}
	}
	return met
}

// setMet takes back what metDependencies returned.
func (j *job) setMet(met []int) {
	for _, i := range met {
		if i >= 0 && i < len(j.after) {
			j.after[i].state = depMet
		}
	}
}

// openGates looks at all jobs that wait for a time or for another job, and lets those go whose wait is over.
func (d *Dispatcher) openGates(now time.Time) {
	d.gatesDue = false
	for _, j := range d.order {
		if j.isOver() || j.why != "" || j.rival != nil || j.fresh {
			continue
		}
		d.keepDeadline(now, j)
		d.openGate(now, j)
	}
}

// openGate lets a job go if nothing keeps it any more.
func (d *Dispatcher) openGate(now time.Time, j *job) {
	if !j.early && len(j.after) == 0 {
		return
	}
	before := j.isGated()
	if j.early && !now.Before(j.spec.Begin) {
		j.early = false
	}
	for i := range j.after {
		if x := &j.after[i]; x.state != depMet {
			d.judgeDependency(now, j, x)
			if j.why != "" {
				return // it was cancelled
			}
		}
	}
	if before && !j.isGated() {
		d.requeueWaiting(j)
		d.noteChanged(j)
	}
}

// judgeDependency looks at a dependency that is not met yet, and acts upon it.
func (d *Dispatcher) judgeDependency(now time.Time, j *job, x *dependency) {
	o := d.outcomeOf(x)
	if o == nil {
		return
	}
	was := x.state
	if x.state, x.why = x.Kind.stateBy(o); x.state == was {
		return
	}
	d.noteChanged(j)
	switch {
	case x.state == depMet:
		j.headDirty = true
		d.dirty[j] = true
		if x.Kind == AfterCorr {
			d.requeueWaiting(j)
		}
	case x.state == depOpen || j.spec.Unmet == UnmetWait:
		// it waits
	case x.Kind == AfterCorr && o.Why == "":
		d.dropUnmatched(now, j, o)
		x.state = depMet // by all tasks that are left
		d.requeueWaiting(j)
	default:
		d.cancelJob(now, j, "it was to run "+string(x.Kind)+" after job "+x.Job+": "+x.why)
	}
}

// outcomeOf returns the outcome of the job that a dependency waits for; nil: it is not known yet.
func (d *Dispatcher) outcomeOf(x *dependency) *Outcome {
	if a := d.jobs[x.Job]; a != nil && a.rival == nil {
		return a.outcome()
	}
	return x.heard
}

// outcome returns how a job of this member has ended. Done is left empty: see isDone.
func (j *job) outcome() *Outcome {
	return &Outcome{Job: j.id, Ended: j.isOver() && j.sealed, Succeeded: j.why == "" && j.ok == len(j.tasks),
		Indices: j.array}
}

// hasSucceeded reports whether the task with an index that a dependency of AfterCorr waits for has succeeded.
func (d *Dispatcher) hasSucceeded(x *dependency, o *Outcome, index int) bool {
	a := d.jobs[x.Job]
	if a == nil || a.rival != nil {
		return o.Done.Has(index)
	}
	i, ok := a.placeOf(index)
	return ok && a.tasks[i].state == finished && a.tasks[i].result.isSuccess()
}

// isEligible reports whether a waiting task may start as far as the tasks of the same index are concerned that it waits
// for.
func (d *Dispatcher) isEligible(j *job, i int) bool {
	for n := range j.after {
		x := &j.after[n]
		if x.Kind != AfterCorr || x.state == depMet {
			continue
		}
		o := d.outcomeOf(x)
		if o == nil {
			return false
		}
		index := j.array.At(i)
		if _, is := o.Indices.PlaceOf(index); !is || !d.hasSucceeded(x, o, index) {
			return false // without a counterpart it waits for the whole job
		}
	}
	return true
}

// dropUnmatched cancels the tasks of a job that wait for tasks which have ended without success.
func (d *Dispatcher) dropUnmatched(now time.Time, j *job, o *Outcome) {
	x := dependency{Dependency: Dependency{AfterCorr, o.Job}, heard: o}
	var list Indices
	for i := range j.tasks {
		if j.tasks[i].state != waiting {
			continue
		}
		index := j.array.At(i)
		if _, is := o.Indices.PlaceOf(index); is && d.hasSucceeded(&x, o, index) {
			continue
		}
		list = list.Add(index)
	}
	d.dropTasks(now, j, list, "tasks were cancelled that were to run after those of job "+o.Job+" with their index, "+
		"which did not succeed")
}

// letFollow puts the tasks of other jobs into their queues that waited for one task, which has succeeded.
func (d *Dispatcher) letFollow(j *job, i int) {
	if !d.corr {
		return
	}
	index := j.array.At(i)
	for _, b := range d.order {
		waits := slices.ContainsFunc(b.after, func(x dependency) bool {
			return x.Kind == AfterCorr && x.Job == j.id && x.state != depMet
		})
		if !waits || b.isOver() || !b.isQueued() {
			continue
		}
		if n, ok := b.placeOf(index); ok && b.tasks[n].state == waiting && d.isEligible(b, n) {
			d.queueTask(b, n)
		}
	}
}

// noteCorr notes that a job has a dependency of AfterCorr.
func (d *Dispatcher) noteCorr(s *Spec) {
	d.corr = d.corr || slices.ContainsFunc(s.After, func(x Dependency) bool { return x.Kind == AfterCorr })
}

// isAwaited reports whether an unfinished job of this member waits for a job.
func (d *Dispatcher) isAwaited(id string) bool {
	return slices.ContainsFunc(d.order, func(j *job) bool {
		return !j.isOver() && slices.ContainsFunc(j.after, func(x dependency) bool {
			return x.Job == id && x.state != depMet
		})
	})
}

// keepDeadline cancels what does not end by a job's deadline: tasks that would run beyond it if they began now, and,
// once it has passed, all.
func (d *Dispatcher) keepDeadline(now time.Time, j *job) {
	end := j.spec.Deadline
	if end.IsZero() {
		return
	}
	if !now.Before(end) {
		d.cancelJob(now, j, "its deadline, "+timeText(end)+", has passed")
		return
	}
	limit := time.Duration(j.spec.TimeoutMS) * time.Millisecond
	if limit == 0 || j.counts[waiting] == 0 || !now.Add(limit).After(end) {
		return
	}
	var list Indices
	for i := range j.tasks {
		if j.tasks[i].state == waiting {
			list = list.Add(j.array.At(i))
		}
	}
	d.dropTasks(now, j, list, "tasks were cancelled that could not have ended by the deadline, "+timeText(end))
}

// SetHold keeps the waiting tasks of a job from starting, or lets them go. Those that run go on.
func (d *Dispatcher) SetHold(now time.Time, id string, hold bool) error {
	j := d.jobNamed(id)
	switch {
	case j == nil:
		return noJob(id)
	case j.isOver() || j.why != "":
		return fault.New(fault.Precondition, fault.CodeJob, "job %s has ended, so that nothing of it waits", j.id)
	case j.onHold == hold:
		return nil
	}
	j.onHold, j.headDirty = hold, true
	d.dropForecast(j)
	d.dirty[j] = true
	d.requeueWaiting(j)
	d.noteChanged(j)
	d.announceWork(now)
	return nil
}

// Awaited lists what this dispatcher must be told about by Learn: jobs of other members that jobs of this one wait for,
// and whether the tasks that have succeeded matter.
func (d *Dispatcher) Awaited() map[string]bool {
	var all map[string]bool
	for _, j := range d.order {
		if len(j.after) == 0 || j.isOver() || j.why != "" || j.rival != nil {
			continue
		}
		for i := range j.after {
			x := &j.after[i]
			if a := d.jobs[x.Job]; x.state == depMet || a != nil && a.rival == nil {
				continue
			}
			if all == nil {
				all = map[string]bool{}
			}
			all[x.Job] = all[x.Job] || x.Kind == AfterCorr
		}
	}
	return all
}

// Learn takes the outcome of a job that another member keeps.
func (d *Dispatcher) Learn(now time.Time, o *Outcome) {
	for _, j := range d.order {
		news := false
		for i := range j.after {
			x := &j.after[i]
			if x.Job != o.Job || x.state == depMet ||
				x.Kind == AfterCorr && !o.HasDone && !o.Succeeded && o.Why == "" { // it was asked for another job
				continue
			}
			more := x.Kind == AfterCorr && (x.heard == nil || x.heard.Done.Len() != o.Done.Len())
			x.heard, news = o, news || more
		}
		if news && j.isQueued() {
			d.requeueWaiting(j)
			d.noteChanged(j)
		}
	}
	d.openGates(now)
	d.announceWork(now)
}

// explainGate says what keeps all tasks of a job from starting; "": nothing but room does.
func (d *Dispatcher) explainGate(j *job) string {
	if n := j.spec.AtOnce; n > 0 && j.counts[granted]+j.counts[running] >= n {
		return fmt.Sprintf("at most %s at once", countNoun(n, "of its tasks runs", "of its tasks run"))
	}
	if j.onHold {
		return fmt.Sprintf("it is on hold; \"souk job release %s\" lets it go", j.id)
	}
	if j.early {
		return "it begins at " + timeText(j.spec.Begin) + " at the earliest"
	}
	for i := range j.after {
		x := &j.after[i]
		switch {
		case x.state == depNever:
			return fmt.Sprintf("it waits for ever, to run %s after job %s: %s", x.Kind, x.Job, x.why)
		case x.state == depOpen && x.Kind != AfterCorr:
			return fmt.Sprintf("it is to run %s after job %s, which has not ended", x.Kind, x.Job)
		case x.state == depOpen && d.numEligible(j) == 0:
			return fmt.Sprintf("each task is to run after the success of that of job %s with its index", x.Job)
		}
	}
	return ""
}
