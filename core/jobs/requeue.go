package jobs

import (
	"time"

	"github.com/soukhq/souk/fault"
)

// requeuedWhy is what the result of an attempt says that was ended so that its task runs anew.
const requeuedWhy = "it was requeued"

// Requeued names an attempt that is ended so that its task runs anew.
type Requeued struct {
	Index   int   `json:"i"`
	Attempt int32 `json:"a"`
}

// Requeue ends the running tasks of a job in list, all for nil, and returns them to the queue, without using up a retry. It
// returns how many. Tasks that wait or have ended are left alone.
func (d *Dispatcher) Requeue(now time.Time, id string, list Indices) (n int, err error) {
	j := d.jobNamed(id)
	switch {
	case j == nil:
		return 0, noJob(id)
	case j.isOver() || j.why != "":
		return 0, fault.New(fault.Precondition, fault.CodeJob,
			"job %s has ended, so that nothing of it runs; \"souk job rerun %[1]s\" submits it anew", j.id)
	}
	if index, is := j.array.Missing(list); is {
		return 0, noTask(j, index)
	}
	for i := range j.tasks {
		t := &j.tasks[i]
		if t.state != running && t.state != granted || j.isUnwanted(i) || list != nil && !list.Has(j.array.At(i)) {
			continue
		}
		n++
		if j.isRequeued(i) {
			continue
		}
		if j.requeued == nil {
			j.requeued = map[int]int32{}
		}
		j.requeued[i] = t.attempt
		if t.state == running { // a granted task is ended once its worker has answered
			d.killTask(j, i)
		}
	}
	if n > 0 {
		j.headDirty = true
		d.dirty[j] = true
		d.noteChanged(j)
	}
	return n, nil
}

// isRequeued reports whether the newest attempt of a task is ended so that the task runs anew.
func (j *job) isRequeued(i int) bool {
	attempt, is := j.requeued[i]
	return is && attempt == j.tasks[i].attempt
}

// isToEnd reports whether the newest attempt of a task is to be ended, for whatever reason.
func (j *job) isToEnd(i int) bool { return j.isUnwanted(i) || j.isRequeued(i) }

// requeuedAttempts lists the attempts that are being ended, for the head.
func (j *job) requeuedAttempts() (list []Requeued) {
	if len(j.requeued) == 0 {
		return nil
	}
	for i := range j.tasks {
		if s := j.tasks[i].state; j.isRequeued(i) && (s == running || s == granted) {
			list = append(list, Requeued{j.array.At(i), j.tasks[i].attempt})
		}
	}
	return list
}

// setRequeued takes back what requeuedAttempts returned.
func (j *job) setRequeued(list []Requeued) {
	j.requeued = nil
	for _, x := range list {
		if i, ok := j.placeOf(x.Index); ok {
			if j.requeued == nil {
				j.requeued = map[int]int32{}
			}
			j.requeued[i] = x.Attempt
		}
	}
}
