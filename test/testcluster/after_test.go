package testcluster_test

import (
	"slices"
	"testing"

	"github.com/soukhq/souk/core/jobs"
)

// after is a job that runs after another one.
func after(kind jobs.DependencyKind, id string, last int) jobs.Spec {
	s := array(last+1, "true")
	s.After = []jobs.Dependency{{Kind: kind, Job: id}}
	return s
}

// TestJobsRunAfterThoseOfOtherMembers: a job waits for one that another member keeps, by name too; is let go when that
// has ended; and is cancelled where that can never be as it wants. What waits, and whom it waits for, survive the hosts
// of the members that keep them.
func TestJobsRunAfterThoseOfOtherMembers(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	ctx := t.Context()
	first := array(4, "true")
	first.Name, first.Hold = "first", true
	id := submit(t, c, 0, first)
	ok := submit(t, c, 1, after(jobs.AfterOK, id, 0))
	fail := submit(t, c, 2, after(jobs.AfterFail, "first", 0))
	each := submit(t, c, 1, after(jobs.AfterCorr, id, 4))
	near := submit(t, c, 0, after(jobs.AfterAny, id, 0))
	heirOf(t, c, 1, 3, each)
	if j, err := c.Client(2).Job(ctx, ok); err != nil || j.State != jobs.Waiting {
		t.Errorf("%+v, %v", j, err)
	}
	c.Kill(1) // keeps two of those that wait
	if _, err := c.Client(2).CancelTasks(ctx, id, jobs.Indices{{First: 2, Last: 2}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(2).ReleaseJob(ctx, id); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]jobs.JobState{id: jobs.Cancelled, ok: jobs.Cancelled, fail: jobs.Succeeded,
		each: jobs.Cancelled, near: jobs.Succeeded} {
		if j, _ := ended(t, c, 2, ref); j.State != want {
			t.Errorf("%s is %s, want %s: %s", ref, j.State, want, j.Why)
		}
	}
	j, list := ended(t, c, 0, each)
	list = slices.DeleteFunc(list, func(x jobs.Task) bool { return x.State != "succeeded" })
	if j.Succeeded != 3 || j.Cancelled != 2 || len(list) != 3 || list[1].Index != 3 || list[2].Index != 4 {
		t.Errorf("%+v, %+v", j, list)
	}
	if _, err := c.Client(2).SubmitJob(ctx, "", after(jobs.AfterOK, "j00000000ff", 0)); err == nil {
		t.Error("a job was accepted that is to run after one that never was")
	}
}
