package decision

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
)

// Foreseen is a prediction of how a request would fare now.
type Foreseen string

// The predictions.
const (
	FitsNow Foreseen = "fits"
	NotNow  Foreseen = "not_now"
	Never   Foreseen = "never"
)

// Plan is the prediction for a request: the decision that the buyer makes on the view as it stands.
type Plan struct {
	Verdict  Foreseen  `json:"verdict"`
	Decision *Decision `json:"decision"`
	Changes  []Change  `json:"changes"` // that would make it fit, if it does not
}

// Answer returns what a worker would answer to an ask, without reserving anything; evict is the consent to evict lower
// ranks.
type Answer func(w cluster.WorkerID, evict bool) market.In

// Foresee returns what market.Buyer would do with the request if every worker is as the view says. It runs the buyer's
// own code, so a machine with this ID goes where the plan says unless the view changes.
//
// ask answers for the workers, with newer state than the view; nil stands for AsRecorded. Only ask knows which
// machines a worker would evict.
func Foresee(now time.Time, r placement.Request, view cluster.View, p placement.Policy, limits Limits,
	ask Answer) Plan {
	return ForeseeBuyer(now, market.NewBuyer(r, view, p), r, view, p, limits, ask)
}

// ForeseeBuyer is Foresee for a buyer that the caller made, for instance with the candidates of an index.
func ForeseeBuyer(now time.Time, b *market.Buyer, r placement.Request, view cluster.View, p placement.Policy,
	limits Limits, ask Answer) Plan {
	if ask == nil {
		ask = AsRecorded(r, view)
	}
	out := b.Step(market.In{})
	for !out.Done { // terminates: a buyer asks no worker the same question twice
		out = b.Step(ask(out.Ask, out.Evict))
	}
	plan := Plan{Verdict: FitsNow, Changes: []Change{},
		Decision: From(Observation{At: now, Why: Create, Strategy: r.Scheduling.Strategy, Purchase: b.Purchase(),
			Err: out.Err})}
	if out.Err == nil {
		return plan
	}
	plan.Verdict = NotNow
	if fault.CodeOf(out.Err) == fault.CodeNeverFits {
		plan.Verdict = Never
	}
	plan.Changes = append(plan.Changes, Nearest(r, view, p, limits)...)
	return plan
}

// AsRecorded answers for workers as their records say, and trusts their summaries of lower ranks.
func AsRecorded(r placement.Request, view cluster.View) Answer {
	return func(id cluster.WorkerID, evict bool) market.In {
		for i := range view.Workers {
			w := &view.Workers[i]
			if v := placement.JudgeAt(&r, w); w.Worker == id && !v.Fits && !evict {
				return market.In{Worker: id, Refused: &market.Refusal{Verdict: v, Record: *w}}
			}
		}
		return market.In{Worker: id, Granted: true}
	}
}
