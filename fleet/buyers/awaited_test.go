package buyers

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

func (f fakeOwn) Awaited(context.Context) (map[string]bool, error) { return f.awaited, nil }

func (f fakeOwn) Learn(o *jobs.Outcome) { f.learned = append(f.learned, *o) }

// TestOutcomesOfOtherMembersJobsAreTold: how a job of another member has ended, or that nobody knows it; while a member
// that may know it does not answer nothing is told, and tasks are asked for only when more of them have succeeded.
func TestOutcomesOfOtherMembersJobsAreTold(t *testing.T) {
	m, ctx := newMarket("b", "c"), t.Context()
	run, done := aJob(idB, "run", 1), aJob(idC, "done", 2)
	run.Spec.Last, run.Succeeded = 9, 1
	done.State = jobs.Succeeded
	m.others["b"].jobs = []jobs.Job{run, done}
	m.own.awaited = map[string]bool{idB: true, idC: false}
	told := map[string]jobs.Outcome{}
	learned := func() map[string]jobs.Outcome {
		t.Helper()
		m.own.learned = nil
		m.tellAwaited(ctx, told)
		out := map[string]jobs.Outcome{}
		for _, o := range m.own.learned {
			out[o.Job] = o
		}
		return out
	}
	running := jobs.Outcome{Job: idB, Indices: run.Spec.Indices(), Done: jobs.Indices{{}}, HasDone: true}
	want := map[string]jobs.Outcome{idB: running,
		idC: {Job: idC, Ended: true, Succeeded: true, Indices: done.Spec.Indices()}}
	for range 2 {
		if d := cmp.Diff(want, learned()); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	}
	asked := 0
	for _, call := range m.others["b"].calls {
		if call == "tasks "+idB {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("the tasks were asked for %d times", asked)
	}
	m.others["b"].down = fault.New(fault.Unavailable, fault.CodeLost, "it does not answer")
	if got := learned(); len(got) > 0 {
		t.Errorf("while its member is down is told %v", got)
	}
	m.others["b"].down, m.others["b"].jobs = nil, nil
	if got := learned()[idB]; got.Why == "" || got.Ended {
		t.Errorf("of a job that nobody knows is told %+v", got)
	}
	m.own.awaited = nil
	if got := learned(); len(got)+len(told) > 0 {
		t.Errorf("of jobs that are not awaited is told %v, and remembered %v", got, told)
	}
}
