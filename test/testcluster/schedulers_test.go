package testcluster_test

import (
	"fmt"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/test/testcluster"
)

// TestTasksOfEverySchedulerSurviveKills: a job of each architecture runs at three members, of which each is killed in
// turn: a worker, the keeper, and the other worker. Each task has one result, and no attempt begins twice.
func TestTasksOfEverySchedulerSurviveKills(t *testing.T) {
	t.Parallel()
	const tasks = 200
	c := newJobs(t, 3)
	ids := map[string]string{} // jobs by scheduler
	for _, name := range registry.Names() {
		if name != jobs.Auction {
			s := array(tasks, "sleep", "0.02")
			s.Scheduler = name
			ids[name] = submit(t, c, 0, s)
		}
	}
	enough := func(percent int) {
		t.Helper()
		c.Until("tasks have ended", func() bool {
			list, err := c.Client(0).Jobs(t.Context(), app)
			n := 0
			for i := range list {
				n += list[i].Done()
			}
			return err == nil && n >= len(ids)*tasks*percent/100
		})
	}
	enough(5)
	c.Kill(1)
	enough(15)
	c.Restart(1)
	enough(25)
	c.Kill(0)
	c.Restart(0)
	enough(40)
	c.Kill(2)
	enough(50)
	c.Restart(2)
	for name, id := range ids {
		j, list := ended(t, c, 0, id)
		if j.Succeeded != tasks || j.Retried != 0 || j.Member != c.Worker(0) {
			t.Errorf("%s: %d succeeded, %d lost, %d retried, kept by %s", name, j.Succeeded, j.Lost, j.Retried,
				j.Member)
		}
		seen := map[int]bool{}
		for _, x := range list {
			if seen[x.Index] || x.ExitCode == nil {
				t.Errorf("%s: task %d is listed twice, or has no result: %+v", name, x.Index, x)
			}
			seen[x.Index] = true
		}
	}
	startedOnce(t, c, 3, ids, tasks)
}

// startedOnce checks that no attempt of the tasks of jobs, by scheduler, was started twice on any host, and that few tasks
// were started in two attempts: those that a worker began while their keeper, which saw another fleet, took them back.
func startedOnce(t *testing.T, c *testcluster.Cluster, members int, ids map[string]string, tasks int) {
	t.Helper()
	type task struct {
		job   string
		index int
	}
	lives, starts := map[jobs.Life]string{}, map[task]int{}
	for i := range members {
		for _, name := range c.Starts(i) {
			l, ok := jobs.ParseLife(name)
			if !ok {
				t.Fatalf("%s ran, which is no task", name)
			}
			if at, again := lives[l]; again {
				t.Errorf("%s was started at %s and at %s", name, at, c.Worker(i))
			}
			lives[l] = string(c.Worker(i))
			starts[task{l.Job, l.Index}]++
		}
	}
	most, again := len(ids)*tasks/50, map[string]int{}
	for name, id := range ids {
		for i := 1; i <= tasks; i++ {
			switch n := starts[task{id, i}]; n {
			case 0:
				t.Errorf("%s: task %d was never started", name, i)
			case 1:
			default:
				again[name]++
				most--
			}
		}
	}
	if t.Logf("tasks that were started again: %v", again); most < 0 {
		t.Errorf("too many tasks were started again: %v", again)
	}
}

// TestPartiesSayWhereTasksWait asks each member about jobs whose tasks wait. The central place is then killed: another one
// answers for it.
func TestPartiesSayWhereTasksWait(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	sayers := func(at int, id, role string, least int) (members []cluster.WorkerID) {
		t.Helper()
		c.Until(fmt.Sprintf("%d parties say where the tasks wait", least), func() bool {
			s, err := c.Client(at).JobStanding(t.Context(), id)
			members = nil
			for _, x := range s.Said {
				if x.Role == role && x.Text != "" {
					members = append(members, x.Member)
				}
			}
			return err == nil && len(members) >= least && len(s.Silent) == 0
		})
		return members
	}
	submitWaiting := func(name string) string {
		s := array(2000, "sleep", "1000")
		s.Scheduler = name
		return submit(t, c, 0, s)
	}
	probing := submitWaiting("sparrow")
	for at := range 3 {
		sayers(at, probing, "worker", 3) // all have reservations
	}
	var id string
	var center cluster.WorkerID
	for _, name := range []string{"fifo", "sjf", "srtf", "monolithic", "multipath", "clwl", "yarn"} {
		id = submitWaiting(name)
		if center = sayers(1, id, "center", 1)[0]; center != c.Worker(0) {
			break
		}
	}
	for i := range 3 {
		if c.Worker(i) == center && i > 0 {
			c.Kill(i)
			if by := sayers(0, id, "center", 1); by[0] == center {
				t.Errorf("%s is dead, and says where the tasks wait", center)
			}
		}
	}
}
