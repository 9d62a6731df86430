package market

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Result is what came of an ask.
type Result string

// The results. An ask that has none yet is under way.
const (
	ResultGranted Result = "granted"
	ResultRefused Result = "refused"
	ResultLost    Result = "lost" // no answer: the machine may exist there
	ResultFailed  Result = "failed"
)

// Asked is one worker that a buyer asked: what its view said of it then, and what came of it. Repeats after a lost
// answer count as one ask.
type Asked struct {
	Worker  cluster.WorkerID
	Before  cluster.Record // in the view when it was asked
	Evict   bool           // it was asked to evict lower ranks
	Result  Result
	Refusal *Refusal // with ResultRefused
}

// Purchase is all that a buyer knows of one machine that it places, for whoever records it. Nothing in it may be
// changed.
type Purchase struct {
	Request placement.Request
	Policy  placement.Policy
	View    cluster.View        // as healed by the refusals
	Fleet   int                 // workers there are, where View has only the candidates of an index; else 0
	Ranked  []machine.Candidate // of that view, in the order of the newest ranking
	Asks    []Asked             // in order
	Consent string              // why the newest ask consents to evictions; "" where it does not
}

// Purchase returns the purchase as it stands.
func (b *Buyer) Purchase() Purchase {
	return Purchase{Request: b.req, Policy: b.policy, View: b.view, Fleet: b.size, Ranked: b.decided, Asks: b.purchased,
		Consent: b.consent}
}

// noteAnswer enters what came of the newest ask.
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

// noteAsk enters a worker that is asked.
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
