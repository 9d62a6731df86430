package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a worker over a fake runtime and a journal in memory, which both outlive it.
type bench struct {
	*worker.Worker
	t    testing.TB
	j    *mem.Journal
	rt   *fake.Runtime
	stop func() error // ends the worker and gives what Run gave
}

func open(t testing.TB, j *mem.Journal, rt *fake.Runtime, edit ...func(*worker.Options)) *bench {
	t.Helper()
	b := openOn(t, j, rt, edit...)
	b.j = j
	return b
}

func openOn(t testing.TB, j journal.Journal, rt *fake.Runtime, edit ...func(*worker.Options)) *bench {
	t.Helper()
	o := worker.Options{ID: "w1", Region: "local", Dir: t.TempDir(),
		Capacity: cluster.Resources{CPU: 10_000, Memory: 10_000, Disk: 100_000}, Journal: j, Runtime: rt}
	for _, f := range edit {
		f(&o)
	}
	w, err := worker.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	b := &bench{Worker: w, t: t, rt: rt}
	b.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = b.stop() })
	return b
}

func grant(id string, argv ...string) lifecycle.Grant {
	if len(argv) == 0 {
		argv = []string{"sleep", "1000"}
	}
	return lifecycle.Grant{
		Request: placement.Request{App: "app", Machine: id, Resources: cluster.Resources{CPU: 100, Memory: 100}},
		Launch: &machine.Launch{Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: argv},
			Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, Restart: &machine.Restart{Policy: "no"}}},
		Region: "local",
	}
}

func id(n int) string { return fmt.Sprintf("%014x", n) }

// until waits for a machine to be in a state.
func (b *bench) until(id string, want machine.State) *machine.Machine {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	var last *machine.Machine
	err := b.Watch(ctx, "app", id, func(m *machine.Machine) bool { last = m; return m.State != want })
	if err != nil {
		b.t.Fatalf("%s is %+v, not %s: %v", id, last, want, err)
	}
	return last
}

func TestMachineLifecycleWorks(t *testing.T) {
	b := open(t, mem.New(), fake.New(fake.Options{}))
	m, err := b.Grant(t.Context(), grant(id(1)))
	if err != nil || m.State != machine.Started || m.Name == "" || m.Phases["launch"] == "" {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, step := range []struct {
		verb     lifecycle.Verb
		previous machine.State
		want     machine.State
	}{
		{lifecycle.Suspend, machine.Started, machine.Suspended}, {lifecycle.Start, machine.Suspended, machine.Started},
		{lifecycle.Stop, machine.Started, machine.Stopped}, {lifecycle.Stop, machine.Stopped, machine.Stopped},
		{lifecycle.Start, machine.Stopped, machine.Started}, {lifecycle.Restart, machine.Started, machine.Started},
	} {
		out, err := b.Do(t.Context(), lifecycle.Command{Verb: step.verb, App: "app", Machine: id(1)})
		if err != nil || out.Machine.State != step.want || out.Previous != step.previous {
			t.Fatalf("%s: %+v, %v", step.verb, out, err)
		}
	}
	if _, err := b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: id(1),
		Kill: true}); err != nil {
		t.Fatal(err)
	}
	if list, _ := b.Machines(t.Context(), "", false); len(list) != 0 {
		t.Fatalf("%+v", list)
	}
	if list, _ := b.Machines(t.Context(), "app", true); len(list) != 1 {
		t.Fatalf("a destroyed machine stays readable: %+v", list)
	}
}

func TestMachineOfAnotherAppIsNotFound(t *testing.T) {
	b := open(t, mem.New(), fake.New(fake.Options{}))
	if _, err := b.Grant(t.Context(), grant(id(1))); err != nil {
		t.Fatal(err)
	}
	_, err := b.Machine(t.Context(), "other", id(1))
	_, err2 := b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Stop, App: "other", Machine: id(1)})
	_, err3 := b.Lease(t.Context(), lifecycle.LeaseCommand{App: "other", Machine: id(1)})
	_, err4 := b.Processes(t.Context(), "other", id(1))
	for _, err := range []error{err, err2, err3, err4} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%v", err)
		}
	}
}

