package jobs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// JobState is the state of a job.
type JobState string

// The states of a job. The last three are final, and durable before they are reported.
const (
	Waiting   JobState = "waiting" // none of its tasks has started
	Running   JobState = "running"
	Succeeded JobState = "succeeded" // every task ended with 0
	Failed    JobState = "failed"
	// Cancelled is a job that was cancelled (Job.Why), or some of whose tasks were while none failed.
	Cancelled JobState = "cancelled"
)

// Final reports whether a job in this state does not change any more.
func (s JobState) Final() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Job is the status of a job.
type Job struct {
	ID        string   `json:"id"`
	State     JobState `json:"state"`
	Spec      Spec     `json:"spec"`
	Tasks     int      `json:"tasks"`
	Waiting   int      `json:"waiting"`
	Running   int      `json:"running"`
	Succeeded int      `json:"succeeded"`
	Failed    int      `json:"failed"`
	Cancelled int      `json:"cancelled"`
	Retried   int      `json:"retried"`           // attempts that failed and were retried
	Evicted   int      `json:"evicted,omitempty"` // attempts that were evicted for machines or a drain, and retried
	// attempts whose end was not observed, as their worker or its reaper died, and that were retried
	Lost      int        `json:"lost,omitempty"`
	FirstFail *FirstFail `json:"first_failure,omitempty"`
	Why       string     `json:"why,omitempty"` // why its tasks wait, or why it was cancelled
	Submitted time.Time  `json:"submitted_at"`
	Ended     *time.Time `json:"ended_at,omitempty"`
	TaskMS    float64    `json:"task_ms"`              // the queue's estimate for one task, a guess or learned
	Took      *Span      `json:"took,omitempty"`       // run time of one task; nil: too few have ended
	Left      *Span      `json:"left,omitempty"`       // time until the end at the present rate; nil: unknown
	Elapsed   float64    `json:"elapsed_ms"`           // since it was submitted
	PerSecond float64    `json:"per_second,omitempty"` // finished tasks per second since the submission
	// Member is the member that keeps the job; "": this process is alone. A Dispatcher leaves it empty.
	Member cluster.WorkerID `json:"member,omitempty"`
	// Heir is the member that keeps a copy of the job; "": none.
	Heir  cluster.WorkerID `json:"heir,omitempty"`
	Epoch int              `json:"epoch,omitempty"` // how often it was taken over or got another heir
	// Usage is what its tasks used; nil: the request may not see it, or the member that keeps the job does not know.
	Usage *Usage `json:"usage,omitempty"`
	Held  bool   `json:"held,omitempty"` // it is on hold: none of its tasks starts
	// ETA and Queue are of an unfinished job that may start, when it is asked for alone; nil: nothing is known, or the
	// member that keeps the job is of a build that does not say it.
	ETA   *ETA   `json:"eta,omitempty"`
	Queue *Queue `json:"queue,omitempty"`
	// Helps is what would have its waiting tasks start sooner; "": nothing is known that would.
	Helps string `json:"helps,omitempty"`
}

// Span is a range of times. Took is the range that eight of ten recent tasks fell in.
type Span struct {
	LowMS  float64 `json:"low_ms"`
	HighMS float64 `json:"high_ms"`
}

// FirstFail is the task that failed first.
type FirstFail struct {
	Index    int    `json:"index"`
	ExitCode int    `json:"exit_code"`
	Error    string `json:"error,omitempty"`
}

// Done returns how many tasks will not run any more.
func (s *Job) Done() int { return s.Succeeded + s.Failed + s.Cancelled }

// Task is the status of one task.
type Task struct {
	Index    int              `json:"index"`
	State    string           `json:"state"`               // waiting, running, succeeded, failed, cancelled
	Attempt  int              `json:"attempt,omitempty"`   // the newest; 0: none was started
	ExitCode *int             `json:"exit_code,omitempty"` // of the newest attempt that ended
	Worker   cluster.WorkerID `json:"worker,omitempty"`
	BeganAt  *time.Time       `json:"began_at,omitempty"` // of the running attempt, else the newest that ended
	EndedAt  *time.Time       `json:"ended_at,omitempty"` // of the newest attempt that ended
	TookMS   float64          `json:"took_ms,omitempty"`
	// of the newest attempt that ended: its CPU time, user and system, and its memory at its peak; 0: not known
	CPUMS     float64    `json:"cpu_ms,omitempty"`
	PeakBytes int64      `json:"peak_memory_bytes,omitempty"`
	Detail    string     `json:"detail,omitempty"`
	Output    int        `json:"output_bytes"`
	Files     *TaskFiles `json:"files,omitempty"` // of the newest attempt that ended; nil: none were to be kept
}

