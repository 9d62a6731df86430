package borg

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (b *Borg) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role != scheduler.Center {
		return ""
	}
	ahead := 0 // tasks of a higher priority
	for i := range b.bands {
		others, all := 0, 0
		for u := range b.bands[i].users {
			if len(b.bands[i].users[u].jobs) > 0 {
				others++
			}
			for _, p := range b.bands[i].users[u].jobs {
				all += int(p.end - p.next)
			}
		}
		before := 0
		for _, p := range b.bands[i].users[d.Job(job).Buyer].jobs {
			if left := int(p.end - p.next); p.job == job {
				mine := scheduler.Behind(scheduler.Count(left, "task in the queue", "tasks in the queue"), before)
				return fmt.Sprintf("%s; %d of a higher priority, then %s in turns", mine, ahead,
					scheduler.Count(others, "member", "members"))
			} else {
				before += left
			}
		}
		ahead += all
	}
	return ""
}
