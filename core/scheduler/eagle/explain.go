package eagle

import "github.com/soukhq/souk/core/scheduler"

// Explain implements scheduler.Explainer.
func (e *Eagle) Explain(d *scheduler.Env, job int32) string {
	switch d.Self.Role {
	case scheduler.Center:
		return e.long.Explain(d, job)
	case scheduler.Buyer:
		return e.buyers[d.Self.ID].Explain(d, job)
	}
	return e.WorkerPool.Explain(d.Self.ID, job)
}
