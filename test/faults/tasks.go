package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// Bounds of the jobs besides the clients' machines.
const (
	MaxJobs  = 100
	taskMB   = 8
	failsAt  = 3                // a task whose index is this, modulo failMod, exits with failCode
	failMod  = 7                // see failsAt
	failCode = 3                // see failsAt
	longMod  = 5                // of a job whose tasks are cancelled, each task with an index divisible by this is long
	longTask = 10 * time.Minute // longer than a run waits: only a cancel ends it
	jobsIn   = 90 * time.Second // until all jobs have ended, after the clients have
	strayIn  = 30 * time.Second // until no process of a task is left, after the jobs have ended
)

// cancelling is what a client cancels of a job.
type cancelling int

const (
	cancelNothing cancelling = iota
	cancelLong               // the tasks that do not end by themselves
	cancelAll                // the job, of whose tasks none ends by itself
)

// submitted is one job of a client, and what its keepers have said of it.
type submitted struct {
	id       string
	at       *member // the member where it was submitted
	spec     jobs.Spec
	cancel   cancelling
	accepted bool // its submission was answered
	unclear  bool // no answer came, but the submission may have arrived
	answered bool // its cancel was, too

	mu       sync.Mutex // only one at a time looks
	asked    *member    // the next look asks this one
	keepers  map[string]bool
	ended    *sight // as first shown in a final state
	shown    map[int]sight
	replaced int      // results that were shown, and are not those of the member that keeps the job now
	wrong    []string // at most mostWrong
}

// mostWrong bounds the violations that one job reports.
const mostWrong = 3

func (j *submitted) isWrong(format string, a ...any) {
	if len(j.wrong) < mostWrong {
		j.wrong = append(j.wrong, j.title()+": "+fmt.Sprintf(format, a...))
	}
}

// title names the job in a violation.
func (j *submitted) title() string {
	return fmt.Sprintf("job %s of %s by %s", j.id, j.at.id, schedulerName(j.spec.Scheduler))
}

// submitter is a client that submits jobs, cancels some, and looks at all of them again and again.
type submitter struct {
	*load
	absences
	dir string // the tasks' witness files
	rng *rand.Rand
	// choice draws schedulers, others for each fault. It is not rng, whose seeds draw the same jobs as before schedulers.
	choice *rand.Rand
	every  time.Duration // between two submissions
	// some members run a souk from before there were heirs: only the member that was asked answers for a job
	oldSouk bool
	calls   sync.WaitGroup

	jobsMu sync.Mutex
	jobs   []*submitted
}

// newSubmitter makes the client of a run's jobs.
func (r *run) newSubmitter() (*submitter, error) {
	s := &submitter{load: r.load, absences: absences{cut: isCut(r.o.Fault)},
		oldSouk: r.o.Fault == Mixed, dir: filepath.Join(r.o.Dir, "tasks"),
		rng: rand.New(rand.NewPCG(r.o.Seed, 2000)), choice: rand.New(rand.NewPCG(r.o.Seed,
			2001+uint64(slices.Index(All(), r.o.Fault))))}
	if r.o.Jobs > 0 {
		s.every = (before + r.o.For + after) / time.Duration(r.o.Jobs)
	}
	err := os.Mkdir(s.dir, 0o700)
	if err == nil {
		err = os.Chmod(s.dir, 0o777) // tasks' users write there
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeWitness, "the witnesses of tasks have no directory")
	}
	return s, nil
}

// taskScript is a task. It holds a lock that its processes share while one lives, and notes its attempt. $0 is the
// directory of the witnesses, $1 how many seconds it takes, $2 those of a long task, $3 which tasks are long. A souk
// from before there were heirs sets no SOUK_EPOCH.
const taskScript = `umask 0
exec 9>>"$0/$SOUK_JOB.lock"
flock -s 9
echo "$SOUK_INDEX ${SOUK_EPOCH:-0} $SOUK_ATTEMPT $SOUK_WORKER" >> "$0/$SOUK_JOB.begun"
if [ $((SOUK_INDEX %% $3)) -eq 0 ]; then sleep "$2"; else sleep "$1"; fi
[ $((SOUK_INDEX %% %d)) -ne %d ] || exit %d`

