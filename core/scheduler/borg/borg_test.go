package borg_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/borg"
	"github.com/soukhq/souk/core/scheduler/schedulertest"
)

const second = scheduler.Second

func newRun(fleet scheduler.Fleet, opt borg.Options) *schedulertest.Run {
	return schedulertest.New(borg.New(fleet, opt), max(1, fleet.Slots))
}

// TestQueueIsByPriorityThenRoundRobin: by hand, on one slot. While a first task runs, user 0 submits a long job and a
// short one of four tasks, and users 1 and 2 short ones. Short ones go first, each user's in turn, and a user's by
// arrival.
func TestQueueIsByPriorityThenRoundRobin(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 1, Buyers: 3}, borg.Options{})
	submit := func(buyer, tasks int32, long bool) {
		j := scheduler.Job{Buyer: buyer, Tasks: tasks, Estimate: second, Long: long}
		r.Submit(scheduler.Time(len(r.Env.Jobs)), j)
	}
	submit(2, 1, false) // 1
	submit(0, 2, true)  // 2
	submit(0, 4, false) // 3
	submit(1, 2, false) // 4
	submit(2, 1, false) // 5
	submit(1, 1, false) // 6
	submit(2, 1, true)  // 7
	if missing := r.End(); missing > 0 {
		t.Fatalf("%d tasks never started", missing)
	}
	var order []int32
	for _, s := range r.Starts {
		order = append(order, s.Job)
	}
	if want := []int32{1, 3, 4, 5, 3, 4, 3, 6, 3, 2, 7, 2}; !slices.Equal(order, want) {
		t.Errorf("jobs start in the order %v, want %v", order, want)
	}
}

// TestTasksAreSpreadOverWorkers: four jobs of 4 tasks come to 4 workers of 4 slots. Each job has a task on each worker.
func TestTasksAreSpreadOverWorkers(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 4, Slots: 4}, borg.Options{})
	for range 4 {
		r.Submit(0, scheduler.Job{Tasks: 4, Estimate: second})
	}
	r.Until(second / 2)
	for job := range int32(4) {
		seen := map[int32]bool{}
		for _, s := range r.StartsOf(1 + job) {
			seen[s.Worker] = true
		}
		if len(seen) != 4 {
			t.Errorf("the tasks of job %d run on %d workers", 1+job, len(seen))
		}
	}
}

// TestMoreScoredWorkersSuitTasksBetter: where workers suit jobs unequally, a task takes the less time the more workers are
// scored for it: of n uniform draws from 1 to 2 the least is 1+1/(n+1).
func TestMoreScoredWorkersSuitTasksBetter(t *testing.T) {
	fleet := scheduler.Fleet{Workers: 1000, Slowing: scheduler.Slowing{Uneven: 1}}
	for _, enough := range []int{1, 3, 9} {
		r := newRun(fleet, borg.Options{Enough: enough})
		for i := range scheduler.Time(500) {
			r.Submit(i*second, scheduler.Job{Tasks: 1, Estimate: second / 2})
		}
		r.End()
		sum := 0.0
		for _, s := range r.Starts {
			sum += fleet.Factor(s.Job, s.Worker, 0)
		}
		if got, want := sum/500, 1+1/float64(enough+1); got < want-0.04 || got > want+0.04 {
			t.Errorf("with %d scored, tasks take %.3f times as long as at their best, want %.3f", enough, got, want)
		}
	}
}

// TestATaskThatFitsNowhereHoldsUpNobody: jobs that need worker 0, which is busy, wait; a later one that needs another runs.
func TestATaskThatFitsNowhereHoldsUpNobody(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 3, Kinds: 3}, borg.Options{})
	submit := func(kind int32, took scheduler.Time) int32 {
		return r.Submit(0, scheduler.Job{Tasks: 1, Estimate: took, Kind: kind})
	}
	submit(1, 10*second)
	waits := submit(1, second)
	runs := submit(3, second)
	r.End()
	if at := r.StartsOf(waits)[0].At; at < 10*second {
		t.Errorf("a job started on a busy worker after %d s", at/second)
	}
	if s := r.StartsOf(runs)[0]; s.At > second || s.Worker != 2 {
		t.Errorf("a job that can run waited: %v", s)
	}
}

// TestEveryTaskRunsInAFreeSlot: whatever fleets and jobs are, every task runs once, where it may, and no worker runs more
// tasks than it has slots.
func TestEveryTaskRunsInAFreeSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := scheduler.Fleet{Workers: rapid.IntRange(1, 8).Draw(t, "workers"),
			Slots: rapid.IntRange(1, 4).Draw(t, "slots"), Buyers: rapid.IntRange(1, 4).Draw(t, "buyers"),
			Slowing: scheduler.Slowing{Beside: float64(rapid.IntRange(0, 1).Draw(t, "beside")),
				Uneven: float64(rapid.IntRange(0, 1).Draw(t, "uneven"))}}
		fleet.Kinds = rapid.IntRange(0, fleet.Workers).Draw(t, "kinds")
		r := newRun(fleet, borg.Options{Enough: rapid.IntRange(1, 4).Draw(t, "enough")})
		at := scheduler.Time(0)
		for range rapid.IntRange(1, 30).Draw(t, "jobs") {
			at += scheduler.Time(rapid.IntRange(0, 4).Draw(t, "gap")) * second
			r.Submit(at, scheduler.Job{Buyer: rapid.Int32Range(0, int32(fleet.Buyers-1)).Draw(t, "buyer"),
				Tasks: rapid.Int32Range(1, 9).Draw(t, "tasks"), Long: rapid.Bool().Draw(t, "long"),
				Estimate: scheduler.Time(rapid.IntRange(0, 9).Draw(t, "took")) * second,
				Kind:     rapid.Int32Range(0, int32(fleet.Kinds)).Draw(t, "kind")})
		}
		if missing := r.End(); missing > 0 {
			t.Fatalf("%d tasks never started", missing)
		}
		for _, s := range r.Starts {
			if kind := r.Env.Jobs[s.Job].Kind; kind > 0 && s.Worker%int32(fleet.Kinds)+1 != kind {
				t.Fatalf("a task of kind %d runs on worker %d", kind, s.Worker)
			}
		}
	})
}
