package condor

import (
	"fmt"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (c *Condor) Explain(d *scheduler.Env, job int32) string {
	switch d.Self.Role {
	case scheduler.Buyer:
		list := c.agents[d.Self.ID].jobs
		mine, before := scheduler.LeftOf(job, len(list), func(i int) (int32, int32) {
			return list[i].job, list[i].tasks - list[i].next
		})
		if mine > 0 {
			return scheduler.Behind(scheduler.Count(mine, "task waits for a match", "tasks wait for a match"), before)
		}
	case scheduler.Center:
		n, user := &c.negotiator, int(d.Job(job).Buyer)
		if n.users[user].want == 0 {
			return ""
		}
		text := fmt.Sprintf("its member is number %d of %d by past usage; %s", slices.Index(n.order, user)+1,
			len(n.order), scheduler.Count(len(n.idle), "slot is unclaimed", "slots are unclaimed"))
		if n.coming >= d.Now {
			text += fmt.Sprintf("; the next cycle is in %.0f s", float64(n.coming-d.Now)/float64(scheduler.Second))
		}
		return text
	}
	return ""
}
