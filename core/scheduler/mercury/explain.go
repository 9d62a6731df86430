package mercury

import "github.com/soukhq/souk/core/scheduler"

// Explain implements scheduler.Explainer.
func (m *Mercury) Explain(d *scheduler.Env, job int32) string {
	switch d.Self.Role {
	case scheduler.Center:
		return m.manager.Explain(d.Job(job).Buyer, job)
	case scheduler.Buyer:
		b := &m.buyers[d.Self.ID]
		mine, before := scheduler.LeftOf(job, len(b.waiting), func(i int) (int32, int32) {
			return b.waiting[i].job, b.waiting[i].end - b.waiting[i].next
		})
		if mine == 0 {
			return ""
		}
		text := scheduler.Behind(scheduler.Count(mine, "queueable task is not placed",
			"queueable tasks are not placed"), before)
		if b.full {
			text += "; the queues of all workers seem full"
		}
		return text
	}
	n := &m.nodes[d.Self.ID]
	return scheduler.QueuePlace(len(n.queue), func(i int) bool { return n.queue[i].job == job })
}
