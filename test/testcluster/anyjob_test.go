package testcluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// endless is a job of three tasks that say hello and run until they are ended.
func endless(name string) jobs.Spec {
	return jobs.Spec{App: app, Name: name, Command: []string{"sh", "-c", "echo hello; sleep 1000000"}, Last: 2, CPUs: 1,
		MemoryMB: 64}
}

// TestJobIsAnsweredByEveryMember: jobs that were submitted at each of three members are listed, read, waited for and
// cancelled through each other one; while a member is down it is named, and nobody says that its job is not there.
func TestJobIsAnsweredByEveryMember(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	var made []jobs.Job
	for i := range 3 {
		j, err := c.Client(i).SubmitJob(t.Context(), "", endless(fmt.Sprint("sweep-", i)))
		if err != nil || j.Member != c.Worker(i) {
			t.Fatalf("%+v, %v", j, err)
		}
		made = append(made, j)
	}
	var reads sync.WaitGroup
	for at := range 3 {
		list, err := c.Client(at).Jobs(t.Context(), app)
		if d := cmp.Diff(idsOf(made), idsOf(list)); d != "" || err != nil {
			t.Errorf("at %d: %s, %v", at, d, err)
		}
		for i, j := range made {
			reads.Go(func() { readAt(t, c.Client(at), j, c.Worker(i)) })
		}
	}
	reads.Wait()
	for i, j := range made {
		cancelledEverywhere(t, c, (i+1)%3, j)
	}
}

func idsOf(list []jobs.Job) (ids []string) {
	for _, j := range list {
		ids = append(ids, string(j.Member)+" "+j.ID)
	}
	return ids
}

