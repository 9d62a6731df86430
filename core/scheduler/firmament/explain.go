package firmament

import (
	"fmt"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/flow"
)

// Explain implements scheduler.Explainer.
func (f *Firmament) Explain(d *scheduler.Env, job int32) string {
	if d.Self.Role != scheduler.Center {
		return ""
	}
	inside, before, cost := 0, 0, int64(0)
	for _, i := range f.order {
		switch t, waits := f.inside[i]; {
		case !waits:
		case t.job == job:
			if inside++; inside == 1 {
				wait := float64(d.Now-t.since) / float64(scheduler.Second)
				cost = min(t.base+flow.Wait(wait), flow.MaxCost)
			}
		case inside == 0:
			before++
		}
	}
	first := slices.IndexFunc(f.waiting, func(t task) bool { return t.job == job })
	switch {
	case inside > 0:
		return fmt.Sprintf("%s in the flow network, behind %d that came before; its arc to stay unscheduled costs %d, "+
			"and %s", scheduler.Count(inside, "task is", "tasks are"), before, cost,
			scheduler.Count(f.free, "slot is free", "slots are free"))
	case first >= 0:
		return fmt.Sprintf("its tasks enter the flow network after %s", scheduler.Count(first, "other", "others"))
	}
	return ""
}
