package cell_test

import (
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/sim/cell"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

func TestJobsAreReadFromADecisionLog(t *testing.T) {
	jobs, err := cell.FromDecisions([]trace.Placed{
		{Submit: 0, Duration: 2, Want: cluster.Resources{CPU: 500, Memory: 256}, Batch: true},
		{Submit: 1, Duration: 3, Want: cluster.Resources{CPU: 100}},
		{Submit: 2, Duration: 3},
	})
	if err != nil || len(jobs) != 2 || jobs[0].Class != cell.Batch || jobs[1].Class != cell.Service ||
		jobs[0].Duration != 2*ticks.Second || jobs[0].Want.CPU != 500 {
		t.Errorf("%+v %v", jobs, err)
	}
	if _, err := cell.FromDecisions(nil); err == nil {
		t.Error("an empty log was taken")
	}
	if _, err := cell.FromDecisions([]trace.Placed{{Want: cluster.Resources{CPU: 1 << 40}}}); err == nil {
		t.Error("a machine of a thousand million cores was taken")
	}
}