func TestUnrunnableImageIsRefusedUpFront(t *testing.T) {
	b := open(t, mem.New(), fake.New(fake.Options{}))
	g := grant(id(1))
	g.Launch.Config.Image = "nginx"
	if _, err := b.Grant(t.Context(), g); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	if rec, _ := b.Record(t.Context()); rec.Machines != 0 {
		t.Fatalf("%+v", rec)
	}
}

func TestRestartPolicyStopsAfterItsRetries(t *testing.T) {
	b := open(t, mem.New(), fake.New(fake.Options{}))
	g := grant(id(1), "sh", "-c", "exit 3")
	g.Launch.Config.Restart = &machine.Restart{Policy: "on-failure", MaxRetries: 2}
	if _, err := b.Grant(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	m := b.until(id(1), machine.Stopped)
	exits := 0
	for _, e := range m.Events {
		if e.Type == "exit" {
			exits++
		}
	}
	if exits != 3 {
		t.Fatalf("%d exits, want 3: %+v", exits, m.Events)
	}
}

// losing is a runtime whose starts are all lost, as when its reaper was killed in them. Their exits are told late.
type losing struct{ *fake.Runtime }

func (l losing) Start(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	if err := l.Prepare(ctx, s); err != nil {
		return runtime.Status{}, err
	}
	return runtime.Status{Machine: s.Machine, Attempt: s.Attempt, StartedAt: time.Now(),
		Exit: &runtime.Exit{Machine: s.Machine, Attempt: s.Attempt, Code: -1, Lost: true, At: time.Now()}}, nil
}

// TestLostStartIsNotAnsweredAsStarted: whoever asks hears that the machine does not run.
func TestLostStartIsNotAnsweredAsStarted(t *testing.T) {
	rt := fake.New(fake.Options{})
	b := open(t, mem.New(), rt, func(o *worker.Options) { o.Runtime = losing{rt} })
	m, err := b.Grant(t.Context(), grant(id(1)))
	if err != nil || m.State != machine.Stopped {
		t.Fatalf("created: %+v, %v", m, err)
	}
	for _, verb := range []lifecycle.Verb{lifecycle.Start, lifecycle.Restart} {
		out, err := b.Do(t.Context(), lifecycle.Command{Verb: verb, App: "app", Machine: id(1)})
		if err != nil || out.Machine.State != machine.Stopped {
			t.Errorf("%s: %+v, %v", verb, out.Machine, err)
		}
	}
}

// TestNoOverGrantUnderLoad asks for twice what there is, all at once; what is refused says so, and one commit serves
// many.
func TestNoOverGrantUnderLoad(t *testing.T) {
	j := mem.New()
	b := open(t, j, fake.New(fake.Options{}))
	var granted, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			_, err := b.Grant(t.Context(), grant(id(i)))
			var e *fault.Error
			switch {
			case err == nil:
				granted.Add(1)
			case errors.As(err, &e) && e.Kind == fault.Exhausted:
				if _, ok := fault.Detail[market.Refusal](e); !ok {
					t.Errorf("a refusal without the fresh record: %+v", e)
				}
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if granted.Load() != 100 || refused.Load() != 100 {
		t.Fatalf("%d granted, %d refused; there is room for 100", granted.Load(), refused.Load())
	}
	st := b.Stats()
	t.Logf("%d records in %d commits", st.Records, st.Commits)
	if st.Commits >= 200 {
		t.Errorf("%d commits for 100 launches: they are not grouped", st.Commits)
	}
}

// TestCrashAtEveryCommitKeepsAnswers: the worker is killed before and after every journal write of a busy script, and
// restarted: every answer holds, and no machine runs twice or unrecorded.
func TestCrashAtEveryCommitKeepsAnswers(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			j, rt := mem.New(), fake.New(fake.Options{})
			b := open(t, j, rt)
			if after {
				j.LoseAnswerAfter(n)
			} else {
				j.FailAfter(n)
			}
			said := script(b)
			failed := b.stop() != nil
			again := open(t, j.Reopen(), rt.Reopen())
			for i, want := range said {
				m, err := again.Machine(t.Context(), "app", id(i))
				if err != nil || !reaches(again, m, want) {
					t.Errorf("stopped at %d (after=%v): machine %d was said to be %s: %+v, %v", n, after, i, want, m,
						err)
				}
			}
			checkLives(t, again, rt, n)
			if err := again.stop(); err != nil {
				t.Fatal(err)
			}
			if !failed {
				t.Logf("after=%v: %d commits", after, n-1)
				break
			}
		}
	}
}

