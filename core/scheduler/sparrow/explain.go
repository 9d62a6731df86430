package sparrow

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (s *Sparrow) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role == scheduler.Buyer {
		return s.buyers[d.Self.ID].Explain(d, job)
	}
	return s.WorkerPool.Explain(d.Self.ID, job)
}

// Explain implements scheduler.Explainer.
func (s *Sampling) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role == scheduler.Worker {
		q := &s.workers[d.Self.ID]
		return scheduler.QueuePlace(len(q.tasks), func(i int) bool { return q.tasks[i].job == job })
	}
	x := s.buyers[d.Self.ID].jobs[job]
	if x == nil {
		return ""
	}
	return fmt.Sprintf("%d of %s not said yet how loaded it is", x.missing,
		scheduler.Count(len(x.workers), "sampled worker has", "sampled workers have"))
}