// TaskFiles are the files that a task left. Its worker keeps them.
type TaskFiles struct {
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	Why   string `json:"why,omitempty"` // why not all that was to be kept is; "": it is
	// Life is the attempt that left them, as its worker knows it.
	Life string `json:"life"`
}

// Status returns the status of a job, by its ID or its name.
func (d *Dispatcher) Status(now time.Time, id string) (Job, error) {
	j := d.jobNamed(id)
	if j == nil {
		return Job{}, noJob(id)
	}
	return d.statusOf(now, j, true), nil
}

// Progress is how far a job is.
type Progress struct {
	ID   string
	Done int  // its tasks that will not run any more
	Over bool // its state is final
}

// Progress returns how far a job is, by its ID or its name. Unlike Status it costs nothing to speak of.
func (d *Dispatcher) Progress(ref string) (Progress, error) {
	j := d.jobNamed(ref)
	if j == nil {
		return Progress{}, noJob(ref)
	}
	return Progress{ID: j.id, Done: j.counts[finished] + j.counts[cancelled], Over: j.isOver() && j.sealed}, nil
}

// HasWork reports whether there are unfinished jobs.
func (d *Dispatcher) HasWork() bool { return len(d.order) > len(d.done) }

// Hello returns the first message of this member's buyer to a worker.
func (d *Dispatcher) Hello(self cluster.WorkerID) Hello {
	h := Hello{Buyer: self, Epochs: map[string]int{}}
	for _, j := range d.order {
		if j.rival != nil {
			continue
		}
		h.Jobs = append(h.Jobs, j.id)
		if j.epoch > 0 {
			h.Epochs[j.id] = j.epoch
		}
	}
	return h
}

// jobNamed returns a job by its ID, or else the newest job of that name.
func (d *Dispatcher) jobNamed(ref string) *job {
	if ref == "" {
		return nil
	}
	if j := d.jobs[ref]; j != nil && j.rival == nil {
		return j
	}
	for _, j := range slices.Backward(d.order) {
		if j.spec.Name == ref && j.rival == nil {
			return j
		}
	}
	return nil
}

// IDOf returns the ID of a job that is named by its ID or its name; "": there is none.
func (d *Dispatcher) IDOf(ref string) string {
	if j := d.jobNamed(ref); j != nil {
		return j.id
	}
	return ""
}

// List returns the status of an app's jobs, of all jobs for "", oldest first.
func (d *Dispatcher) List(now time.Time, app string) []Job {
	out := []Job{}
	for _, j := range d.order {
		if (app == "" || j.spec.App == app) && j.rival == nil {
			out = append(out, d.statusOf(now, j, false))
		}
	}
	return out
}

func (d *Dispatcher) statusOf(now time.Time, j *job, why bool) Job {
	s := Job{ID: j.id, Spec: j.spec, Tasks: len(j.tasks), Waiting: j.counts[waiting], Running: j.counts[granted] +
		j.counts[running],
		Succeeded: j.ok, Failed: j.counts[finished] - j.ok, Cancelled: j.counts[cancelled], Retried: j.retried,
		Evicted: j.evicted, Lost: j.lost, Submitted: j.submitted,
		TaskMS: float64(j.estimate) / 1000, Why: j.why, Epoch: j.epoch,
		Usage: j.used.usage(), Held: j.onHold && !j.isOver()}
	if j.heir != "" && j.isHeadSafe() {
		s.Heir = j.heir
	}
	if j.hasScheduler() { // a task that is granted may wait at its worker
		s.Waiting, s.Running = s.Waiting+j.counts[granted], j.counts[running]
	}
	end := now
	switch {
	case j.isOver() && j.sealed:
		s.State, end = Succeeded, j.ended
		if s.Ended = &j.ended; j.why != "" {
			s.State = Cancelled
		} else if s.Failed > 0 {
			s.State = Failed
		} else if s.Cancelled > 0 {
			s.State = Cancelled
		}
	case s.Waiting == len(j.tasks) && j.retried == 0:
		s.State = Waiting
	default:
		s.State = Running
	}
	s.Elapsed = float64(end.Sub(j.submitted)) / 1e6
	if ran := s.Succeeded + s.Failed; ran > 0 && s.Elapsed > 0 {
		s.PerSecond = 1000 * float64(ran) / s.Elapsed
	}
	s.Took, s.Left = j.taskSpans(s.Waiting, s.Running)
	if i := j.firstFail; i >= 0 {
		r := j.tasks[i].result
		s.FirstFail = &FirstFail{r.Index, r.Code, exitDetail(r)}
	}
	if why && s.Waiting > 0 && j.why == "" {
		s.Why = d.explainWaiting(now, j)
	}
	if why {
		d.addForecast(now, j, &s)
	}
	s.Why = cmp.Or(s.Why, j.dropWhy)
	return s
}