// script is a client's morning. It gives the last state that was answered for each machine.
func script(b *bench) map[int]machine.State {
	said := map[int]machine.State{}
	ctx := context.Background()
	do := func(i int, verb lifecycle.Verb) {
		if out, err := b.Do(ctx, lifecycle.Command{Verb: verb, App: "app", Machine: id(i),
			Kill: verb == lifecycle.Destroy}); err == nil {
			said[i] = out.Machine.State
		} else {
			delete(said, i) // it may have happened or not
		}
	}
	for i := range 3 {
		if m, err := b.Grant(ctx, grant(id(i))); err == nil {
			said[i] = m.State
		}
	}
	do(0, lifecycle.Stop)
	do(1, lifecycle.Restart)
	do(0, lifecycle.Start)
	do(2, lifecycle.Destroy)
	return said
}

// reaches reports whether a machine is in a state, or gets there by itself.
func reaches(b *bench, m *machine.Machine, want machine.State) bool {
	if m.State == want {
		return true
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	return b.Watch(ctx, "app", m.ID, func(m *machine.Machine) bool { return m.State != want }) == nil
}

// checkLives holds the runtime against the worker once all is at rest.
func checkLives(t *testing.T, b *bench, rt *fake.Runtime, n int) {
	t.Helper()
	machines, err := b.Machines(t.Context(), "", false)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range machines {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := b.Watch(ctx, "app", m.ID, func(m *machine.Machine) bool {
			known[m.ID] = m.State == machine.Started
			return m.State.Transient()
		})
		if err != nil && !fault.Is(err, fault.NotFound) {
			t.Errorf("stopped at %d: %s never comes to rest: %v", n, m.ID, err)
		}
		cancel()
	}
	lives, err := rt.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lives {
		if up, ok := known[l.Machine]; l.Running && (!ok || !up) {
			t.Errorf("stopped at %d: an orphan of machine %s runs", n, l.Machine)
		}
	}
	started := map[string]int{}
	for _, e := range rt.Effects() {
		if e.Op == "start" {
			started[fmt.Sprint(e.Machine, "#", e.Attempt)]++
		}
	}
	for k, c := range started {
		if c > 1 {
			t.Errorf("stopped at %d: attempt %s was started %d times", n, k, c)
		}
	}
}

// TestOutputOfAMachineThatIsBeingMadeIsFollowed: its runtime does not know it yet; who follows it sees what it writes.
func TestOutputOfAMachineThatIsBeingMadeIsFollowed(t *testing.T) {
	release := make(chan struct{})
	rt := fake.New(fake.Options{Before: func(c fake.Call) error {
		if c.Op == "prepare" || c.Op == "start" {
			<-release
		}
		return nil
	}})
	b := open(t, mem.New(), rt, func(o *worker.Options) { o.Patience = 10 * time.Millisecond })
	m, err := b.Grant(t.Context(), grant(id(1), "sh", "-c", "echo here; sleep 1000"))
	if err != nil || m.State != machine.Creating {
		t.Fatalf("%+v, %v", m, err)
	}
	if got, _, err := b.texts(id(1), machine.LogQuery{}); err != nil || len(got) > 0 {
		t.Errorf("it has written %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = b.Logs(ctx, "app", id(1), machine.LogQuery{Follow: true}, func(machine.LogLine) error { return nil })
	if fault.Is(err, fault.NotFound) {
		t.Errorf("who does not wait for it is told %v", err)
	}
	seen, followed := make(chan string, 1), make(chan error, 1)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	go func() {
		followed <- b.Logs(ctx, "app", id(1), machine.LogQuery{Follow: true}, func(l machine.LogLine) error {
			seen <- l.Text
			return nil
		})
	}()
	select {
	case err := <-followed:
		t.Fatalf("it is not followed: %v", err)
	default:
	}
	close(release)
	select {
	case got := <-seen:
		if got != "here" {
			t.Errorf("it has written %q", got)
		}
	case err := <-followed:
		t.Errorf("it is not followed: %v", err)
	}
}

func TestSlowStartIsAnsweredWhileCreating(t *testing.T) {
	release := make(chan struct{})
	rt := fake.New(fake.Options{Before: func(c fake.Call) error {
		if c.Op == "start" {
			<-release
		}
		return nil
	}})
	b := open(t, mem.New(), rt, func(o *worker.Options) { o.Patience = 10 * time.Millisecond })
	m, err := b.Grant(t.Context(), grant(id(1)))
	if err != nil || m.State != machine.Creating {
		t.Fatalf("%+v, %v", m, err)
	}
	close(release)
	b.until(id(1), machine.Started)
}

func TestStoppedWorkerIsUnavailable(t *testing.T) {
	b := open(t, mem.New(), fake.New(fake.Options{}))
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	_, err := b.Grant(t.Context(), grant(id(1)))
	if _, rerr := b.Record(t.Context()); !fault.Is(err, fault.Unavailable) || !fault.Is(rerr, fault.Unavailable) {
		t.Fatal(err, rerr)
	}
}

func TestJournalOfAnotherWorkerIsRefused(t *testing.T) {
	j := mem.New()
	b := open(t, j, fake.New(fake.Options{}))
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	_, err := worker.New(t.Context(), worker.Options{ID: "w2", Journal: j.Reopen(), Runtime: fake.New(fake.Options{})})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "this journal is of worker w1") {
		t.Fatal(err)
	}
}

func TestSecretsReachOnlyTheProcess(t *testing.T) {
	j := mem.New()
	b := open(t, j, fake.New(fake.Options{}), func(o *worker.Options) {
		o.Secrets = func(*machine.Machine) (map[string]string, error) {
			return map[string]string{"KEY": "s3cr3t-value"}, nil
		}
	})
	m, err := b.Grant(t.Context(), grant(id(1)))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range j.Snapshot() {
		if strings.Contains(fmt.Sprint(k, v), "s3cr3t-value") {
			t.Errorf("the journal has the secret: %v", k)
		}
	}
	if strings.Contains(fmt.Sprintf("%+v %+v", m, m.Config), "s3cr3t-value") {
		t.Error("the answer has the secret")
	}
}

func TestSlowEventListenersAreCutOff(t *testing.T) {
	b := open(t, mem.New(), fake.New(fake.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard, block := make(chan struct{}, 1), make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- b.Events(ctx, "", func(machine.EventOf) error {
			select {
			case heard <- struct{}{}:
			default:
			}
			<-block
			return nil
		})
	}()
	for i := 0; ; i++ { // until it listens, then far more than it takes
		if _, err := b.Grant(t.Context(), grant(id(1), "true")); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Start, App: "app",
			Machine: id(1)}); err != nil {
			t.Fatal(err)
		}
		if i > 1200 {
			break
		}
	}
	<-heard
	close(block)
	if err := <-result; fault.CodeOf(err) != "behind" {
		t.Fatal(err)
	}
}

// TestCancelledCallerReadsNoResult: a caller that goes away while the loop is at work on what it asked reads nothing of that. It
// is for the race detector, which found it in a run that ended while a task was admitted.
func TestCancelledCallerReadsNoResult(t *testing.T) {
	b := open(t, mem.New(), fake.New(fake.Options{}))
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		_ = b.AdmitTask(ctx, lifecycle.Task{Name: "task"})
		_, _ = b.Hold(ctx, lifecycle.HoldCommand{Request: grant(id(1)).Request, Token: "token", TTL: time.Second})
		_, _ = b.Quote(ctx, grant(id(1)).Request)
		_, _ = b.CurrentLease(ctx, "app", id(1))
	}
}

// TestHaltIgnoresOldState: a subscriber that first asked when the halt was unknown is told of the halt once the worker
// runs.
func TestHaltIgnoresOldState(t *testing.T) {
	asked, found := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	why := func() string {
		select {
		case <-found:
			return "there are two"
		default:
			once()
			return ""
		}
	}
	b := open(t, mem.New(), fake.New(fake.Options{}), func(o *worker.Options) {
		o.MayBegin = func(context.Context, bool) string {
			<-asked
			close(found)
			return "there are two"
		}
	})
	if err := b.Halt(t.Context(), why); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Grant(t.Context(), grant(id(1))); err == nil {
		t.Errorf("a worker that is halted took a machine")
	}
}
