package yarn

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain says how many containers of a job are asked for, and what is before them in its queue; "": none are.
func (q *Queues) Explain(queue, job int32) string {
	x := &q.queues[queue]
	mine, before := scheduler.LeftOf(job, len(x.jobs), func(i int) (int32, int32) {
		return x.jobs[i].job, x.jobs[i].want - x.jobs[i].next
	})
	if mine == 0 {
		return ""
	}
	text := scheduler.Count(mine, "container is asked for", "containers are asked for")
	if before > 0 {
		text += fmt.Sprintf(", %d of other jobs before", before)
	}
	return fmt.Sprintf("%s; its member's queue has %d, and the queue with the fewest gets the next slot", text, x.has)
}

// Explain implements scheduler.Explainer.
func (y *YARN) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role != scheduler.Center {
		return ""
	}
	return y.manager.Explain(d.Job(job).Buyer, job)
}
