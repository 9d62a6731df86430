package tarcil

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (t *Tarcil) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role != scheduler.Buyer {
		return ""
	}
	a := &t.agents[d.Self.ID]
	mine, before := scheduler.LeftOf(job, len(a.waiting), func(i int) (int32, int32) {
		return a.waiting[i].job, a.waiting[i].end - a.waiting[i].next
	})
	if mine == 0 {
		return ""
	}
	return fmt.Sprintf("%s; by its samples %.0f %% of the workers have a good slot", scheduler.Behind(
		scheduler.Count(mine, "task in the queue", "tasks in the queue"), before), 100*a.good)
}
