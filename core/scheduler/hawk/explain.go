package hawk

import "github.com/soukhq/souk/core/scheduler"

// Explain implements scheduler.Explainer.
func (h *Hawk) Explain(d *scheduler.Env, job int32) string {
	switch d.Self.Role {
	case scheduler.Center:
		return h.long.Explain(d, job)
	case scheduler.Buyer:
		return h.buyers[d.Self.ID].Explain(d, job)
	}
	return h.WorkerPool.Explain(d.Self.ID, job)
}
