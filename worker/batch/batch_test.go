package batch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
	"github.com/soukhq/souk/worker/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a worker with its runner, over a runtime that outlives it.
type host struct {
	*worker.Worker
	t      testing.TB
	id     cluster.WorkerID
	rt     *fake.Runtime
	j      *mem.Journal
	runner *batch.Runner
	conn   batch.RunnerConn // the newest with the runner
	stop   func()
}

var twoAtOnce = cluster.Resources{CPU: 2000, Memory: 1024, Disk: 1000}

func openHost(t testing.TB, id cluster.WorkerID, rt *fake.Runtime, j *mem.Journal) *host {
	t.Helper()
	return openHostWith(t, rt, j, batch.RunnerOptions{Worker: id, Slots: 4})
}

func openHostWith(t testing.TB, rt *fake.Runtime, j *mem.Journal, o batch.RunnerOptions) *host {
	t.Helper()
	o.Runtime = rt
	h := &host{t: t, id: o.Worker, rt: rt, j: j, runner: batch.NewRunner(o)}
	var err error
	h.Worker, err = worker.New(t.Context(), worker.Options{ID: o.Worker, Region: "local", Dir: t.TempDir(),
		Capacity: twoAtOnce, Journal: j, Runtime: rt, Tasks: h.runner})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// run begins to work, behind the attachment to a buyer.
func (h *host) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = h.Worker.Run(ctx) }) // its journal never fails here
	wg.Go(func() { h.runner.Run(ctx, h.Worker) })
	h.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	h.t.Cleanup(h.stop)
}

// shop is a buyer and what outlives it.
type shop struct {
	*batch.Buyer
	t    testing.TB
	j    *mem.Journal
	dir  string
	boot string
	stop func()
}

func openShop(t testing.TB, j *mem.Journal, dir, boot string, hosts ...*host) *shop {
	t.Helper()
	s := &shop{t: t, j: j, dir: dir, boot: boot}
	var err error
	if s.Buyer, err = batch.OpenBuyer(batch.BuyerOptions{Journal: j, Dir: dir, Boot: boot}); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		s.attach(h.local())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		_ = s.Close()
	})
	t.Cleanup(s.stop)
	return s
}

// local returns a new connection with the host's runner.
func (h *host) local() batch.RunnerConn {
	h.conn = batch.Local(h.runner)
	return h.conn
}

