package testcluster_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// fourTasks is room for four tasks at each member.
var fourTasks = cluster.Resources{CPU: 4000, Memory: 4096, Disk: 1000}

func newJobs(t *testing.T, n int) *testcluster.Cluster {
	t.Helper()
	c := testcluster.New(t, n, testcluster.Options{Capacity: fourTasks, Knobs: patientDeath()})
	c.Meet()
	return c
}

// array is a job of tasks that take a whole CPU each.
func array(tasks int, argv ...string) jobs.Spec {
	return jobs.Spec{App: app, First: 1, Last: tasks, Command: argv, CPUKind: "performance"}
}

func submit(t *testing.T, c *testcluster.Cluster, i int, s jobs.Spec) string {
	t.Helper()
	j, err := c.Client(i).SubmitJob(t.Context(), "", s)
	if err != nil {
		t.Fatal(err)
	}
	return j.ID
}

// ended waits until a job has ended, and returns its tasks.
func ended(t *testing.T, c *testcluster.Cluster, i int, id string) (jobs.Job, []jobs.Task) {
	t.Helper()
	var j jobs.Job
	c.Until("the job has ended", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var err error
		j, err = c.Client(i).WaitJob(ctx, id, jobs.MaxTasks, 5*time.Second)
		return err == nil && j.State.Final()
	})
	list, err := c.Client(i).JobTasks(t.Context(), id)
	if err != nil || len(list) != j.Tasks {
		t.Fatalf("%d tasks of %d: %v", len(list), j.Tasks, err)
	}
	return j, list
}

// ranAt counts a job's tasks by the worker that ran them.
func ranAt(list []jobs.Task) map[cluster.WorkerID]int {
	n := map[cluster.WorkerID]int{}
	for _, x := range list {
		n[x.Worker]++
	}
	return n
}

// runsAtEach waits until so many tasks of a job run at each member.
func runsAtEach(t *testing.T, c *testcluster.Cluster, i, members int, id string, want int) {
	t.Helper()
	c.Until("tasks run at each member", func() bool {
		list, err := c.Client(i).JobTasks(t.Context(), id, "running")
		n := ranAt(list)
		for k := range members {
			if n[c.Worker(k)] != want {
				return false
			}
		}
		// Each has begun: one that was only granted shows as running, too, but is not lost with its host.
		return err == nil && !slices.ContainsFunc(list, func(x jobs.Task) bool { return x.TookMS == 0 })
	})
}

// TestJobFillsEveryMember: the tasks of a job that was submitted at one member run at all, to its end; those of two jobs of
// two members share the workers. The tasks are long beside a round trip on a busy host.
func TestJobFillsEveryMember(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	least := func(at int, id string, each int) {
		t.Helper()
		j, list := ended(t, c, at, id)
		n := ranAt(list)
		for k := range 3 {
			if n[c.Worker(k)] < each {
				t.Errorf("of the job of member %d, %v ran at the workers", at, n)
			}
		}
		if j.Succeeded != j.Tasks || j.Retried != 0 || j.Lost != 0 {
			t.Errorf("the job of member %d: %+v", at, j)
		}
	}
	alone := submit(t, c, 0, array(120, "sleep", "0.5"))
	least(0, alone, 120/6)
	first := submit(t, c, 0, array(60, "sleep", "0.5"))
	second := submit(t, c, 1, array(60, "sleep", "0.5"))
	least(0, first, 1)
	least(1, second, 1)
}

// TestTasksElsewhereSurviveKills: a member is killed while it runs tasks of another's job, and that other is, too; each task has one
// result, and no attempt is lost, as the tasks run on.
func TestTasksElsewhereSurviveKills(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	id := submit(t, c, 0, array(300, "sleep", "0.3"))
	enough := func(n int) {
		c.Until("tasks have ended", func() bool {
			j, err := c.Client(0).Job(t.Context(), id)
			return err == nil && j.Done() >= n
		})
	}
	enough(20)
	c.Kill(1)
	enough(40)
	c.Restart(1)
	enough(60)
	c.Kill(0)
	c.Restart(0)
	enough(80)
	j, list := ended(t, c, 0, id)
	if j.Succeeded != 300 || j.Lost != 0 || len(ranAt(list)) != 3 {
		t.Errorf("%+v, at %v", j, ranAt(list))
	}
}

// TestTasksOfALostHostRunAgain: a host goes down with the tasks that it runs for another member's job, and they run again.
func TestTasksOfALostHostRunAgain(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	id := submit(t, c, 0, array(12, "sleep", "3"))
	runsAtEach(t, c, 0, 3, id, 4)
	c.PowerOff(2)
	c.Restart(2)
	if j, _ := ended(t, c, 0, id); j.Succeeded != 12 || j.Lost != 4 {
		t.Errorf("%+v", j)
	}
}

// TestTaskElsewhereIsReadAndEnded: a member shows what a task writes that runs elsewhere, and cancelling ends it there.
func TestTaskElsewhereIsReadAndEnded(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 2)
	id := submit(t, c, 0, array(8, "sh", "-c", "echo out; sleep 3600"))
	runsAtEach(t, c, 0, 2, id, 4)
	list, err := c.Client(0).JobTasks(t.Context(), id, "running")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(list, func(x jobs.Task) bool { return x.Worker == c.Worker(1) })
	var said string
	c.Until("the output is shown", func() bool {
		said = ""
		err := c.Client(0).TaskLogs(t.Context(), id, list[at].Index, machine.LogQuery{}, func(l machine.LogLine) error {
			said += string(l.Raw())
			return nil
		})
		return err == nil && said != ""
	})
	if said != "out\n" {
		t.Errorf("it wrote %q", said)
	}
	if _, err := c.Client(0).CancelJob(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if j, _ := ended(t, c, 0, id); j.Cancelled != 8 {
		t.Errorf("%+v", j)
	}
	for i := range 2 {
		c.Until("nothing runs there any more", func() bool { return c.Runs(i) == 0 })
	}
}
