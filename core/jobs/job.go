package jobs

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
)

// job is one job and its tasks.
type job struct {
	id        string
	number    int32
	spec      Spec
	terms     *Terms
	submitted time.Time
	ended     time.Time // of its last task; zero: not yet
	sealed    bool      // its end is durable
	why       string    // it was cancelled
	dropped   Indices   // tasks that were cancelled alone
	tasks     []task

	counts    [cancelled + 1]int // tasks by state
	ok        int                // of the finished: exit code 0
	sum       int64              // microseconds that those took together
	times     times              // of the last of them
	estimate  int64              // microseconds, of one task
	firstFail int                // place of the task that failed first; -1: none
	retried   int                // attempts that failed and were run again
	evicted   int                // attempts that made room for a machine or a drain
	lost      int                // attempts whose end nobody saw, and that were run again
	// until when nothing of it is given out, as nobody can pay for it; zero: it is in the queue
	unpaid time.Time

	headDirty bool
	fresh     bool // nothing is given out before it is durable
	unsaved   []Result
	saving    []Result // in the commit that is under way
	ending    bool     // its end is in the commit that is under way
	records   int      // of finished groups in the journal
}

// state is where a task is.
type state uint8

const (
	waiting state = iota
	granted       // on its way to a worker
	running
	finished  // it has a result
	cancelled // it never ran, or was killed, as it or its job was cancelled
)

// names of the states, for people and programs.
var stateNames = [...]string{waiting: "waiting", granted: "granted", running: "running", finished: "finished",
	cancelled: "cancelled"}

// task is one task of a job.
type task struct {
	state   state
	lost    uint8
	fails   uint16
	attempt int32 // the newest
	worker  cluster.WorkerID
	began   int64   // unix microseconds
	result  *Result // of the newest attempt that ended
}

// Result is how one attempt ended. Times are unix microseconds.
type Result struct {
	Job      string `json:"-"`
	Index    int    `json:"i"`
	Attempt  int    `json:"a"`
	Code     int    `json:"c"`
	Signal   int    `json:"s,omitempty"`
	TimedOut bool   `json:"t,omitempty"`
	OOM      bool   `json:"m,omitempty"`
	// nobody saw its end, or it could not be begun for want of something that passes
	Lost    bool             `json:"l,omitempty"`
	Evicted string           `json:"v,omitempty"` // it made room for a machine or a drain: why, by which rule and for which
	Error   string           `json:"e,omitempty"` // why it could not be begun
	Worker  cluster.WorkerID `json:"w"`
	Began   int64            `json:"b"`
	Ended   int64            `json:"d"`
	Offset  int64            `json:"o,omitempty"` // of its output in the job's file
	Bytes   int              `json:"n,omitempty"`
	Cut     bool             `json:"x,omitempty"` // the output was longer than what is kept
	Retry   bool             `json:"r,omitempty"` // it was run again
	Dropped bool             `json:"k,omitempty"` // it ended because it or its job was cancelled

	CPU    int64 `json:"-"`
	Memory int64 `json:"-"`
	GPUs   int   `json:"-"`
}

// NewResult begins the result of a life.
func NewResult(l Life, w cluster.WorkerID) Result {
	return Result{Job: l.Job, Index: l.Index, Attempt: l.Attempt, CPU: l.CPU, Memory: l.Memory, GPUs: l.GPUs,
		Worker: w}
}

// Life names the attempt.
func (r *Result) Life() Life {
	return Life{Job: r.Job, Index: r.Index, Attempt: r.Attempt, CPU: r.CPU, Memory: r.Memory, GPUs: r.GPUs}
}

func (r *Result) isSuccess() bool { return r.Code == 0 && r.Error == "" && !r.Lost && r.Evicted == "" }

// isUnwanted reports whether a task is to run no more, as it or its job was cancelled.
func (j *job) isUnwanted(i int) bool { return j.why != "" || j.dropped.Has(j.spec.First+i) }

// waitingPlaces lists the places of the tasks that wait.
func (j *job) waitingPlaces() (list []int32) {
	for i := range j.tasks {
		if j.tasks[i].state == waiting {
			list = append(list, int32(i))
		}
	}
	return list
}

func (j *job) isOver() bool { return j.counts[finished]+j.counts[cancelled] == len(j.tasks) }

func (j *job) lifeOf(i int) Life {
	return Life{Job: j.id, Index: j.spec.First + i, Attempt: int(j.tasks[i].attempt),
		CPU: j.terms.Shape.CPU, Memory: j.terms.Shape.Memory, GPUs: j.spec.GPUs}
}

// placeOf gives the place of a task by its index.
func (j *job) placeOf(index int) (int, bool) {
	i := index - j.spec.First
	return i, i >= 0 && i < len(j.tasks)
}

func (j *job) setState(i int, s state) {
	j.counts[j.tasks[i].state]--
	j.tasks[i].state = s
	j.counts[s]++
}

// addRuntime adds a task that ended well.
func (j *job) addRuntime(us int64) {
	j.sum += us
	j.times.addTime(us)
}

// updateEstimate sets the estimate of a task: the mean of those that have finished well, else what the user said.
func (j *job) updateEstimate() {
	switch {
	case j.ok > 0:
		j.estimate = max(1, j.sum/int64(j.ok))
	case j.spec.EstimateMS > 0:
		j.estimate = j.spec.EstimateMS * 1000
	default:
		j.estimate = firstGuess
	}
	if j.counts == [cancelled + 1]int{} {
		j.counts[waiting] = len(j.tasks)
	}
}

// tasksOf is the job as the queue has it, all tasks not given out.
func (j *job) tasksOf() auction.JobTasks {
	return auction.JobTasks{Job: j.number, Tasks: int32(len(j.tasks)), Long: j.estimate >= LongTask,
		Submitted: j.submitted.UnixMicro() + j.spec.Priority.startRank(), Estimate: j.estimate}
}