// taskSpans returns the run time of one task, and the time until the last task has ended. The low end of left has the
// running tasks end now, the high end has them just begun.
func (j *job) taskSpans(waiting, running int) (took, left *Span) {
	low, high, known := j.times.usualSpan()
	if !known {
		return nil, nil
	}
	took = &Span{float64(low) / 1000, float64(high) / 1000}
	if running > 0 {
		rounds := float64(waiting) / float64(running)
		left = &Span{rounds * took.LowMS, math.Ceil(rounds+1) * took.HighMS}
	}
	return took, left
}

// explainWaiting says in one sentence why a job's tasks wait: the judge's reason on the workers, and the tasks ahead
// of them.
func (d *Dispatcher) explainWaiting(now time.Time, j *job) string {
	switch {
	case j.uncertain && d.isAdopting(j):
		return "this member has just taken the job over, and asks the workers which of its tasks run"
	case j.uncertain:
		return "it is being asked whether member " + string(j.heir) + " has taken the job over meanwhile"
	case !j.unpaid.IsZero():
		return "namespace " + cmp.Or(j.spec.Namespace, "default") +
			" cannot pay for another task of it now; it is tried again every few seconds"
	}
	if text := d.explainGate(j); text != "" {
		return text
	}
	sh := d.queueOf(j.shape())
	if text := d.explainCap(sh); text != "" {
		return text
	}
	if j.hasScheduler() {
		return d.explainHanded(j)
	}
	here, room, saved, tasks := 0, 0, 0, 0
	var clauses []machine.Clause
	for _, s := range d.inOrder {
		if !s.here {
			continue
		}
		here++
		tasks += len(s.running) + len(s.open)
		switch v := s.judgeShape(sh); {
		case !v.Fits:
			clauses = append(clauses, v.Failing[0])
		case d.savesForOther(now, s, sh) || d.keepsForOthers(now, s, sh):
			saved++
		case s.free > 0:
			room++
		}
	}
	if here == 0 {
		return d.explainUnconnected(sh)
	}
	text := fmt.Sprintf("%s busy with %s", countNoun(here, "worker is", "workers are"),
		countNoun(tasks, "task", "tasks"))
	switch {
	case room > 0:
		text = fmt.Sprintf("%s room, so it is about to begin", countNoun(room, "worker has", "workers have"))
	case len(clauses) > 0:
		no := fmt.Sprintf("%s (on %d of %d)", placement.ClauseText(clauses[0]), len(clauses), here)
		if text += "; " + no; tasks == 0 {
			text = no
		}
	case tasks == 0:
		text = countNoun(here, "worker has", "workers have") + " not asked for a task yet"
	case saved > 0:
		text += fmt.Sprintf("; %s room for what comes before these", countNoun(saved, "of them keeps",
			"of them keep"))
	default:
		text += ", as many as they take at once"
	}
	for _, more := range []string{d.explainReservation(now, j), d.explainShare(now, j)} {
		if more != "" {
			text += "; " + more
		}
	}
	if tasks, jobs := d.countAhead(j, sh); tasks > 0 {
		text += fmt.Sprintf("; %s of %s come before these", countNoun(tasks, "task", "tasks"),
			countNoun(jobs, "job", "jobs"))
	}
	return text
}

// countAhead counts the waiting tasks, and their jobs, that go before those of a job. Between accounts each worker decides
// by what they have used there: only those of the same one are counted.
func (d *Dispatcher) countAhead(j *job, sh *shapeQueue) (tasks, jobs int) {
	rank := sh.queue.Rank(j.number)
	for _, other := range d.queues {
		if other.shape.Account() == sh.shape.Account() {
			t, l := other.queue.Ahead(rank, j.number)
			tasks, jobs = tasks+int(t), jobs+int(l)
		}
	}
	return tasks, jobs
}

