package sharedstate_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/schedulertest"
	"github.com/soukhq/souk/core/scheduler/sharedstate"
)

const second = scheduler.Second

func newRun(fleet scheduler.Fleet, opt sharedstate.Options) *schedulertest.Run {
	return schedulertest.New(sharedstate.New(fleet, opt), max(1, fleet.Slots))
}

func job(buyer, tasks int32, took scheduler.Time) scheduler.Job {
	return scheduler.Job{Buyer: buyer, Tasks: tasks, Estimate: took}
}

// TestTransactionsConflictByTheSlot: two schedulers look at a worker of four free slots at the same moment, and each claims
// some. The first to commit gets all that it claims. Of the second's claims an incremental transaction loses those beyond the free slots,
// and a gang's all of them; what was lost is placed when slots are free.
func TestTransactionsConflictByTheSlot(t *testing.T) {
	for _, c := range []struct {
		name          string
		gang          bool
		first, second int32 // tasks
		conflicts     int64
		soon          int // tasks of the second that start with its first commit
	}{
		{"both fit", false, 2, 2, 0, 2},
		{"incremental, one slot is claimed twice", false, 2, 3, 1, 2},
		{"incremental, all slots are claimed twice", false, 4, 4, 4, 0},
		{"two gangs fit", true, 2, 2, 0, 2},
	} {
		r := newRun(scheduler.Fleet{Workers: 1, Slots: 4, Buyers: 2}, sharedstate.Options{Gang: c.gang, Think: second})
		r.Submit(0, job(0, c.first, 10*second))
		other := r.Submit(0, job(1, c.second, 10*second))
		r.Until(2 * second)
		if got := len(r.StartsOf(other)); got != c.soon || r.Env.Conflicts != c.conflicts {
			t.Errorf("%s: %d tasks started with the first commit, not %d; %d conflicts, not %d", c.name, got, c.soon,
				r.Env.Conflicts, c.conflicts)
		}
		if missing := r.End(); missing > 0 {
			t.Errorf("%s: %d tasks never started", c.name, missing)
		}
	}
}

// TestOneConflictUndoesAGang: of 6 slots, three gangs of 3 are claimed at the same moment. Two fit; the third's claims are all
// undone, so none of its tasks starts before the others have ended, and then all start together.
func TestOneConflictUndoesAGang(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 1, Slots: 6, Buyers: 3}, sharedstate.Options{Gang: true, Think: second})
	r.Submit(0, job(0, 2, 10*second))
	r.Submit(0, job(1, 3, 10*second))
	third := r.Submit(0, job(2, 3, 10*second))
	if missing := r.End(); missing > 0 || r.Env.Conflicts != 2 {
		t.Errorf("%d tasks never started; %d conflicts, not 2: one slot was left", missing, r.Env.Conflicts)
	}
	starts := r.StartsOf(third)
	if len(starts) != 3 || starts[0].At < 11*second || starts[0].At != starts[2].At {
		t.Errorf("the third gang starts at %v", starts)
	}
}

// TestNobodyRetriesInVain: three schedulers with jobs wait for a worker that is busy for an hour, and send nothing
// meanwhile. Then the one that has waited longest gets the slot.
func TestNobodyRetriesInVain(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 1, Buyers: 4}, sharedstate.Options{})
	r.Submit(0, job(0, 1, 3600*second))
	for b := range int32(3) {
		r.Submit(scheduler.Time(1+b)*second, job(1+b, 1, second))
	}
	r.Until(10 * second)
	before := len(r.Sent)
	r.Until(3600 * second)
	if len(r.Sent) != before {
		t.Errorf("%v was sent while no slot was free", r.Sent[before:])
	}
	if missing := r.End(); missing > 0 {
		t.Fatalf("%d tasks never started", missing)
	}
	for i := range int32(4) {
		if r.Starts[i].Job != 1+i {
			t.Errorf("the jobs start in the order %v", r.Starts)
		}
	}
}

