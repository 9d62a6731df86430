package market

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Transaction places many requests from one private copy of the view, as a shared-state scheduler does (Omega;
// Schwarzkopf et al., EuroSys 2013, section 3.4): it plans all of them, largest first, on a ledger of its own, and
// commits them at once. Conflicts are detected by the workers, which judge each grant against their real state
// (fine-grained: only a grant that no longer fits is refused). It is incremental: granted requests stay, refused ones
// are planned again from the updated view. All-or-nothing is a gang: see GangBuyer.
//
// The owner carries out all asks of a Batch concurrently, and steps the transaction with all their answers.
type Transaction struct {
	reqs   []placement.Request
	view   cluster.View
	policy placement.Policy
	order  Order

	asked []Ask
	state []txnState // by request
}

type txnState struct {
	over  bool
	home  cluster.WorkerID
	err   error
	asked []cluster.WorkerID
	no    []Asked // refusals
	lost  int
}

// NewTransaction makes a transaction of requests that are independent of each other.
func NewTransaction(reqs []placement.Request, view cluster.View, p placement.Policy) *Transaction {
	return &Transaction{reqs: reqs, view: view, policy: p, order: LargestFirst, state: make([]txnState, len(reqs))}
}

// InOrder sets another order of planning than largest first. The order must depend on its arguments only.
func (t *Transaction) InOrder(o Order) *Transaction {
	t.order = o
	return t
}

// Result returns where a request was placed, or why it was not. It is final once over is true.
func (t *Transaction) Result(i int) (home cluster.WorkerID, err error, over bool) {
	s := &t.state[i]
	return s.home, s.err, s.over
}

// Step takes the answers to the last asks, nil at first, and returns the next asks. settled lists the requests that
// this step has settled.
func (t *Transaction) Step(in []Answer) (batch Batch, settled []int) {
	var again []Ask
	if slices.ContainsFunc(in, func(a Answer) bool { return a.Refused != nil }) {
		t.view.Workers = slices.Clone(t.view.Workers) // a copy: earlier callers of View keep theirs
	}
	for i, a := range in {
		ask := t.asked[i]
		s := &t.state[ask.Member]
		a = a.resolveUnsent(&t.view, ask.Worker, s.lost)
		switch {
		case a.Done:
			s.over, s.home = true, ask.Worker
		case a.Failed != nil:
			s.over, s.err = true, a.Failed
		case a.Lost:
			if s.lost++; s.lost > MaxLost {
				s.over, s.err = true, Ambiguous(ask.Worker, t.reqs[ask.Member].Machine)
			} else {
				again = append(again, ask)
				batch.After = max(batch.After, lostPause(s.lost))
			}
		case a.Refused != nil:
			s.lost = 0
			s.no = append(s.no, Asked{Worker: ask.Worker, Result: ResultRefused, Refusal: a.Refused})
			healView(&t.view, ask.Worker, *a.Refused)
		}
		if s.over {
			settled = append(settled, ask.Member)
		}
	}
	fresh, none := t.planAsks(again)
	settled = append(settled, none...)
	batch.Asks = append(again, fresh...)
	t.asked = batch.Asks
	batch.Done = len(batch.Asks) == 0
	return batch, settled
}

// planAsks plans a worker for each open request that is not in again. none lists the requests without a worker.
func (t *Transaction) planAsks(again []Ask) (asks []Ask, none []int) {
	busy := make(map[int]bool, len(again))
	for _, a := range again {
		busy[a.Member] = true
	}
	var members []int
	var reqs []placement.Request
	for i := range t.reqs {
		if s := &t.state[i]; !s.over && !busy[i] {
			members, reqs = append(members, i), append(reqs, t.reqs[i])
		}
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	plan := packRequests(reqs, t.view.Workers, t.policy, t.order, func(k int, w cluster.WorkerID) bool {
		asked := t.state[members[k]].asked
		return len(asked) >= MaxAsked || slices.Contains(asked, w)
	})
	for k, w := range plan.homes {
		i := members[k]
		s := &t.state[i]
		if w != "" {
			s.asked = append(s.asked, w)
			asks = append(asks, Ask{Act: ActGrant, Worker: w, Member: i, Fleet: plan.fleets[k]})
		}
	}
	if len(asks)+len(again) > 0 {
		return asks, nil // a refusal of these may leave room for the others
	}
	for _, i := range members {
		s := &t.state[i]
		s.over, s.err = true, noWorkerError(t.reqs[i], t.view, t.policy, s.no)
	}
	return nil, members
}

// View returns the view, updated by the refusals. It is not changed afterwards.
func (t *Transaction) View() cluster.View { return t.view }

// Backlog bounds the requests that a batching scheduler keeps waiting: further ones are refused at once.
const Backlog = 4096

// Gather is how long a batching scheduler gathers requests by default.
const Gather = 5 * time.Millisecond
