package jobs

import (
	"time"

	"github.com/soukhq/souk/cluster"
)

// job is one job and its tasks.
type job struct {
	id        string
	number    int32
	spec      Spec
	array     Array // spec.Indices()
	terms     *Terms
	submitted time.Time
	ended     time.Time // when the last task ended; zero: not yet
	sealed    bool      // its end is durable
	why       string    // why it was cancelled; "": it was not
	dropped   Indices   // tasks that were cancelled one by one
	dropWhy   string    // why, if not because a user wanted it
	tasks     []task

	counts    [cancelled + 1]int // tasks by state
	ok        int                // finished tasks with exit code 0
	sum       int64              // microseconds that those tasks took together
	times     times              // run times of the last of those tasks
	estimate  int64              // microseconds, of one task
	firstFail int                // place of the task that failed first; -1: none
	retried   int                // attempts that failed and were retried
	evicted   int                // attempts that were evicted, for a machine or a drain
	lost      int                // attempts that were lost and retried
	used      tally              // by the attempts that ended
	account   account            // the same, by day
	// until when no task of it is given out, as its namespace cannot pay; zero: the job is in the queue
	unpaid time.Time

	onHold bool         // by a user
	early  bool         // the time at which it may begin has not come
	after  []dependency // on other jobs
	// the attempts of tasks, by place, that are ended so that the tasks run anew
	requeued map[int]int32
	next     int // with spec.AtOnce: waiting tasks from this place on are not in the queue

	foretold forecast // what was said of it when it came

	handed map[int32]bool // with spec.Scheduler: waiting tasks, by place, that are in a batch
	// with spec.Scheduler: why the scheduler cannot be made, as in a souk that does not have it any more; "": it can
	unscheduled string

	headDirty bool
	fresh     bool // not durable yet: no task is given out before
	uncertain bool // no task is given out: it is not certain that this member keeps the job, or what runs of it
	unsaved   []Result
	saving    []Result // results in the commit in progress
	newHead   uint32   // checksum of the head in the commit in progress; 0: none
	head      uint32   // checksum of the head in the journal
	ending    bool     // its end is in the commit in progress
	endSaved  bool     // its end is in the journal
	records   int      // finished groups of results in the journal
	past      []Past
	spent     *account // as head.Spent

	epoch   int              // see Claim
	heir    cluster.WorkerID // the member with a copy of it; "": none
	copying copying
	// the member that has taken it over, so that this one hands it over; nil: none
	rival     *Claim
	rivalLost bool // rival does not keep it any more
	// while it is taken over: how many of its unsaved results, the first ones, workers were told to forget long ago
	adopted int
}

// state is the state of a task.
type state uint8

const (
	waiting state = iota
	granted       // on its way to a worker
	running
	finished  // it has a result
	cancelled // it or its job was cancelled: it never ran, or was killed
)

// stateNames are the names of the states in output and in the API.
var stateNames = [...]string{waiting: "waiting", granted: "granted", running: "running", finished: "finished",
	cancelled: "cancelled"}

// task is one task of a job.
type task struct {
	state       state
	lost        uint8
	unconfirmed bool // with running: whether it has reached the worker is not known
	fails       uint16
	attempt     int32 // the newest attempt; 0: none yet
	worker      cluster.WorkerID
	began       int64   // unix microseconds
	result      *Result // of the newest attempt that ended
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
	// its end was not observed, or it could not start for a temporary reason
	Lost    bool             `json:"l,omitempty"`
	Evicted string           `json:"v,omitempty"` // why it was evicted, by which rule and for which machine
	Error   string           `json:"e,omitempty"` // why it could not start
	Worker  cluster.WorkerID `json:"w"`
	Began   int64            `json:"b"`
	Ended   int64            `json:"d"`
	Offset  int64            `json:"o,omitempty"` // of its output in the job's output file
	Bytes   int              `json:"n,omitempty"`
	// the member with that file; "": the one that recorded the result
	OutputAt cluster.WorkerID `json:"p,omitempty"`
	Cut      bool             `json:"x,omitempty"` // the output was longer than the limit
	Left     *Left            `json:"f,omitempty"` // the files that it left; nil: none were to be kept
	Retry    bool             `json:"r,omitempty"` // the task was run again
	Dropped  bool             `json:"k,omitempty"` // it ended because the task or its job was cancelled
	// microseconds of CPU time, and KiB of memory at its peak, as in runtime.Exit; 0: not known
	UsedCPU int64 `json:"u,omitempty"`
	PeakKiB int64 `json:"h,omitempty"`

	CPU    int64 `json:"-"`
	Memory int64 `json:"-"`
	GPUs   int   `json:"-"`
}

// Left counts the files that an attempt left, and that its worker keeps.
type Left struct {
	Files int    `json:"n,omitempty"`
	Bytes int64  `json:"b,omitempty"`
	Why   string `json:"w,omitempty"` // why not all that was to be kept is; "": it is
}

// NewResult returns a result with the fields that a life determines.
func NewResult(l Life, w cluster.WorkerID) Result {
	return Result{Job: l.Job, Index: l.Index, Attempt: l.Attempt, CPU: l.CPU, Memory: l.Memory, GPUs: l.GPUs,
		Worker: w}
}

// Life returns the life of the attempt, as far as the result has it.
func (r *Result) Life() Life {
	return Life{Job: r.Job, Index: r.Index, Attempt: r.Attempt, CPU: r.CPU, Memory: r.Memory, GPUs: r.GPUs}
}

func (r *Result) isSuccess() bool { return r.Code == 0 && r.Error == "" && !r.Lost && r.Evicted == "" }

// isUnwanted reports whether a task is not to run any more, because it or its job was cancelled.
func (j *job) isUnwanted(i int) bool { return j.why != "" || j.dropped.Has(j.array.At(i)) }

func (j *job) isOver() bool { return j.counts[finished]+j.counts[cancelled] == len(j.tasks) }

func (j *job) lifeOf(i int) Life {
	return Life{Job: j.id, Index: j.array.At(i), Attempt: int(j.tasks[i].attempt),
		CPU: j.terms.Shape.CPU, Memory: j.terms.Shape.Memory, GPUs: j.spec.GPUs}
}

// placeOf returns the place of a task by its index.
func (j *job) placeOf(index int) (int, bool) { return j.array.PlaceOf(index) }

func (j *job) setState(i int, s state) {
	j.counts[j.tasks[i].state]--
	j.tasks[i].state, j.tasks[i].unconfirmed = s, false
	j.counts[s]++
}

// addRuntime counts the run time of a task that succeeded.
func (j *job) addRuntime(us int64) {
	j.sum += us
	j.times.addTime(us)
}

// updateEstimate sets the estimate of a task: the mean of the tasks that succeeded, or else the user's estimate.
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
