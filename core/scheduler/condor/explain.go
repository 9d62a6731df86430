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
		before := int32(0)
		for _, b := range c.agents[d.Self.ID].jobs {
			left := b.tasks - b.next
			if b.job == job {
				return scheduler.Behind(scheduler.Count(int(left), "task waits for a match", "tasks wait for a match"),
					int(before))
			}
			before += left
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
