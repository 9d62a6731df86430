package jobs_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

func TestClassGoesBeforeTheEstimate(t *testing.T) {
	for _, c := range []struct {
		class    jobs.Class
		estimate time.Duration
		long     bool
	}{
		{"", 9 * time.Second, false},
		{"", 10 * time.Second, true},
		{jobs.Long, time.Second, true},
		{jobs.Short, time.Hour, false},
	} {
		d, now := jobs.NewDispatcher(auction.DefaultRules(64)), time.Unix(1e9, 0)
		d.Resume()
		d.Open(now)
		spec := settled(t, jobs.Spec{Scheduler: "hawk", Class: c.class, EstimateMS: c.estimate.Milliseconds()})
		if err := d.Submit(now, jobs.ID(1), spec); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		d.Saved(now)
		d.Report(now, jobs.Report{Worker: tokenWorker, Full: true})
		if list := d.Handouts(); len(list) != 1 || list[0].Batch.Long != c.long {
			t.Errorf("class %q, %v a task: handed out %+v", c.class, c.estimate, list)
		}
	}
	bad := jobs.Spec{App: "a", Command: []string{"x"}, Class: "medium"}
	if err := bad.Settle(); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a class that is none: %v", err)
	}
}
