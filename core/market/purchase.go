package market

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Result is the outcome of an ask.
type Result string

// The results. An ask without one is still open.
const (
	ResultGranted Result = "granted"
	ResultRefused Result = "refused"
	ResultLost    Result = "lost" // no answer: the machine may exist there
	ResultFailed  Result = "failed"
)

// Asked is one worker that a buyer asked: its record in the view then, and the outcome. Repeats after a lost answer
// count as one ask.
type Asked struct {
	Worker  cluster.WorkerID
	Before  cluster.Record // in the view when it was asked
	Evict   bool           // it was asked to evict lower ranks
	Result  Result
	Refusal *Refusal // with ResultRefused
}

// Purchase is all that a buyer knows of the placement of one machine, for a record of it. Its contents must not be
// changed.
type Purchase struct {
	Request placement.Request
	Policy  placement.Policy
	View    cluster.View        // updated by the refusals
	Fleet   int                 // number of workers, if View has only an index's candidates; else 0
	Ranked  []machine.Candidate // the workers of View, in the order of the newest ranking
	Asks    []Asked             // in order
	Consent string              // why the newest ask consents to evictions; "": it does not
}

// Purchase returns the purchase in its present state.
func (b *Buyer) Purchase() Purchase {
	return Purchase{Request: b.req, Policy: b.policy, View: b.view, Fleet: b.size, Ranked: b.decided, Asks: b.purchased,
		Consent: b.consent}
}

// noteAnswer records the outcome of the newest ask.
func (b *Buyer) noteAnswer(in In) {
	if len(b.purchased) == 0 {
		return
	}
	a := &b.purchased[len(b.purchased)-1]
	switch {
	case in.Granted:
		a.Result = ResultGranted
	case in.Failed != nil:
		a.Result = ResultFailed
	case in.Lost:
		a.Result = ResultLost
	case in.Refused != nil:
		a.Result, a.Refusal = ResultRefused, in.Refused
	}
}

// noteAsk records that a worker is asked.
func (b *Buyer) noteAsk(id cluster.WorkerID) {
	b.asked[id] = true
	b.trips++
	a := Asked{Worker: id, Evict: b.evicted[id]}
	for i := range b.view.Workers {
		if b.view.Workers[i].Worker == id {
			a.Before = b.view.Workers[i]
		}
	}
	b.purchased = append(b.purchased, a)
}