// readAt reads a job at a member in each way, by id and by name.
func readAt(t *testing.T, cl *client.Client, j jobs.Job, member cluster.WorkerID) {
	t.Helper()
	ctx := t.Context()
	for _, ref := range []string{j.ID, j.Spec.Name} {
		got, err := cl.Job(ctx, ref)
		if err != nil || got.ID != j.ID || got.Member != member || got.Tasks != 3 {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
		if got, err = cl.WaitJob(ctx, ref, 0, time.Second); err != nil || got.ID != j.ID || got.State.Final() {
			t.Errorf("waited for %s: %+v, %v", ref, got, err)
		}
		tasks, err := cl.JobTasks(ctx, ref)
		if err != nil || len(tasks) != 3 {
			t.Errorf("the tasks of %s: %+v, %v", ref, tasks, err)
		}
		var text strings.Builder
		for text.Len() == 0 && err == nil { // the task may be about to begin
			err = cl.TaskLogs(ctx, ref, 1, machine.LogQuery{}, func(l machine.LogLine) error {
				text.WriteString(l.Text)
				return nil
			})
		}
		if err != nil || !strings.Contains(text.String(), "hello") {
			t.Errorf("the output of %s: %q, %v", ref, text.String(), err)
		}
	}
}

// cancelledEverywhere cancels a task of a job, then the job, at a member, while another one waits for it.
func cancelledEverywhere(t *testing.T, c *testcluster.Cluster, at int, j jobs.Job) {
	t.Helper()
	ctx := t.Context()
	waited := make(chan error, 3)
	for i := range 3 {
		go func() {
			got, err := c.Client(i).WaitJob(ctx, j.ID, jobs.MaxTasks, time.Minute)
			if err == nil && got.State != jobs.Cancelled {
				err = fmt.Errorf("it is %s", got.State)
			}
			waited <- err
		}()
	}
	part, err := c.Client(at).CancelTasks(ctx, j.ID, jobs.Indices{{First: 1, Last: 1}})
	if err != nil || part.Tasks != 1 || part.Job.Member != j.Member {
		t.Errorf("%+v, %v", part, err)
	}
	if got, err := c.Client(at).CancelJob(ctx, j.Spec.Name); err != nil || got.ID != j.ID || got.Member != j.Member {
		t.Errorf("%+v, %v", got, err)
	}
	for range 3 {
		if err := <-waited; err != nil {
			t.Errorf("waited for %s: %v", j.ID, err)
		}
	}
	for i := range 3 {
		if got, err := c.Client(i).Job(ctx, j.ID); err != nil || got.State != jobs.Cancelled {
			t.Errorf("at %d: %+v, %v", i, got, err)
		}
		list, err := c.Client(i).UnfinishedJobs(ctx, app)
		if err != nil || slices.ContainsFunc(list, func(x jobs.Job) bool { return x.ID == j.ID }) {
			t.Errorf("at %d: %v, %v", i, idsOf(list), err)
		}
	}
}

// TestJobOfADeadMemberIsShownFromItsCopy at once, whether or not the member asked has seen the job before, while its
// keeper is named as missing; nothing is changed then by a name. A name means it, too. After the take-over it is the
// heir's.
func TestJobOfADeadMemberIsShownFromItsCopy(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	ctx, name := t.Context(), "sweep"
	older := submit(t, c, 0, endless(name))
	lost := submit(t, c, 2, endless(name))
	heir := heirOf(t, c, 2, 3, lost)
	heirOf(t, c, 0, 3, older)
	if j, err := c.Client(0).Job(ctx, name); err != nil || j.ID != lost { // the first member has seen it
		t.Fatalf("%+v, %v", j, err)
	}
	c.Kill(2)
	for at := range 2 {
		for what, err := range deadAnswers(ctx, c.Client(at), lost) {
			if err != nil {
				t.Errorf("%s at %d: %v", what, at, err)
			}
		}
		list, err := c.Client(at).Jobs(ctx, "")
		if err != nil || len(list) != 2 || list[0].ID != older || list[1].ID != lost {
			t.Errorf("at %d: %v, %v", at, idsOf(list), err)
		}
		if j, err := c.Client(at).Job(ctx, name); err != nil || j.ID != lost {
			t.Errorf("at %d the name means %+v, %v", at, j, err)
		}
	}
	for at := range 2 {
		fresh, err := c.Client(at).SubmitJob(ctx, "", endless("")) // which asks nobody
		if err == nil {
			_, err = c.Client(1-at).CancelJob(ctx, fresh.ID)
		}
		if err != nil {
			t.Error(err)
		}
	}
	c.Until("the heir has taken it over", func() bool {
		j, err := c.Client(heir).Job(ctx, lost)
		return err == nil && j.Member == c.Worker(heir)
	})
	c.Restart(2)
	for at := range 3 {
		c.Until("the job runs at its heir", func() bool {
			j, err := c.Client(at).Job(ctx, lost)
			return err == nil && j.Member == c.Worker(heir) && j.State == jobs.Running
		})
	}
	if _, err := c.Client(2).CancelJob(ctx, name); err != nil {
		t.Error(err)
	}
}

// deadAnswers are what the calls answer about a job whose keeper does not answer.
func deadAnswers(ctx context.Context, cl *client.Client, id string) map[string]error {
	out := map[string]error{}
	_, out["status"] = cl.Job(ctx, id)
	_, out["wait"] = cl.WaitJob(ctx, id, 0, time.Second)
	_, out["tasks"] = cl.JobTasks(ctx, id)
	_, out["report"] = cl.JobReport(ctx, id)
	_, out["submit again"] = cl.SubmitJob(ctx, id, endless(""))
	return out
}

// TestIDSubmittedAgainElsewhereMakesNoSecondJob, at any member.
func TestIDSubmittedAgainElsewhereMakesNoSecondJob(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	ctx := t.Context()
	const id = "j0123456789"
	for _, at := range []int{1, 0, 2, 1} {
		j, err := c.Client(at).SubmitJob(ctx, id, endless(fmt.Sprint("at-", at)))
		if err != nil || j.ID != id || j.Member != c.Worker(1) || j.Spec.Name != "at-1" {
			t.Errorf("at %d: %+v, %v", at, j, err)
		}
	}
	for at := range 3 {
		if list, err := c.Client(at).Jobs(ctx, ""); err != nil || len(list) != 1 {
			t.Errorf("at %d: %v, %v", at, idsOf(list), err)
		}
	}
}

// TestJobCallsCostExpectedRequests counts what each question costs in requests to the two others.
func TestJobCallsCostExpectedRequests(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	ctx := t.Context()
	j, err := c.Client(1).SubmitJob(ctx, "", endless("sweep"))
	if err != nil {
		t.Fatal(err)
	}
	status := func(ref string) func() {
		return func() {
			if _, err := c.Client(0).Job(ctx, ref); err != nil {
				t.Error(err)
			}
		}
	}
	asked := func(want map[string]uint64, f func()) {
		t.Helper()
		got := calls(c, 0, f)
		for what := range got {
			if !strings.HasPrefix(what, "job") || what == "job-keep" || what == "job-claims" {
				delete(got, what) // between members there are other calls
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	asked(map[string]uint64{"job": 2}, status("sweep"))
	asked(map[string]uint64{"job": 1}, status(j.ID)) // remembered
	asked(map[string]uint64{"jobs": 2}, func() {
		if _, err := c.Client(0).UnfinishedJobs(ctx, ""); err != nil {
			t.Error(err)
		}
	})
	asked(map[string]uint64{}, func() { // a new job
		if _, err := c.Client(0).SubmitJob(ctx, "", endless("")); err != nil {
			t.Error(err)
		}
	})
	asked(map[string]uint64{"job": 2}, func() { // one that may be there
		if _, err := c.Client(0).SubmitJob(ctx, "j0123456789", endless("")); err != nil {
			t.Error(err)
		}
	})
	asked(map[string]uint64{"job-cancel": 1}, func() {
		if _, err := c.Client(0).CancelJob(ctx, j.ID); err != nil {
			t.Error(err)
		}
	})
}
