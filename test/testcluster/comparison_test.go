package testcluster_test

import (
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/trial"
)

// TestComparisonEndsWithoutItsWatcher: the member that watches a comparison is killed. Another one finds that jobs take longer
// under the candidate, and ends it; the one that was killed hears of that when it is back.
func TestComparisonEndsWithoutItsWatcher(t *testing.T) {
	t.Parallel()
	c := newJobs(t, 3)
	x, err := c.Client(0).StartSchedulerComparison(t.Context(), "", api.NewSchedulerComparison{A: "market", B: "yarn:5",
		Share: 50, Margin: 20})
	if err != nil {
		t.Fatal(err)
	}
	members := []cluster.WorkerID{c.Worker(0), c.Worker(1), c.Worker(2)}
	watcher := 0
	for i, id := range members {
		if id == cluster.Steward(members, "comparison/"+x.ID) {
			watcher = i
		}
	}
	drew := map[string]int{}
	for n := range 90 { // at all of them, so that the one that is killed has some of the jobs
		id := submit(t, c, n%3, array(2, "true"))
		j, err := c.Client(n%3).Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		drew[j.Spec.SchedulerText()]++
	}
	if len(drew) != 2 {
		t.Errorf("the jobs drew %v", drew)
	}
	c.Kill(watcher)
	other := (watcher + 1) % 3
	c.Until("the comparison has ended", func() bool {
		x, err = c.Client(other).SchedulerComparison(t.Context(), "")
		return err == nil && x.Ended != nil
	})
	if x.Verdict != trial.BWorse || x.Why == "" {
		t.Errorf("%+v", x)
	}
	c.Restart(watcher)
	c.Until("the member that was killed knows it", func() bool {
		got, err := c.Client(watcher).SchedulerComparison(t.Context(), "")
		return err == nil && got.Ended != nil && got.ID == x.ID
	})
	id := submit(t, c, watcher, array(1, "true"))
	if j, err := c.Client(watcher).Job(t.Context(), id); err != nil || j.Spec.SchedulerFrom != nil {
		t.Errorf("%+v, %v", j.Spec, err)
	}
}
