package decision

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Owner is the strategy of a decision about a machine that already has a worker: only that worker is asked, and no
// policy applies.
const Owner = "owner"

// FromOwner makes the record of a start or an update that the machine's own worker refused. why is Start, Update or
// Restart, and at is the time of the ask. False: the refusal lacks the request or the footprint that it was judged by.
func FromOwner(id string, at time.Time, why string, refusal *market.Refusal, took Timings) (*Decision, bool) {
	if refusal.Footprint == nil || refusal.Request == nil {
		return nil, false
	}
	r, w, v := *refusal.Request, refusal.Record, refusal.Verdict
	rest := refusal.Footprint.RecordWithout(w)
	d := &Decision{ID: id, At: at, Why: why, Request: r, Policy: Policy{Name: Owner}, Strategy: Owner,
		Own: refusal.Footprint, Workers: 1, Took: took,
		Outcome: Refused, Pending: hardestReason(&r, &rest, v.Failing), Records: []*cluster.Record{&w}}
	d.Considered = []Considered{{Candidate: machine.Candidate{Worker: string(w.Worker), Failing: v.Failing},
		Ref: RefOf(&w), Never: v.Never}}
	ref := RefOf(&w)
	d.Asks = []Ask{{Worker: w.Worker, Ref: ref, Result: market.ResultRefused, Evict: r.Scheduling.MayPreempt(),
		Failing: v.Failing, Healed: &ref, Millis: took.Ask}}
	groups := groupList{index: map[string]int{}}
	groups.addFailing(&d.Considered[0].Candidate, &w, v.Never, &r)
	groups.list[0].Ref = ref
	d.Groups = groups.list
	d.Reason = "its own worker, " + string(w.Worker) + ", said no: " + placement.VerdictText(v)
	if d.Asks[0].Evict {
		d.Reason += "; nor may it evict anybody there now"
	}
	return d, true
}
