package mesos_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/mesos"
	"github.com/soukhq/souk/core/scheduler/schedulertest"
)

const second = scheduler.Second

func newRun(fleet scheduler.Fleet, opt mesos.Options) *schedulertest.Run {
	return schedulertest.New(mesos.New(fleet, opt), max(1, fleet.Slots))
}

func job(buyer, tasks int32, took scheduler.Time) scheduler.Job {
	return scheduler.Job{Buyer: buyer, Tasks: tasks, Estimate: took}
}

// isAnswer, isOffers and isLost say what a message is, by what only such a message has.
func isAnswer(m *scheduler.Msg) bool { return m.Role == scheduler.Center && m.Offer != 0 }
func isOffers(m *scheduler.Msg) bool { return m.Role == scheduler.Buyer && m.Payload != nil }
func isLost(m *scheduler.Msg) bool   { return m.Role == scheduler.Buyer && m.Job != 0 }

func count(list []scheduler.Msg, is func(m *scheduler.Msg) bool) (n int) {
	for i := range list {
		if is(&list[i]) {
			n++
		}
	}
	return n
}

// TestAnOfferIsLockedUntilItTimesOut: framework 0 is offered both slots and its answer is lost. Framework 1 gets no
// offer before the first has timed out, 10 s later, and then both. The first framework gets none until it
// revives or answers: the late answer is refused, and its tasks run in a later offer.
func TestAnOfferIsLockedUntilItTimesOut(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 2, Buyers: 2}, mesos.Options{})
	var late scheduler.Msg
	r.Lose = func(m *scheduler.Msg) bool {
		if late.Offer > 0 || !isAnswer(m) {
			return false
		}
		late = *m
		return true
	}
	first, other := r.Submit(0, job(0, 2, second)), r.Submit(second, job(1, 2, second))
	r.Until(9 * second)
	if len(r.Starts) > 0 || count(r.Sent, isOffers) != 1 {
		t.Fatalf("offers of locked slots: %v; %v", r.Starts, r.Sent)
	}
	r.Until(20 * second)
	if starts := r.StartsOf(other); len(starts) != 2 || starts[0].At < 10*second || starts[0].At > 11*second+second/10 {
		t.Errorf("the second framework's tasks start at %v", starts)
	}
	if n := count(r.Sent, isOffers); n != 2 {
		t.Errorf("%d offers, but the first framework was silent", n)
	}
	r.Send(30*second, late)
	if missing := r.End(); missing > 0 || r.Env.Conflicts != 2 {
		t.Errorf("%d tasks never started; %d conflicts, not 2", missing, r.Env.Conflicts)
	}
	if at := r.StartsOf(first)[0].At; at < 30*second || at > 31*second {
		t.Errorf("the first framework's tasks start after %d s", at/second)
	}
}

// TestASecondAnswerIsRefused: the same answer arrives twice. Its tasks run once, and the second time the framework hears that they
// are lost.
func TestASecondAnswerIsRefused(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 4, Buyers: 1}, mesos.Options{})
	r.Lose = isLost
	r.Submit(0, job(0, 2, 5*second))
	r.Until(second)
	for _, m := range r.Sent {
		if isAnswer(&m) {
			r.Send(2*second, m)
		}
	}
	if missing := r.End(); missing > 0 || r.Env.Conflicts != 2 || count(r.Sent, isLost) != 2 {
		t.Errorf("%d tasks never started; %d conflicts, %d tasks lost", missing, r.Env.Conflicts, count(r.Sent, isLost))
	}
}

