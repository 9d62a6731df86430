package mesos

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (m *Mesos) Explain(d *scheduler.Env, job int32) string {
	switch d.Self.Role {
	case scheduler.Buyer:
		f, before := &m.frameworks[d.Self.ID], int32(0)
		for _, p := range f.jobs {
			left := p.end - p.next
			if p.job == job {
				return scheduler.Behind(scheduler.Count(int(left), "task waits for an offer",
					"tasks wait for an offer"), int(before))
			}
			before += left
		}
	case scheduler.Center:
		f := d.Job(job).Buyer
		open, offered := 0, int32(0)
		for _, o := range m.master.offers {
			if o.framework == f {
				open++
				for _, s := range o.shares {
					offered += s.Count
				}
			}
		}
		text := fmt.Sprintf("%s free", scheduler.Count(m.master.free.Total(), "slot is", "slots are"))
		switch {
		case open > 0:
			text += fmt.Sprintf("; its framework has not answered an offer of %s", scheduler.Count(int(offered), "slot",
				"slots"))
		case m.master.frameworks[f].wants:
			text += "; its framework wants offers, and the one with the least share is next"
		default:
			return ""
		}
		if n := len(m.master.frameworks[f].filters); n > 0 {
			text += fmt.Sprintf("; what it declined of %s is not offered to it for a while",
				scheduler.Count(n, "worker", "workers"))
		}
		return text
	}
	return ""
}
