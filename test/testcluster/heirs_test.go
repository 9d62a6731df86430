package testcluster_test

import (
	"testing"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// heirOf waits until a job has a copy at another member, and returns that member's place.
func heirOf(t *testing.T, c *testcluster.Cluster, at, n int, id string) int {
	t.Helper()
	heir := -1
	c.Until("the job has an heir", func() bool {
		j, err := c.Client(at).Job(t.Context(), id)
		for i := range n {
			if err == nil && j.Heir == c.Worker(i) {
				heir = i
			}
		}
		return heir >= 0
	})
	return heir
}

// keptOnce waits until every living member lists the job once, kept by the same member.
func keptOnce(t *testing.T, c *testcluster.Cluster, members []int, id string, keeper int) {
	t.Helper()
	for _, i := range members {
		c.Until("the job is listed once", func() bool {
			list, err := c.Client(i).Jobs(t.Context(), "")
			n := 0
			for _, j := range list {
				if j.ID == id && j.Member == c.Worker(keeper) {
					n++
				} else if j.ID == id {
					n += 2
				}
			}
			return err == nil && n == 1
		})
	}
}

// TestJobSurvivesItsKeepersHost: the host of the member that keeps a job goes down for good. The heir takes the job over,
// the tasks that run elsewhere are not run again, and each task has one result and its output. The member that comes back finds that the
// job is another's.
func TestJobSurvivesItsKeepersHost(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	id := submit(t, c, 0, array(60, "sh", "-c", "echo out; sleep 0.7"))
	heir := heirOf(t, c, 0, 3, id)
	c.Until("tasks have ended", func() bool {
		j, err := c.Client(0).Job(t.Context(), id)
		return err == nil && j.Done() >= 15
	})
	c.PowerOff(0)
	j, list := ended(t, c, heir, id)
	if j.Succeeded != 60 || j.Member != c.Worker(heir) || j.Epoch == 0 {
		t.Errorf("%+v", j)
	}
	other := 3 - heir
	if j, _ := ended(t, c, other, id); j.Succeeded != 60 || j.Member != c.Worker(heir) {
		t.Errorf("%+v", j)
	}
	if n := ranAt(list); n[c.Worker(0)] < 4 || n[c.Worker(1)] < 4 || n[c.Worker(2)] < 4 {
		t.Errorf("ran at %v", n)
	}
	for _, x := range list {
		said := ""
		err := c.Client(other).TaskLogs(t.Context(), id, x.Index, machine.LogQuery{}, func(l machine.LogLine) error {
			said += string(l.Raw())
			return nil
		})
		if err != nil || said != "out\n" {
			t.Errorf("task %d at %s wrote %q, %v", x.Index, x.Worker, said, err)
		}
	}
	c.Restart(0)
	keptOnce(t, c, []int{0, 1, 2}, id, heir)
}

// TestKeeperThatComesBackHandsItsJobOver: souk is killed at the member that keeps a job, whose tasks run on there. The heir takes
// over, the member comes back, and its tasks are the heir's: none is lost.
func TestKeeperThatComesBackHandsItsJobOver(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	id := submit(t, c, 0, array(12, "sleep", "20"))
	runsAtEach(t, c, 0, 3, id, 4)
	heir := heirOf(t, c, 0, 3, id)
	c.Kill(0)
	c.Until("the heir has taken over", func() bool {
		j, err := c.Client(heir).Job(t.Context(), id)
		return err == nil && j.Member == c.Worker(heir) && j.Epoch > 0
	})
	c.Restart(0)
	keptOnce(t, c, []int{0, 1, 2}, id, heir)
	j, _ := ended(t, c, 0, id)
	if j.Succeeded != 12 || j.Member != c.Worker(heir) {
		t.Errorf("%+v", j)
	}
}
