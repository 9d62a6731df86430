package probing

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain says how many tasks of a job wait for a worker that asks; "": none do.
func (b *Binder) Explain(d *scheduler.Env, job int32) string {
	u := b.jobs[job]
	if u == nil {
		return ""
	}
	all := d.Job(job).Tasks
	return fmt.Sprintf("%d of %s no worker yet: one gets a task when its reservation is next and it asks", all-u.next,
		scheduler.Count(int(all), "task has", "tasks have"))
}

// Explain says where a worker's reservations for a job are in its queue; "": it has none.
func (f *WorkerPool) Explain(worker, job int32) string {
	w := &f.Workers[worker]
	mine, first := 0, 0
	for i, p := range w.Queue {
		if p.Job == job {
			if mine++; mine == 1 {
				first = i
			}
		}
	}
	if mine == 0 {
		return ""
	}
	text := scheduler.Count(mine, "reservation", "reservations")
	if f.Order == FIFO {
		return scheduler.Behind(text, first)
	}
	return fmt.Sprintf("%s among %d, of which that with the least work left goes first", text, len(w.Queue))
}
