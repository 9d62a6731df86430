package jobs

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// OutputQuery selects the output of several tasks of a job.
type OutputQuery struct {
	Tasks Indices // nil: all
	Tail  *int    // the last lines of each task; nil: all that are kept
}

// TaskLine is a line of the output of one of several tasks. Its JSON is the API's.
type TaskLine struct {
	Index int `json:"index"`
	// Missing says why the output of the task is not here, or not all of it. The line then has nothing else.
	Missing string `json:"missing,omitempty"`
	machine.LogLine
}

// Output is where the output of a task is that has begun.
type Output struct {
	Index  int
	Result *Result          // of the newest attempt that ended; nil: none has
	Live   *Life            // the attempt that runs; nil: none does
	Worker cluster.WorkerID // that runs Live
}

// Outputs finds the output of a job's tasks that have begun, in order of index: at most limit of them, from an index on, of
// those in list unless it is nil. next is the index to continue at, -1 at the end.
func (d *Dispatcher) Outputs(id string, from, limit int, list Indices) (out []Output, next int, err error) {
	j := d.jobNamed(id)
	if j == nil {
		return nil, -1, noJob(id)
	}
	if index, is := j.array.Missing(list); is {
		return nil, -1, noTask(j, index)
	}
	for i := j.array.From(from); i < len(j.tasks); i++ {
		index := j.array.At(i)
		if list != nil && !list.Has(index) {
			continue
		}
		if len(out) == limit {
			return out, index, nil
		}
		if o := j.outputOf(i); o.Result != nil || o.Live != nil {
			out = append(out, o)
		}
	}
	return out, -1, nil
}

// outputOf returns where the output of the task at a place is. The result is a copy.
func (j *job) outputOf(i int) Output {
	t, o := &j.tasks[i], Output{Index: j.array.At(i)}
	if t.result != nil {
		o.Result = new(*t.result)
	}
	if t.state == running {
		o.Live, o.Worker = new(j.lifeOf(i)), t.worker
	}
	return o
}
