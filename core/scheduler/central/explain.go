package central

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// Explain implements scheduler.Explainer.
func (l *LeastWait) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role == scheduler.Center {
		return l.waits.Explain(d, job)
	}
	return l.WorkerPool.Explain(d.Self.ID, job)
}

// Explain implements scheduler.Explainer.
func (q *Queue) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role != scheduler.Center {
		return ""
	}
	var mine *wait
	for class := range q.backlog {
		for i := range q.backlog[class].heap {
			if x := &q.backlog[class].heap[i]; x.worker == job {
				mine = x
			}
		}
	}
	if mine == nil {
		return ""
	}
	jobs, tasks := 0, int32(0)
	for class := range q.backlog {
		for i := range q.backlog[class].heap {
			if x := &q.backlog[class].heap[i]; isBefore(x, mine) {
				jobs++
				tasks += d.Job(x.worker).Tasks - q.next[x.worker]
			}
		}
	}
	text := scheduler.Count(int(d.Job(job).Tasks-q.next[job]), "task in the queue", "tasks in the queue")
	if jobs == 0 {
		return text + ", the first is next"
	}
	return fmt.Sprintf("%s, behind %s of %s", text, scheduler.Count(int(tasks), "task", "tasks"),
		scheduler.Count(jobs, "other job", "other jobs"))
}