// attach connects a runner.
func (s *shop) attach(c batch.RunnerConn) {
	s.t.Helper()
	if err := s.Attach(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
}

func spec(tasks int, argv ...string) jobs.Spec {
	s := jobs.Spec{App: "app", First: 1, Last: tasks, Command: argv, CPUKind: "performance"}
	if err := s.Settle(); err != nil {
		panic(err)
	}
	return s
}

// submit submits, and waits for the end.
func (s *shop) submit(id string, spec jobs.Spec) jobs.Job {
	s.t.Helper()
	if _, err := s.Submit(s.t.Context(), id, spec); err != nil {
		s.t.Fatal(err)
	}
	return s.end(id)
}

func (s *shop) end(id string) jobs.Job {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	j, err := s.Wait(ctx, id, jobs.MaxTasks)
	if err != nil || !j.State.Final() {
		s.t.Fatalf("%+v, %v", j, err)
	}
	return j
}

// until waits until so many tasks of a job run.
func (s *shop) until(id string, running int) {
	s.t.Helper()
	s.job(id, fmt.Sprintf("%d tasks run", running), func(j jobs.Job) bool {
		tasks, _, err := s.Tasks(s.t.Context(), id, jobs.TaskQuery{Limit: 100, States: []string{"running"}})
		return err == nil && len(tasks) == running && j.Running == running &&
			slices.IndexFunc(tasks, func(t jobs.Task) bool { return t.TookMS == 0 }) < 0
	})
}

// job waits until a job is as is wants it.
func (s *shop) job(id, what string, is func(jobs.Job) bool) (j jobs.Job) {
	s.t.Helper()
	waittest.Until(s.t, what, func() bool {
		var err error
		if j, err = s.Status(s.t.Context(), id); err != nil {
			s.t.Fatal(err)
		}
		return is(j)
	})
	return j
}

const job1 = "j0000000001"

func TestArrayJobRunsAndIsListed(t *testing.T) {
	a := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	b := openHost(t, "w2", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", a, b)
	a.run()
	b.run()
	j := s.submit(job1, spec(50, "sh", "-c", "echo hello; exit 0"))
	if j.State != jobs.Succeeded || j.Succeeded != 50 {
		t.Fatalf("%+v", j)
	}
	var text []string
	if err := s.Logs(t.Context(), job1, 17, machine.LogQuery{},
		func(l machine.LogLine) error { text = append(text, l.Text); return nil }); err != nil || len(text) != 1 ||
		text[0] != "hello" {
		t.Fatalf("%q, %v", text, err)
	}
	tasks, next, err := s.Tasks(t.Context(), job1, jobs.TaskQuery{Limit: 30})
	if err != nil || next != 31 || len(tasks) != 30 {
		t.Fatalf("%d tasks, next %d, %v", len(tasks), next, err)
	}
}

// TestOldestJobOutputIsDroppedFirst: when the jobs of a namespace have written as much as is kept of them, also before souk began,
// the output of the one that ended first goes, which whoever asks for it is told. Its result stays.
func TestOldestJobOutputIsDroppedFirst(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	j, dir := mem.New(), t.TempDir()
	s := openShop(t, j, dir, "boot", h)
	h.run()
	hello := func(namespace string, n int) string {
		sp := spec(1, "sh", "-c", "echo hello; exit 0")
		sp.Namespace = namespace
		s.submit(jobs.ID(uint64(n)), sp)
		return jobs.ID(uint64(n))
	}
	written := func(id string) (text string, err error) {
		err = s.Logs(t.Context(), id, 1, machine.LogQuery{}, func(l machine.LogLine) error {
			text += l.Text
			return nil
		})
		return text, err
	}
	other := hello("", 100)
	for n := range 8 {
		if err := os.Truncate(filepath.Join(dir, hello("greedy", n)+".ndjson"), 256<<20); err != nil { // holes
			t.Fatal(err)
		}
	}
	for range 2 { // the second time nothing is written any more, and all is as it was
		s.stop()
		s = openShop(t, s.j.Reopen(), dir, "boot", h)
		if text, err := written(hello("greedy", 8)); text != "hello" || err != nil {
			t.Errorf("the new output is %q, %v", text, err)
		}
		text, err := written(jobs.ID(0))
		if text != "" || !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "to make room") {
			t.Errorf("the output of the oldest job is %q, %v", text, err)
		}
		for _, id := range []string{jobs.ID(1), other} {
			if text, err := written(id); text != "hello" || err != nil {
				t.Errorf("the output of job %s is %q, %v", id, text, err)
			}
		}
	}
	if got, err := s.Status(t.Context(), jobs.ID(0)); err != nil || got.State != jobs.Succeeded {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFailedTasksRetryWithinBounds(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	sp := spec(10, "sh", "-c", "exit 3")
	sp.Retries = 2
	if j := s.submit(job1, sp); j.State != jobs.Failed || j.Failed != 10 || j.Retried != 20 ||
		j.FirstFail.ExitCode != 3 {
		t.Fatalf("%+v", j)
	}
	most := 2
	sp = spec(100, "false")
	sp.MaxFails = &most
	j := s.submit("j0000000002", sp)
	if j.State != jobs.Cancelled || j.Failed < 3 || j.Cancelled == 0 || j.FirstFail == nil {
		t.Fatalf("%+v", j)
	}
	sp = spec(1, "no-such-program")
	if j := s.submit("j0000000003", sp); j.FirstFail == nil || j.FirstFail.ExitCode != 127 || j.FirstFail.Error == "" {
		t.Fatalf("%+v", j)
	}
	sp = spec(1, "sleep", "1000")
	sp.TimeoutMS = 20
	if j := s.submit("j0000000004", sp); j.State != jobs.Failed || j.FirstFail.ExitCode != 143 {
		t.Fatalf("%+v", j)
	}
}

// TestTasksAndMachinesShareOneLedger: what a machine has no task gets, and a task waits, with the judge's words.
func TestTasksAndMachinesShareOneLedger(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	if err := h.AdmitTask(t.Context(),
		lifecycle.Task{Name: "held", App: "other", Want: cluster.Resources{CPU: 1500}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Submit(t.Context(), job1, spec(2, "true")); err != nil {
		t.Fatal(err)
	}
	// The buyer may have granted by an older record: it is refused, and learns.
	s.job(job1, "it waits and says why", func(j jobs.Job) bool {
		return j.State == jobs.Waiting && strings.Contains(j.Why, "cpu: wanted 1, had 0.5 free of 2")
	})
	if err := h.ReleaseTask(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	if j := s.end(job1); j.State != jobs.Succeeded {
		t.Fatalf("%+v", j)
	}
	if rec, err := h.Record(t.Context()); err != nil || !rec.Used.IsZero() {
		t.Fatalf("%v, %v", rec.Used, err)
	}
}

// TestBuyerDeathRepeatsNoTask: the running tasks of a dead buyer are found again, none begins twice, and each has one
// result.
func TestBuyerDeathRepeatsNoTask(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	j, dir := mem.New(), t.TempDir()
	s := openShop(t, j, dir, "boot", h)
	h.run()
	if _, err := s.Submit(t.Context(), job1, spec(5, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 2)
	s.stop()
	endOne(t, h) // while there is no buyer
	again := openShop(t, j.Reopen(), dir, "boot", h)
	for ended := 1; ended < 5; ended++ {
		if _, err := again.Wait(t.Context(), job1, ended-1); err != nil {
			t.Fatal(err)
		}
		again.until(job1, min(2, 5-ended))
		endOne(t, h)
	}
	if j := again.end(job1); j.Succeeded != 5 {
		t.Fatalf("%+v", j)
	}
	if n := started(h); len(n) != 5 {
		t.Fatalf("%d lives were begun, want 5: %v", len(n), n)
	}
}

// endOne ends one of the tasks that run, with 0; one that is said to run may be about to. not names what is no task.
func endOne(t *testing.T, h *host, not ...string) {
	t.Helper()
	waittest.Until(t, "something runs", func() bool {
		lives, err := h.rt.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(lives, func(l runtime.Status) bool {
			return l.Running && !slices.Contains(not, l.Machine) && h.rt.End(l.Machine, 0) == nil
		})
	})
}

func started(h *host) map[string]int {
	n := map[string]int{}
	for _, e := range h.rt.Effects() {
		if e.Op == "start" {
			n[e.Machine]++
		}
	}
	return n
}

// TestWorkerDeathKeepsRunningTasks: the worker's successor with its journal takes over the running tasks, with their
// room.
func TestWorkerDeathKeepsRunningTasks(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	if _, err := s.Submit(t.Context(), job1, spec(3, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 2)
	h.stop()
	s.Detach(h.conn)
	h2 := openHost(t, "w1", h.rt.Reopen(), h.j.Reopen())
	if rec, err := h2.Record(t.Context()); err != nil || rec.Used.CPU != 2000 {
		t.Fatalf("two tasks run and the ledger has %v, %v", rec.Used, err)
	}
	s.attach(h2.local())
	h2.run()
	for ended := range 3 {
		s.until(job1, min(2, 3-ended))
		endOne(t, h2)
		if _, err := s.Wait(t.Context(), job1, ended); err != nil {
			t.Fatal(err)
		}
	}
	if j := s.end(job1); j.Succeeded != 3 {
		t.Fatalf("%+v", j)
	}
}

// TestHostDeathRerunsTasks: what ran is lost, and runs again with a larger attempt.
func TestHostDeathRerunsTasks(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	j, dir := mem.New(), t.TempDir()
	s := openShop(t, j, dir, "boot 1", h)
	h.run()
	if _, err := s.Submit(t.Context(), job1, spec(2, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 2)
	s.stop()
	h.stop()
	h.rt.CrashHost()
	h2 := openHost(t, "w1", h.rt.Reopen(), h.j.Reopen())
	again := openShop(t, j.Reopen(), dir, "boot 2", h2)
	h2.run()
	again.until(job1, 2)
	tasks, _, err := again.Tasks(t.Context(), job1, jobs.TaskQuery{Limit: 10})
	if err != nil || tasks[0].Attempt < 2 || tasks[1].Attempt < 2 {
		t.Fatalf("%+v, %v", tasks, err)
	}
	endOne(t, h2)
	endOne(t, h2)
	if j := again.end(job1); j.Succeeded != 2 {
		t.Fatalf("%+v", j)
	}
}

func TestCancelEndsRunningTasks(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	if _, err := s.Submit(t.Context(), job1, spec(100, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 2)
	if _, err := s.Cancel(t.Context(), job1); err != nil {
		t.Fatal(err)
	}
	if j := s.end(job1); j.State != jobs.Cancelled || j.Cancelled != 100 {
		t.Fatalf("%+v", j)
	}
	if _, err := s.Cancel(t.Context(), "nope"); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}

// TestJournalFailureStopsTheBuyer: the buyer stops and says so; what it had answered is there again.
func TestJournalFailureStopsTheBuyer(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	j, dir := mem.New(), t.TempDir()
	s := openShop(t, j, dir, "boot", h)
	h.run()
	if _, err := s.Submit(t.Context(), job1, spec(30, "true")); err != nil {
		t.Fatal(err)
	}
	j.FailAfter(2)
	for i := 2; ; i++ {
		if _, err := s.Submit(t.Context(), fmt.Sprintf("j%010x", i), spec(1, "true")); fault.Is(err,
			fault.Unavailable) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	again := openShop(t, j.Reopen(), dir, "boot", h)
	if j := again.end(job1); j.Succeeded != 30 {
		t.Fatalf("%+v", j)
	}
}

// BenchmarkTaskTurnaround is what lies between one task's end and the next one's begin at the same slot when the buyer is
// in the same process: all that a task fetched beforehand could save. The runtime is a fake that takes no time.
func BenchmarkTaskTurnaround(b *testing.B) {
	rt := fake.New(fake.Options{})
	h := &host{t: b, id: "w1", rt: rt, j: mem.New()}
	h.runner = batch.NewRunner(batch.RunnerOptions{Worker: "w1", Runtime: rt, Slots: 1})
	var err error
	if h.Worker, err = worker.New(b.Context(), worker.Options{ID: "w1", Region: "local", Dir: b.TempDir(),
		Capacity: twoAtOnce, Journal: h.j, Runtime: rt, Tasks: h.runner}); err != nil {
		b.Fatal(err)
	}
	s := openShop(b, mem.New(), b.TempDir(), "boot", h)
	h.run()
	n := 0
	for b.Loop() {
		n++
		if j := s.submit(jobs.ID(uint64(n)), spec(1000, "true")); j.Succeeded != 1000 {
			b.Fatalf("%+v", j)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(1000*n), "us/task")
}

// TestEndedWaitsLeaveNoMemory: who has waited for a job that ended, before or meanwhile, leaves nothing in memory.
func TestEndedWaitsLeaveNoMemory(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	s.submit(job1, spec(2, "true"))
	for range 3 {
		s.end(job1)
	}
	if n := s.Waited(); n != 0 {
		t.Errorf("%d jobs are waited for", n)
	}
}