// explainUnconnected says why no worker is connected that could take a task of a shape.
func (d *Dispatcher) explainUnconnected(sh *shapeQueue) string {
	near := 0
	var never []machine.Clause
	for _, s := range d.inOrder {
		if !s.near {
			continue
		}
		near++
		if v := s.judgeShape(sh); v.Never {
			never = append(never, v.Failing[0])
		}
	}
	switch {
	case near == 0:
		return "no worker is connected"
	case near == len(never):
		return fmt.Sprintf("%s (on all of %d)", placement.ClauseText(never[0]), near)
	}
	return countNoun(near-len(never), "worker is", "workers are") + " being connected"
}

// savesForOther reports whether a worker saves room for tasks of another shape.
func (d *Dispatcher) savesForOther(now time.Time, s *workerState, sh *shapeQueue) bool {
	return slices.ContainsFunc(d.queues, func(x *shapeQueue) bool {
		return x != sh && x.saver == s && !now.After(x.until)
	})
}

// countNoun writes a number with its noun: "1 task", "1,200 tasks".
func countNoun(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String() + " " + many
}

// TaskQuery selects tasks: those from index From on, and only those in States unless it is empty.
type TaskQuery struct {
	From   int
	Limit  int
	States []string
}

// Tasks returns a job's tasks, ordered by index. next is the index to continue at, -1 at the end.
func (d *Dispatcher) Tasks(now time.Time, id string, q TaskQuery) (out []Task, next int, err error) {
	j := d.jobNamed(id)
	if j == nil {
		return nil, -1, noJob(id)
	}
	for i := j.array.From(q.From); i < len(j.tasks); i++ {
		if len(out) == q.Limit {
			return out, j.array.At(i), nil
		}
		s := j.taskStatus(now, i)
		keep := len(q.States) == 0
		for _, want := range q.States {
			keep = keep || want == s.State
		}
		if keep {
			out = append(out, s)
		}
	}
	return out, -1, nil
}

// Output finds one task's output: r is the result of its newest ended attempt, which says where in the job's file the
// output is; live and worker are the running attempt.
func (d *Dispatcher) Output(id string, index int) (r *Result, live *Life, worker cluster.WorkerID, err error) {
	j := d.jobNamed(id)
	if j == nil {
		return nil, nil, "", noJob(id)
	}
	i, ok := j.placeOf(index)
	if !ok {
		return nil, nil, "", noTask(j, index)
	}
	t := &j.tasks[i]
	if t.state == running {
		l := j.lifeOf(i)
		live, worker = &l, t.worker
	}
	return t.result, live, worker, nil
}

func (j *job) taskStatus(now time.Time, i int) Task {
	t := &j.tasks[i]
	s := Task{Index: j.array.At(i), State: stateNames[t.state], Attempt: TryOf(int(t.attempt)), Worker: t.worker}
	if t.state == granted {
		if s.State = stateNames[running]; j.hasScheduler() {
			s.State = stateNames[waiting]
		}
	}
	if t.state == running && t.began > 0 {
		s.BeganAt, s.TookMS = timeOf(t.began), float64(now.UnixMicro()-t.began)/1000
	}
	if r := t.result; r != nil && t.state != running {
		code := r.Code
		s.ExitCode, s.Worker, s.Detail, s.Output = &code, r.Worker, exitDetail(r), r.Bytes
		s.BeganAt, s.EndedAt, s.TookMS = timeOf(r.Began), timeOf(r.Ended), float64(r.ranFor())/1000
		s.CPUMS, s.PeakBytes = float64(r.UsedCPU)/1000, r.PeakKiB<<10
		if r.Left != nil {
			l := j.lifeOf(i)
			l.Attempt = r.Attempt
			s.Files = &TaskFiles{r.Left.Files, r.Left.Bytes, r.Left.Why, l.String()}
		}
		if t.state == finished {
			s.Attempt = TryOf(r.Attempt) // another member's result may be of an older attempt than the newest here
			if s.State = "failed"; r.isSuccess() {
				s.State = "succeeded"
			}
		}
	}
	return s
}

// timeOf returns a time in unix microseconds; nil for 0, which is not known.
func timeOf(us int64) *time.Time {
	if us <= 0 {
		return nil
	}
	t := time.UnixMicro(us).UTC()
	return &t
}

// exitDetail describes what the exit code does not show.
func exitDetail(r *Result) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Lost:
		return "nobody saw its end"
	case r.OOM:
		return "it wanted more memory than the job gives it"
	case r.TimedOut:
		return "it ran for longer than --timeout allows"
	case r.Signal != 0:
		return fmt.Sprintf("ended by signal %d", r.Signal)
	}
	return ""
}
