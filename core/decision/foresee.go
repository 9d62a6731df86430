package decision

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
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

// Answer gives what a worker would answer to an ask, reserving nothing; evict is the consent to evict lower ranks.
type Answer func(w cluster.WorkerID, evict bool) market.In

// Foresee says what market.Buyer would do with the request on this view, when every worker is as the view says: the
// same code as when it does it, so the machine of this id goes where the plan says as long as nothing changes.
//
// ask is who knows better than the view; nil is AsRecorded. Whom a worker would evict only it can say.
func Foresee(now time.Time, r placement.Request, view cluster.View, p placement.Policy, limits Limits,
	ask Answer) Plan {
	return ForeseeBuyer(now, market.NewBuyer(r, view, p), r, view, p, limits, ask)
}

// ForeseeBuyer is Foresee for a buyer that was made in another way: with the candidates of an index.
func ForeseeBuyer(now time.Time, b *market.Buyer, r placement.Request, view cluster.View, p placement.Policy,
	limits Limits, ask Answer) Plan {
	if ask == nil {
		ask = AsRecorded(r, view)
	}
	out := b.Step(market.In{})
	for !out.Done { // ends: a buyer asks no worker twice of one kind
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

// AsRecorded answers for workers that are as their records say, and whose summaries of lower ranks may be relied on.
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