// TestSlotsAreSharedMaxMin: framework 0 has all eight slots when framework 1 arrives with as much to do, and framework 2
// with two tasks at a time. As tasks end, each gets what is due to it: 2 to the last, and 3 to each of the others.
func TestSlotsAreSharedMaxMin(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 8, Buyers: 3}, mesos.Options{})
	r.Submit(0, job(0, 400, 10*second))
	r.Submit(5*second, job(1, 400, 10*second))
	for i := range scheduler.Time(40) {
		r.Submit(5*second+i*10*second, job(2, 2, 9*second))
	}
	r.Until(300 * second)
	running := map[int32]int{}
	for _, s := range r.Starts {
		if s.At > 100*second {
			running[r.Env.Jobs[s.Job].Buyer]++
		}
	}
	if a, b := running[0], running[1]; a < b*9/10 || b < a*9/10 {
		t.Errorf("frameworks with equal demand began %d and %d tasks", a, b)
	}
	if c := running[2]; c < 2*17 {
		t.Errorf("the framework with little demand began %d tasks of 40", c)
	}
	if missing := r.End(); missing > 0 {
		t.Errorf("%d tasks never started", missing)
	}
}

// TestDeclinedSlotsHaveAFilter: a framework waits for worker 0, which alone suits it and is busy, and declines the three
// others. Within 60 s it is offered them once every 5 s and not once a second, and at once when it revives its offers.
func TestDeclinedSlotsHaveAFilter(t *testing.T) {
	r := newRun(scheduler.Fleet{Workers: 4, Buyers: 2, Kinds: 4}, mesos.Options{})
	of := func(buyer, kind int32, took scheduler.Time) scheduler.Job {
		return scheduler.Job{Buyer: buyer, Tasks: 1, Estimate: took, Kind: kind}
	}
	r.Submit(0, of(0, 1, 62*second))
	r.Submit(second, of(1, 1, second))
	r.Until(61 * second)
	if n := count(r.Sent, isOffers); n < 12 || n > 15 {
		t.Errorf("%d offers within a minute", n)
	}
	revives := r.Submit(61*second, of(1, 3, second))
	r.Until(61*second + second/10)
	if got := r.StartsOf(revives); len(got) != 1 || got[0].Worker != 2 {
		t.Errorf("the new job starts at %v", got)
	}
	if missing := r.End(); missing > 0 || r.Env.Conflicts > 0 {
		t.Errorf("%d tasks never started, %d conflicts", missing, r.Env.Conflicts)
	}
	if w := r.StartsOf(2)[0].Worker; w != 0 {
		t.Errorf("the job that waits for worker 0 runs on worker %d", w)
	}
}

// TestEveryTaskRunsInAFreeSlot: whatever fleets and jobs are, and whichever answers are late, every task runs once, and no
// worker runs more tasks than it has slots. The run ends, so at the end no message is sent any more.
func TestEveryTaskRunsInAFreeSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := scheduler.Fleet{Workers: rapid.IntRange(1, 6).Draw(t, "workers"),
			Slots: rapid.IntRange(1, 3).Draw(t, "slots"), Buyers: rapid.IntRange(1, 4).Draw(t, "buyers")}
		fleet.Kinds = rapid.IntRange(0, fleet.Workers).Draw(t, "kinds")
		r := newRun(fleet, mesos.Options{Timeout: 2 * second})
		r.Lose = func(m *scheduler.Msg) bool { // it arrives 3 s later
			late := isAnswer(m) && r.Env.Now < 60*second && rapid.IntRange(0, 4).Draw(t, "late") == 0
			if late {
				r.Send(r.Env.Now+3*second, *m)
			}
			return late
		}
		at := scheduler.Time(0)
		for range rapid.IntRange(1, 20).Draw(t, "jobs") {
			at += scheduler.Time(rapid.IntRange(0, 4).Draw(t, "gap")) * second
			j := job(rapid.Int32Range(0, int32(fleet.Buyers-1)).Draw(t, "buyer"),
				rapid.Int32Range(1, 9).Draw(t, "tasks"), scheduler.Time(rapid.IntRange(0, 9).Draw(t, "took"))*second)
			j.Kind = rapid.Int32Range(0, int32(fleet.Kinds)).Draw(t, "kind")
			r.Submit(at, j)
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
