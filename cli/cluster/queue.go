package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
)

// mostQueued bounds the jobs of the queue that are shown one by one.
const mostQueued = 5

// queue is the jobs of all members that have not ended.
type queue struct {
	Jobs    int `json:"jobs"`
	Waiting int `json:"tasks_waiting"`
	Running int `json:"tasks_running"`
	// when the oldest job with tasks that wait was submitted; nil: no task waits
	Oldest *time.Time  `json:"oldest_waiting_since,omitempty"`
	First  []queuedJob `json:"first"` // the oldest, at most mostQueued
}

// queuedJob is one job of the queue.
type queuedJob struct {
	ID      string        `json:"id"`
	Name    string        `json:"name,omitempty"`
	Owner   string        `json:"owner,omitempty"`
	Waiting int           `json:"tasks_waiting"`
	Running int           `json:"tasks_running"`
	Done    int           `json:"tasks_done"`
	State   jobs.JobState `json:"state"`
	Held    bool          `json:"held,omitempty"` // its tasks that wait are kept from starting
}

// queueOf makes the queue of unfinished jobs, oldest first; nil: there are none.
func queueOf(list []jobs.Job) *queue {
	if len(list) == 0 {
		return nil
	}
	q := &queue{Jobs: len(list)}
	for i := range list {
		j := &list[i]
		q.Waiting += j.Waiting
		q.Running += j.Running
		if j.Waiting > 0 && q.Oldest == nil {
			q.Oldest = &j.Submitted
		}
		if i < mostQueued {
			q.First = append(q.First, queuedJob{ID: j.ID, Name: j.Spec.Name, Owner: j.Spec.Owner.Name(),
				Waiting: j.Waiting, Running: j.Running, Done: j.Done(), State: j.State, Held: j.Held})
		}
	}
	return q
}

// sample is what souk top shows of one moment.
type sample struct {
	api.UsageList
	Queue *queue `json:"queue,omitempty"` // nil: no job is unfinished, or jobs cannot be listed
}

// takeSample asks for what workers use, with that of machines if use is set, and for the queue.
func takeSample(ctx context.Context, cl *client.Client, use bool) (s sample, err error) {
	if s.UsageList, err = cl.Top(ctx, use); err != nil {
		return s, err
	}
	list, err := cl.UnfinishedJobs(ctx, "")
	if err == nil { // a member that takes no jobs, or a souk that is busy, still has workers to show
		s.Queue = queueOf(list)
	}
	return s, nil
}

// printQueue prints the queue, with the first of its jobs.
func (p *picture) printQueue(c *cli.Env, most int) {
	q := p.queue
	text := fmt.Sprintf("%s: %s waiting, %d running", cli.NumberOf(q.Jobs, "unfinished job", "unfinished jobs"),
		cli.NumberOf(q.Waiting, "task", "tasks"), q.Running)
	if q.Oldest != nil {
		text += ", since " + cli.Age(q.Oldest.Format(time.RFC3339Nano), p.now.At)
	}
	c.Printf("%s\n", text)
	most = min(most, len(q.First))
	if most <= 0 {
		return
	}
	rows := make([][]cli.Cell, most)
	for i := range rows {
		j := &q.First[i]
		state := string(j.State)
		if j.Held {
			state += ", on hold"
		}
		rows[i] = cli.Cells(cmp.Or(j.Name, j.ID), j.ID, cmp.Or(j.Owner, "-"), fmt.Sprint(j.Waiting),
			fmt.Sprint(j.Running), fmt.Sprint(j.Done), state)
	}
	c.Table([]cli.Column{cli.Keep("JOB").Cut(8), cli.Drop("ID", 1), cli.Drop("OWNER", 3).Cut(6), cli.Keep("WAITING"),
		cli.Keep("RUNNING"), cli.Drop("DONE", 2), cli.Drop("STATE", 4)}, rows)
}
