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
	mine, before := int32(0), int32(0)
	for _, w := range a.waiting {
		if w.job == job {
			mine += w.end - w.next
		} else if mine == 0 {
			before += w.end - w.next
		}
	}
	if mine == 0 {
		return ""
	}
	return fmt.Sprintf("%s; by its samples %.0f %% of the workers have a good slot", scheduler.Behind(
		scheduler.Count(int(mine), "task in the queue", "tasks in the queue"), int(before)), 100*a.good)
}
