package apollo

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (a *Apollo) Explain(d *scheduler.Env, job int32) string {
	switch d.Self.Role {
	case scheduler.Buyer:
		b := &a.buyers[d.Self.ID]
		j, all := b.jobs[job], d.Job(job).Tasks
		if j == nil || j.next == all {
			return ""
		}
		return fmt.Sprintf("%d of %s not placed; %s, of its part of all slots among %s", all-j.next,
			scheduler.Count(int(all), "task is", "tasks are"), scheduler.Count(int(j.regular), "token is used",
				"tokens are used"), scheduler.Count(int(max(b.open, int32(len(b.jobs)))), "job", "jobs"))
	case scheduler.Worker:
		w := &a.workers[d.Self.ID]
		text := scheduler.QueuePlace(len(w.regular), func(i int) bool { return w.regular[i].job == job })
		if text == "" {
			text = scheduler.QueuePlace(len(w.opportunistic), func(i int) bool { return w.opportunistic[i].job == job })
			if text != "" {
				text += ", once no regular task waits"
			}
		}
		return text
	}
	return ""
}
