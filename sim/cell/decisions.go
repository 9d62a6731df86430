package cell

import (
	"math"

	"github.com/soukhq/souk/core/scheduler/omega"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/trace"
)

// FromDecisions makes jobs from placements in souk's decision log: each machine is a job of one task, and bands below
// service are batch. Machines without CPU and memory are left out: they use nothing of a cell.
func FromDecisions(placed []trace.Placed) ([]Job, error) {
	jobs := make([]Job, 0, len(placed))
	for i := range placed {
		p := &placed[i]
		if p.Want.CPU > math.MaxInt32 || p.Want.Memory > math.MaxInt32 {
			return nil, fault.New(fault.Invalid, codeCellTrace,
				"machine %d of the log wants %s, which is larger than any worker of a cell", i+1, p.Want)
		}
		if p.Want.CPU <= 0 && p.Want.Memory <= 0 {
			continue
		}
		j := Job{Submit: secondsToTicks(p.Submit), Duration: secondsToTicks(p.Duration), Tasks: 1, Class: Service,
			Want: omega.Amount{CPU: int32(p.Want.CPU), Mem: int32(p.Want.Memory)}}
		if p.Batch {
			j.Class = Batch
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return nil, fault.New(fault.Invalid, codeCellTrace, "the decision log has no machines; give one that has")
	}
	return jobs, nil
}