// TestSmallJobsKeepNoGangOutForEver: a gang of half the cell arrives while a few more small jobs come than the cell can run.
// It starts once it has waited for Patience and what runs then has ended.
func TestSmallJobsKeepNoGangOutForEver(t *testing.T) {
	const patience = 60 * second
	r := newRun(scheduler.Fleet{Workers: 4, Buyers: 3}, sharedstate.Options{Gang: true})
	for i := range scheduler.Time(400) {
		r.Submit(i*second, job(int32(i%2), 1, 5*second))
	}
	gang := r.Submit(5*second, job(2, 2, second))
	large := r.Submit(5*second, job(2, 7, second)) // more than there are slots: it is committed in gangs of two
	if missing := r.End(); missing > 0 {
		t.Fatalf("%d tasks never started", missing)
	}
	starts := r.StartsOf(gang)
	if starts[0].At != starts[1].At || starts[0].At < 5*second+patience || starts[0].At > 5*second+patience+7*second {
		t.Errorf("the gang starts at %v", starts)
	}
	starts = r.StartsOf(large)
	for i := 0; i < 6; i += 2 {
		if starts[i].At != starts[i+1].At {
			t.Errorf("the large job's tasks start at %v", starts)
		}
	}
	if last := starts[6].At; last > 4*(patience+10*second) {
		t.Errorf("the large job's last task starts after %d s", last/second)
	}
}

// TestEveryTaskRunsInAFreeSlot: whatever fleets, jobs and decision times are, every task runs once, and no worker runs more
// tasks than it has slots. A gang's tasks start together.
func TestEveryTaskRunsInAFreeSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := scheduler.Fleet{Workers: rapid.IntRange(1, 6).Draw(t, "workers"),
			Slots: rapid.IntRange(1, 3).Draw(t, "slots"), Buyers: rapid.IntRange(1, 4).Draw(t, "buyers")}
		opt := sharedstate.Options{Gang: rapid.Bool().Draw(t, "gang"), Patience: 20 * second,
			Think: scheduler.Time(rapid.IntRange(0, 3).Draw(t, "think")) * second / 2}
		r := newRun(fleet, opt)
		at := scheduler.Time(0)
		for range rapid.IntRange(1, 30).Draw(t, "jobs") {
			at += scheduler.Time(rapid.IntRange(0, 4).Draw(t, "gap")) * second
			r.Submit(at, job(rapid.Int32Range(0, int32(fleet.Buyers-1)).Draw(t, "buyer"),
				rapid.Int32Range(1, 9).Draw(t, "tasks"), scheduler.Time(rapid.IntRange(0, 9).Draw(t, "took"))*second))
		}
		if missing := r.End(); missing > 0 {
			t.Fatalf("%d tasks never started", missing)
		}
		most := max(1, fleet.Workers*fleet.Slots/2)
		for i, j := range r.Env.Jobs {
			if starts := r.StartsOf(int32(i)); opt.Gang && int(j.Tasks) <= most && i > 0 &&
				starts[0].At != starts[len(starts)-1].At {
				t.Fatalf("a gang's tasks start at %v", starts)
			}
		}
	})
}

// TestACopyMayBeOld: a scheduler that asks again after more changes than the cell remembers gets the whole state.
func TestACopyMayBeOld(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 2, Buyers: 2}, sharedstate.Options{})
	r.Submit(0, job(1, 1, second))
	r.Submit(2*second, job(0, 1000, second))
	r.Submit(600*second, job(0, 1, 100*second))
	other := r.Submit(610*second, job(1, 1, second))
	if missing := r.End(); missing > 0 || r.Env.Conflicts > 0 {
		t.Errorf("%d tasks never started; %d conflicts", missing, r.Env.Conflicts)
	}
	if at := r.StartsOf(other)[0].At; at > 611*second {
		t.Errorf("the late job starts after %d s", at/second)
	}
}
