package pigeon

import "github.com/soukhq/souk/core/scheduler"

// Explain implements scheduler.Explainer.
func (p *Pigeon) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role != scheduler.Center {
		return ""
	}
	m := &p.masters[d.Self.ID]
	list, class := m.short, " of short jobs"
	if d.Job(job).Long {
		list, class = m.long, " of long jobs"
	}
	text := scheduler.QueuePlace(len(list), func(i int) bool { return list[i].job == job })
	if text != "" {
		text += class
	}
	return text
}
