package buyers

import (
	"context"
	"maps"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// awaitedEvery is how often other members are asked how jobs have ended that own ones wait for.
const awaitedEvery = time.Second

// FollowAwaited tells the own buyer how jobs of other members have ended that its jobs wait for, until ctx ends.
func (b *Jobs) FollowAwaited(ctx context.Context) {
	told := map[string]jobs.Outcome{}
	for wait.For(ctx, awaitedEvery) == nil {
		b.tellAwaited(ctx, told)
	}
}

// tellAwaited tells the own buyer of each job that it awaits. told has what it was told last.
func (b *Jobs) tellAwaited(ctx context.Context, told map[string]jobs.Outcome) {
	all, err := b.own.Awaited(ctx)
	if err != nil {
		return // the buyer is ending
	}
	maps.DeleteFunc(told, func(id string, _ jobs.Outcome) bool { _, is := all[id]; return !is })
	for id, tasks := range all {
		if o, ok := b.outcomeOf(ctx, id, tasks, told[id]); ok {
			told[id] = o
			b.own.Learn(&o)
		}
	}
}

// outcomeOf asks for the outcome of a job; false: the members that may know it do not answer. If tasks matter, those
// that have succeeded are asked for, unless they are as many as before.
func (b *Jobs) outcomeOf(ctx context.Context, id string, tasks bool, before jobs.Outcome) (o jobs.Outcome, ok bool) {
	o.Job = id
	j, _, err := b.Status(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound):
		o.Why = "no member knows it any more, nor how it ended"
		return o, true
	case err != nil:
		return o, false
	}
	o.Ended, o.Succeeded, o.Indices = j.State.Final(), j.State == jobs.Succeeded, j.Spec.Indices()
	if !tasks || o.Succeeded {
		return o, true
	}
	o.HasDone = true
	if o.Done = before.Done; o.Done.Len() == j.Succeeded {
		return o, true
	}
	o.Done = nil
	for from := 0; from >= 0; {
		page, next, err := b.Tasks(ctx, id, jobs.TaskQuery{From: from, Limit: pageOfTasks,
			States: []string{"succeeded"}})
		if err != nil || next >= 0 && next <= from {
			return o, false
		}
		for i := range page {
			o.Done = o.Done.Add(page[i].Index)
		}
		from = next
	}
	return o, true
}

// pageOfTasks is how many tasks are asked for at once.
const pageOfTasks = 10_000
