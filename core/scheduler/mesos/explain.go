package mesos

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (m *Mesos) Explain(d *scheduler.Env, job int32) string {
	switch d.Self.Role {
	case scheduler.Buyer:
		list := m.frameworks[d.Self.ID].jobs
		mine, before := scheduler.LeftOf(job, len(list), func(i int) (int32, int32) {
			return list[i].job, list[i].end - list[i].next
		})
		if mine > 0 {
			return scheduler.Behind(scheduler.Count(mine, "task waits for an offer", "tasks wait for an offer"), before)
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
