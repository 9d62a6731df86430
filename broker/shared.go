package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// shared places each order in a transaction of its own.
type shared struct{ *Broker }

// Buy places the one machine of an order.
func (s shared) Buy(ctx context.Context, o *Order) error {
	t := transaction{Broker: s.Broker, name: Shared, order: market.LargestFirst, list: []*waiting{{p: o.Purchases[0]}}}
	t.placeAll(ctx, s.fleet.View(ctx))
	return t.list[0].err
}

// waiting is one purchase within a transaction, and its outcome.
type waiting struct {
	p       *Purchase
	err     error
	settled chan struct{} // closed when it is settled; nil: no one waits for this one alone
}

// transaction places purchases together, from one private copy of the view.
type transaction struct {
	*Broker
	name  string
	order market.Order
	list  []*waiting
	// the launch named no strategy, so the reason of a machine placed alone does not mention it
	unnamed bool
}

// placeAll places all purchases, and settles each.
func (t transaction) placeAll(ctx context.Context, view cluster.View) {
	began := time.Now()
	reqs, list := make([]placement.Request, len(t.list)), make([]*Purchase, len(t.list))
	for i, w := range t.list {
		reqs[i], list[i] = w.p.Request, w.p
	}
	noteView(view, list...)
	t.watchByShadow(list, func(reqs []placement.Request, watcher placement.Policy) []cluster.WorkerID {
		return market.PlanEach(reqs, view, watcher, t.order)
	})
	x := market.NewTransaction(reqs, view, list[0].Policy).InOrder(t.order)
	t.metrics.addBusyTime(t.name, time.Since(began))
	var answers []market.Answer
	for {
		thought := time.Now()
		batch, settled := x.Step(answers)
		for _, i := range settled {
			t.settlePurchase(x, i)
		}
		t.metrics.addBusyTime(t.name, time.Since(thought))
		if batch.Done {
			return
		}
		_ = wait.For(ctx, batch.After) // even if all callers are gone, asks under way are completed
		answers = t.commitAsks(ctx, batch.Asks, x.View())
	}
}

// settlePurchase ends one purchase. If no worker took it, it ranks the workers of the view, corrected by their
// refusals, for the record.
func (t transaction) settlePurchase(x *market.Transaction, i int) {
	w := t.list[i]
	_, w.err, _ = x.Result(i)
	if w.err != nil {
		w.p.View = x.View()
		w.p.Ranked = placement.Rank(w.p.Request, w.p.View, w.p.Policy)
	}
	if w.settled != nil {
		close(w.settled)
	}
}

// commitAsks asks all workers of a batch side by side.
func (t transaction) commitAsks(ctx context.Context, asks []market.Ask, view cluster.View) []market.Answer {
	got := make([]reply, len(asks))
	var all sync.WaitGroup
	for i, a := range asks {
		p := t.list[a.Member].p
		p.setPlannedFleet(a.Fleet)
		p.View, p.Ranked = view, placement.Rank(p.Request, view, p.Policy)
		why := p.Placement(a.Worker)
		if n := len(t.list) - 1; n > 0 || !t.unnamed {
			why = p.explainPlacement(a.Worker, fmt.Sprintf("planned with %d others by %s", n, t.name))
		}
		all.Go(func() { got[i] = t.askForPurchase(ctx, p, a, why) })
	}
	all.Wait()
	answers := make([]market.Answer, len(asks))
	for i, a := range asks {
		p := t.list[a.Member].p
		if got[i].machine != nil {
			p.Machine = got[i].machine
		}
		p.enterAsk(a, got[i])
		answers[i] = got[i].Answer
		t.metrics.countConflict(t.name, got[i].Refused != nil)
	}
	return answers
}

// explainPlacement returns why a purchase goes to a worker, for the machine's own record: by which strategy, and its
// place in the ranking.
func (p *Purchase) explainPlacement(w cluster.WorkerID, how string) *machine.Placement {
	d := p.Placement(w)
	d.Reason = how + ": " + d.Reason
	return d
}