// draw draws the next job.
func (s *submitter) draw() *submitted {
	j := &submitted{id: fmt.Sprintf("j%010x", s.rng.Uint64N(1<<40)), at: s.ms[s.rng.IntN(len(s.ms))],
		cancel:  []cancelling{cancelNothing, cancelNothing, cancelNothing, cancelLong, cancelAll}[s.rng.IntN(5)],
		keepers: map[string]bool{}, shown: map[int]sight{}}
	j.asked, j.keepers[j.at.id] = j.at, true
	first, tasks, long := s.rng.IntN(3), 20+s.rng.IntN(60), jobs.MaxIndex
	switch j.cancel {
	case cancelLong:
		first, tasks, long = 1, 20+s.rng.IntN(20), longMod
	case cancelAll:
		tasks, long = 6+s.rng.IntN(10), 1
	case cancelNothing:
		first++ // no task is long: the index 0 would be
	}
	most := 0.3
	if s.cut {
		most = 5 // so that tasks run at both sides when a cut begins
	}
	took := fmt.Sprintf("%.2f", 0.05+most*s.rng.Float64())
	j.spec = jobs.Spec{App: app, Name: "drawn-" + j.id, First: first, Last: first + tasks - 1, MemoryMB: taskMB,
		Retries: s.rng.IntN(2), Command: []string{"/bin/sh", "-c", fmt.Sprintf(taskScript, failMod, failsAt, failCode),
			s.dir, took, fmt.Sprint(longTask.Seconds()), strconv.Itoa(long)}}
	if !s.oldSouk { // it knows no schedulers
		j.spec.Scheduler = drawScheduler(s.choice)
	}
	return j
}

// long lists the long tasks of a job that has some.
func (j *submitted) long() (out jobs.Indices) {
	for i := j.spec.First; i <= j.spec.Last; i++ {
		if i%longMod == 0 {
			out = append(out, jobs.Range{First: i, Last: i})
		}
	}
	return out
}

// work submits jobs at random members until it is told to stop.
func (s *submitter) work(ctx context.Context) {
	for n := 0; n < s.o.Jobs && !s.stopped() && ctx.Err() == nil; n++ {
		j, after := s.draw(), time.Duration(s.rng.Int64N(int64(3*time.Second)))
		s.calls.Go(func() { s.submit(ctx, j, after) })
		_ = wait(ctx, s.every) // it ends with ctx
	}
	s.calls.Wait()
}

// submit submits a job, and cancels it, or a part of it, after a while.
func (s *submitter) submit(ctx context.Context, j *submitted, after time.Duration) {
	tries, err := s.ask(ctx, func(ctx context.Context) error {
		_, err := j.at.cl.SubmitJob(ctx, j.id, j.spec)
		return err
	})
	f := fault.As(err)
	j.accepted, j.unclear = err == nil, err != nil && (tries > 1 || unanswered(f))
	if err != nil && !unanswered(f) && !doubtful(f) && f.Kind != fault.Exhausted {
		(&caller{load: s.load}).oddAnswer(fmt.Sprintf("job %s by %s: %s", j.id, j.at.id, f.Error()))
	}
	if !j.accepted && !j.unclear {
		return
	}
	s.jobsMu.Lock()
	s.jobs = append(s.jobs, j)
	s.jobsMu.Unlock()
	if j.accepted && j.cancel != cancelNothing && wait(ctx, after) == nil {
		_, err := s.ask(ctx, j.tell)
		j.answered = err == nil
	}
}

// tell cancels what is to be cancelled of a job.
func (j *submitted) tell(ctx context.Context) (err error) {
	switch j.cancel {
	case cancelLong:
		_, err = j.at.cl.CancelTasks(ctx, j.id, j.long())
	case cancelAll:
		_, err = j.at.cl.CancelJob(ctx, j.id)
	case cancelNothing:
	}
	return err
}

// ask repeats a call until it is answered, or the calls are given up. A repeated call has the same effect.
func (s *submitter) ask(ctx context.Context, do func(ctx context.Context) error) (tries int, err error) {
	for rest := 50 * time.Millisecond; ; rest = min(2*rest, maxRest) {
		tries++
		try, cancel := context.WithTimeout(ctx, askTime)
		err = do(try)
		cancel()
		if !unanswered(fault.As(err)) || s.over(ctx) {
			return tries, err
		}
		if wait(ctx, rest/2+rand.N(rest)) != nil { // not from the seed: other calls go on beside it
			return tries, err
		}
	}
}

// watch looks at one job after the other until the clients are told to stop.
func (s *submitter) watch(ctx context.Context) {
	for n := 0; !s.stopped() && ctx.Err() == nil; n++ {
		s.jobsMu.Lock()
		var j *submitted
		if len(s.jobs) > 0 {
			j = s.jobs[n%len(s.jobs)]
		}
		s.jobsMu.Unlock()
		if j != nil {
			try, cancel := context.WithTimeout(ctx, askTime)
			_, _, _ = s.look(try, j) // what has no answer is looked at again
			cancel()
		}
		_ = wait(ctx, askPause) // it ends with ctx
	}
}

