package sharedstate

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (s *SharedState) Explain(d *scheduler.Env, job int32) string {
	switch d.Self.Role {
	case scheduler.Buyer:
		return s.buyers[d.Self.ID].explain(job)
	case scheduler.Center:
		c := &s.cell
		if i := c.requestOf(d.Job(job).Buyer); i >= 0 {
			r := &c.waiting[i]
			return fmt.Sprintf("its scheduler waits for the cell's state until %s free, and %d are; %s before it",
				scheduler.Count(int(r.need), "slot is", "slots are"), c.free.Total(),
				scheduler.Count(i, "scheduler was", "schedulers were"))
		}
	}
	return ""
}

func (b *buyer) explain(job int32) string {
	before := int32(0)
	for i := range b.jobs {
		p := &b.jobs[i]
		if p.job != job {
			before += p.left()
			continue
		}
		text := scheduler.Behind(scheduler.Count(int(p.left()), "task has no slot", "tasks have no slot"), int(before))
		if b.at == i && b.phase == committing {
			text += fmt.Sprintf("; a transaction of %s is under way", scheduler.Count(len(b.claims), "claim", "claims"))
		}
		if p.conflicts > 0 {
			text += fmt.Sprintf("; %s of it so far", scheduler.Count(int(p.conflicts), "conflict", "conflicts"))
		}
		return text
	}
	return ""
}
