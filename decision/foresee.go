package decision

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// Foreseen is what a request would meet now.
type Foreseen string

// What there is to foresee.
const (
	FitsNow Foreseen = "fits"
	NotNow  Foreseen = "not_now"
	Never   Foreseen = "never"
)

// Plan is what would become of a request, decided by the buyer itself on a view that nobody has changed.
type Plan struct {
	Verdict  Foreseen  `json:"verdict"`
	Decision *Decision `json:"decision"`
	Changes  []Change  `json:"changes"` // that would make it fit, where it does not
}

// Foresee says what market.Buyer would do with the request on this view, when every worker is as the view says: the
// same code as when it does it, so the machine of this id goes where the plan says as long as nothing changes.
func Foresee(now time.Time, r placement.Request, view cluster.View, p placement.Policy, limits Limits) Plan {
	b := market.NewBuyer(r, view, p)
	out := b.Step(market.In{})
	for !out.Done {
		out = b.Step(answerOf(r, view, out.Ask))
	}
	plan := Plan{Verdict: FitsNow, Changes: []Change{},
		Decision: From(Taken{At: now, Why: Create, Trail: b.Trail(), Err: out.Err})}
	if out.Err == nil {
		return plan
	}
	plan.Verdict = NotNow
	if fault.CodeOf(out.Err) == "never_fits" {
		plan.Verdict = Never
	}
	plan.Changes = append(plan.Changes, Nearest(r, view, p, limits)...)
	return plan
}

// answerOf gives what a worker of the view would answer.
func answerOf(r placement.Request, view cluster.View, id cluster.WorkerID) market.In {
	for i := range view.Workers {
		if w := &view.Workers[i]; w.Worker == id {
			if v := placement.JudgeAt(&r, w); !v.Fits {
				return market.In{Worker: id, Refused: &market.Refusal{Verdict: v, Record: *w}}
			}
		}
	}
	return market.In{Worker: id, Granted: true}
}