// isEnded reports whether a task is shown as one that does not run again.
func isEnded(t jobs.Task) bool {
	return t.State == "succeeded" || t.State == "failed" || t.State == string(jobs.Cancelled)
}

// attempt is one attempt of a task, as it noted itself.
type attempt struct {
	index, epoch, try int
	worker            string
}

// attemptsOf reads the attempts of a job that noted themselves.
func attemptsOf(dir, id string) (out []attempt, err error) {
	f, err := os.Open(filepath.Join(dir, id+".begun"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var a attempt
		if n, err := fmt.Sscan(sc.Text(), &a.index, &a.epoch, &a.try, &a.worker); n != 4 {
			return nil, fmt.Errorf("the line %q of job %s is no attempt: %w", sc.Text(), id, err)
		}
		out = append(out, a)
	}
	return out, sc.Err()
}

// verify notes what is wrong with a job that has ended: each task must have one result, which is that of an attempt
// that ran, and no attempt may have begun twice. hard says that the fault kept programs from doing their work, so that
// their exit codes say little. divided says that two members may have kept the job for a while: each of them could begin
// an attempt of the same epoch and try, at another worker.
func (j *submitted) verify(job *jobs.Job, tasks []jobs.Task, ran []attempt, hard, divided bool) {
	if len(tasks) != j.spec.Tasks() || job.Done() != j.spec.Tasks() {
		j.isWrong("of %d tasks %d are listed, and %d counted as ended", j.spec.Tasks(), len(tasks), job.Done())
	}
	at := map[attempt]string{}  // without the worker
	where := map[attempt]bool{} // without the epoch, which the API does not show
	for _, a := range ran {
		key := attempt{a.index, a.epoch, a.try, ""}
		if first, again := at[key]; again && (first == a.worker || !divided) {
			j.isWrong("attempt %d of task %d in epoch %d was begun twice, first at %s, then at %s", a.try, a.index,
				a.epoch, first, a.worker)
		}
		at[key], where[attempt{a.index, 0, a.try, a.worker}] = a.worker, true
	}
	for _, t := range tasks {
		switch {
		case !isEnded(t):
			j.isWrong("it is %s, and its task %d is %s", job.State, t.Index, t.State)
		case t.State == string(jobs.Cancelled):
			if j.cancel == cancelNothing {
				j.isWrong("its task %d is cancelled, which nobody asked for", t.Index)
			}
		case t.ExitCode == nil:
			j.isWrong("its task %d is %s without an exit code", t.Index, t.State)
		case hard || *t.ExitCode == -1: // it was lost too often
		case *t.ExitCode != wantedCode(t.Index):
			j.isWrong("its task %d is %s with exit code %d (%s), not %d", t.Index, t.State, *t.ExitCode, t.Detail,
				wantedCode(t.Index))
		case !where[attempt{t.Index, 0, t.Attempt, string(t.Worker)}]:
			j.isWrong("its task %d has the result of attempt %d at %s, which never began", t.Index, t.Attempt, t.Worker)
		}
	}
}

func wantedCode(index int) int {
	if index%failMod == failsAt {
		return failCode
	}
	return 0
}

// settle waits until a job has ended and all members agree about it, and checks it. It returns its tasks; none: it was
// never submitted, or has not ended. forgot says that the disk of a keeper went back in time.
func (s *submitter) settle(ctx context.Context, j *submitted, forgot bool) []jobs.Task {
	for {
		try, cancel := context.WithTimeout(ctx, askTime)
		if j.cancel != cancelNothing && (!j.answered || forgot) {
			j.answered = j.tell(try) == nil
		}
		job, tasks, err := s.look(try, j)
		if err == nil && !job.State.Final() {
			err = fmt.Errorf("it is %s, with %d tasks waiting and %d running: %s", job.State, job.Waiting, job.Running,
				job.Why)
		}
		if err == nil {
			err = s.agreed(try, &job)
		}
		cancel()
		switch {
		case err == nil:
			ran, err := attemptsOf(s.dir, j.id)
			if err != nil {
				j.isWrong("%v", err)
			}
			j.verify(&job, tasks, ran, s.o.Fault == PIDs || s.o.Fault == Exhaustion, s.excuses(time.Time{}))
			return tasks
		case fault.CodeOf(err) == fault.CodeJobNotFound && (s.o.Fault != OldDisk || !j.accepted):
			return nil // look has noted it; after a start with an old disk, the heir takes it over soon
		case s.oldSouk && !j.accepted && fault.CodeOf(err) == fault.CodeJobMember:
			return nil // a newer member cannot ask the older ones whether they keep it, and has not taken it
		}
		if wait(ctx, askPause) != nil {
			j.isWrong("%v after the clients it has not ended with the same keeper at all members: %v", jobsIn, err)
			return nil
		}
	}
}

// lives reports whether a process of a job's tasks lives on any host.
func (s *submitter) lives(j *submitted) (bool, error) {
	f, err := os.Open(filepath.Join(s.dir, j.id+".lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// jobsEnd waits until all jobs have ended and no process of a task is left, and reports what is wrong. That no room of
// tasks is left in a worker's record is an invariant of the doctor, which is asked after this.
func (r *run) jobsEnd(ctx context.Context) error {
	if r.batch == nil || len(r.batch.jobs) == 0 {
		return nil
	}
	s := r.batch
	until, cancel := context.WithTimeout(ctx, jobsIn)
	defer cancel()
	var all sync.WaitGroup
	ended := make([][]jobs.Task, len(s.jobs))
	for i, j := range s.jobs {
		all.Go(func() { ended[i] = s.settle(until, j, r.forgets(j)) })
	}
	all.Wait()
	r.rep.JobsEnded = time.Since(r.till).Seconds()
	for i, j := range s.jobs {
		r.countTasks(j, ended[i])
	}
	if err := r.noTaskLives(ctx); err != nil {
		return fault.Wrap(err, fault.Internal, codeWitness, "what the witnesses of tasks say cannot be read")
	}
	wrong := 0
	for _, j := range s.jobs {
		if r.forgets(j) {
			continue // its keeper has forgotten what it had answered, and which attempts it had given out
		}
		wrong += len(j.wrong)
		r.rep.Violations = append(r.rep.Violations, j.wrong...)
	}
	s.jobsMu.Lock()
	wrong += len(s.unshown)
	r.rep.Violations = append(r.rep.Violations, s.unshown...)
	r.rep.Shown, r.rep.Deaths = s.slowest.Seconds(), s.deaths
	s.jobsMu.Unlock()
	r.say("%d jobs of %d tasks have ended %.1f s after the fault: %d attempts began, %d tasks ran at another member, "+
		"%d were cancelled, %d were lost too often; %d jobs were taken over, %d results replaced; %d times a keeper "+
		"of jobs was down, which others showed after %.2f s at most; %d sentences", r.rep.Jobs, r.rep.Tasks,
		r.rep.JobsEnded, r.rep.Attempts, r.rep.Away, r.rep.Cancelled, r.rep.Lost, r.rep.Adopted, r.rep.Replaced,
		r.rep.Deaths, r.rep.Shown, wrong)
	return ctx.Err()
}

func (r *run) countTasks(j *submitted, tasks []jobs.Task) {
	if tasks == nil {
		return
	}
	r.rep.Jobs++
	if r.rep.Schedulers == nil {
		r.rep.Schedulers = map[string]int{}
	}
	r.rep.Schedulers[schedulerName(j.spec.Scheduler)]++
	ran, _ := attemptsOf(r.batch.dir, j.id) // settle has noted the error
	r.rep.Attempts += len(ran)
	r.rep.Replaced += j.replaced
	if j.asked != j.at {
		r.rep.Adopted++
	}
	for _, t := range tasks {
		r.rep.Tasks++
		switch {
		case t.State == string(jobs.Cancelled):
			r.rep.Cancelled++
		case string(t.Worker) != j.at.id:
			r.rep.Away++
		}
		if t.ExitCode != nil && *t.ExitCode == -1 && t.State == "failed" {
			r.rep.Lost++
		}
	}
}

// noTaskLives waits until no process of a task lives.
func (r *run) noTaskLives(ctx context.Context) error {
	until, cancel := context.WithTimeout(ctx, strayIn)
	defer cancel()
	left := slices.Clone(r.batch.jobs)
	for {
		var err error
		left = slices.DeleteFunc(left, func(j *submitted) bool {
			lives, errJ := r.batch.lives(j)
			err = errors.Join(err, errJ)
			return !lives || r.forgets(j) // a job that its keeper forgot is ended by nobody
		})
		if err != nil || len(left) == 0 {
			return err
		}
		if wait(until, askPause) != nil {
			for _, j := range left {
				j.wrong = append([]string{fmt.Sprintf("%s: a process of its tasks lives %v after all jobs have ended",
					j.title(), strayIn)}, j.wrong...)
			}
			return nil
		}
	}
}
