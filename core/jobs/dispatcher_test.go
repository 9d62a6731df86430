package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// fataler is what testing.T and rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func settled(t fataler, s jobs.Spec) jobs.Spec {
	t.Helper()
	s.App, s.Command = "app", []string{"true"}
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	return s
}

// scene runs f in a world without chance.
func scene(t *testing.T, workers, slots int, f func(t *rapid.T, w *world)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { f(t, newWorld(t, workers, slots)) })
}

// submit submits and has it durable.
func (w *world) submit(n int, s jobs.Spec) string {
	id := jobs.ID(uint64(n))
	if err := w.dispatcher.Submit(w.now, id, s); err != nil {
		w.t.Fatal(err)
	}
	w.flush()()
	w.obey()
	return id
}

// TestNamespaceUsesAtMostHalfOfTheJobTable: the unfinished jobs of one namespace, and their tasks, are half of what there can be,
// and when some have ended there is room for more.
func TestNamespaceUsesAtMostHalfOfTheJobTable(t *testing.T) {
	for what, c := range map[string]struct{ jobs, tasks int }{
		"tasks": {jobs.MaxNamespaceTasks / jobs.MaxTasks, jobs.MaxTasks}, "jobs": {jobs.MaxNamespaceJobs, 1}} {
		d, now := jobs.NewDispatcher(auction.DefaultRules(64)), time.Unix(1e9, 0)
		n := 0
		submit := func(space string, tasks int) error {
			n++
			return d.Submit(now, jobs.ID(uint64(n)), settled(t, jobs.Spec{Namespace: space, Last: tasks - 1}))
		}
		for range c.jobs {
			if err := submit("greedy", c.tasks); err != nil {
				t.Fatal(what, err)
			}
		}
		if err := submit("greedy", 1); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "greedy") {
			t.Errorf("one more of %s: %v", what, err)
		}
		if err := submit("", c.tasks); err != nil {
			t.Errorf("another namespace, %s: %v", what, err)
		}
		if err := d.Cancel(now, jobs.ID(1), "enough"); err != nil {
			t.Fatal(err)
		}
		if err := submit("greedy", 1); err != nil {
			t.Errorf("when a job has ended, %s: %v", what, err)
		}
	}
}

// TestLargeTaskIsNotStarved: small tasks that come without end leave a task that needs a whole worker no room, until
// one is saved for it.
func TestLargeTaskIsNotStarved(t *testing.T) {
	scene(t, 2, 8, func(t *rapid.T, w *world) {
		for i := range 20 {
			w.submit(i+1, settled(t, jobs.Spec{Last: 99, CPUKind: "performance", CPUs: 1, EstimateMS: 1000}))
		}
		large := w.submit(100, settled(t, jobs.Spec{CPUKind: "performance", CPUs: 4, EstimateMS: 1000}))
		for range 200 {
			w.now = w.now.Add(500 * time.Millisecond)
			if all := w.lives(); len(all) > 0 {
				all[rapid.IntRange(0, len(all)-1).Draw(t, "life")](0)
			}
			w.dispatcher.Open(w.now)
			w.obey()
			w.check()
			j, err := w.dispatcher.Status(w.now, large)
			if err != nil {
				t.Fatal(err)
			}
			if j.Running == 1 {
				return
			}
		}
		t.Fatalf("after 100 s of small tasks the large one waits still: %+v", w.dispatcher.List(w.now, "")[20])
	})
}

// TestJobWithLeastWorkLeftRunsFirst: of two jobs the one with less work left is served first, whenever it came; priority goes before
// all.
func TestJobWithLeastWorkLeftRunsFirst(t *testing.T) {
	scene(t, 1, 1, func(t *rapid.T, w *world) {
		w.submit(1, settled(t, jobs.Spec{Last: 99, EstimateMS: 1000}))
		short := w.submit(2, settled(t, jobs.Spec{Last: 1, EstimateMS: 10}))
		high := w.submit(3, settled(t, jobs.Spec{Last: 999, EstimateMS: 9000, Priority: jobs.High}))
		w.lives()[0](0) // one of the first job, begun before the others came
		w.obey()
		for _, want := range []string{high, high} {
			if j, _ := w.dispatcher.Status(w.now, want); j.Running != 1 {
				t.Fatalf("%+v", w.dispatcher.List(w.now, ""))
			}
			w.lives()[0](0)
			w.obey()
		}
		_ = w.dispatcher.Cancel(w.now, high, "enough")
		w.obey()
		w.flush()()
		w.obey()
		if j, _ := w.dispatcher.Status(w.now, short); j.Running != 1 {
			t.Fatalf("%+v", w.dispatcher.List(w.now, ""))
		}
		j, _ := w.dispatcher.Status(w.now, jobs.ID(1))
		if !strings.Contains(j.Why, "1 worker is busy with 1 task") ||
			!strings.Contains(j.Why, "1 task of 1 job come before these") {
			t.Fatal(j.Why)
		}
	})
}

// TestEstimateIsLearnedFromFinishedTasks: the estimate of a job follows its finished tasks.
func TestEstimateIsLearnedFromFinishedTasks(t *testing.T) {
	scene(t, 1, 1, func(t *rapid.T, w *world) {
		id := w.submit(1, settled(t, jobs.Spec{Last: 9, EstimateMS: 60_000}))
		w.lives()[0](0) // it took 1 ms
		w.obey()
		if j, _ := w.dispatcher.Status(w.now, id); j.TaskMS != 1 {
			t.Fatalf("%+v", j)
		}
	})
}

func TestTaskLifeRoundTripsThroughText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := jobs.Life{Job: jobs.ID(rapid.Uint64().Draw(t, "job")), Index: rapid.IntRange(0, jobs.MaxIndex).Draw(t,
			"index"),
			Attempt: rapid.IntRange(1, jobs.MaxTry).Draw(t, "attempt"),
			CPU:     rapid.Int64Range(0, 1<<31).Draw(t, "cpu"),
			Memory:  rapid.Int64Range(0, 1<<31).Draw(t, "memory"),
			GPUs:    rapid.IntRange(0, machine.MaxGPUs).Draw(t, "gpus")}
		back, ok := jobs.ParseLife(l.String())
		if !ok || back != l {
			t.Fatalf("%+v is %s and reads back as %+v, %v", l, l, back, ok)
		}
		if s := rapid.String().Draw(t, "any"); jobs.IsLife(s) {
			_, _ = jobs.ParseLife(s) // does not panic
		}
	})
}

func TestInvalidSpecsAreRefused(t *testing.T) {
	for i, s := range []jobs.Spec{
		{}, {App: "a"}, {App: "../a", Command: []string{"x"}}, {App: "a", Command: []string{"x\x00"}},
		{App: "a", Command: []string{"x"}, First: 3, Last: 1}, {App: "a", Command: []string{"x"}, Last: jobs.MaxTasks},
		{App: "a", Command: []string{"x"}, Env: map[string]string{"A=B": ""}},
		{App: "a", Command: []string{strings.Repeat("x", 1<<17)}},
		{App: "a", Command: []string{"x"}, CPUs: -1}, {App: "a", Command: []string{"x"}, Priority: "urgent"},
		{App: "a", Command: []string{"x"}, TimeoutMS: -1}, {App: "a", Command: []string{"x"}, Name: "A b"},
	} {
		if err := s.Settle(); err == nil {
			t.Errorf("%d: %+v is taken", i, s)
		}
	}
	s := settled(t, jobs.Spec{})
	if s.CPUs != 1 || s.MemoryMB != 256 || s.Tasks() != 1 {
		t.Error(fmt.Sprintf("%+v", s))
	}
}
