package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// gang holds room for all machines of an order, and then makes them all, or none.
type gang struct{ *Broker }

// gangPurchase is the purchase of a gang while it runs.
type gangPurchase struct {
	*Broker
	*Order
	buyer *market.GangBuyer
	view  cluster.View
}

// Buy drives a market.GangBuyer. If the caller goes away between two tries, nothing stays held or made.
func (s gang) Buy(ctx context.Context, o *Order) error {
	began := time.Now()
	release, err := s.keepSpread(ctx, o.Purchases)
	if err != nil {
		return err
	}
	defer func() { release() }()
	c := &gangPurchase{Broker: s.Broker, Order: o, view: s.fleet.View(ctx)}
	req := market.GangRequest{ID: o.gang, Min: o.Gang.Min, Same: o.Gang.Same, Until: began.Add(o.Gang.Wait)}
	for _, p := range o.Purchases {
		req.Members = append(req.Members, p.Request)
	}
	chance := rand.New(rand.NewPCG(entropy{s.rand}.Uint64(), 0))
	if c.buyer, err = market.NewGangBuyer(req, c.view, o.Purchases[0].Policy, chance); err != nil {
		return err
	}
	c.enterView(req)
	batch := c.buyer.Step(time.Now(), nil)
	for !batch.Done {
		if !batch.Refresh {
			_ = wait.For(ctx, batch.After) // asks under way are still completed
		} else {
			for _, p := range c.Purchases {
				p.Machine = nil // the machines that were made have been undone
			}
			release()
			release = func() {}
			if c.waitBetween(ctx, batch.After) {
				return fault.New(fault.Unavailable, fault.CodeCancelled,
					"the caller went away before there was room for the gang")
			}
			if release, err = s.keepSpread(ctx, o.Purchases); err != nil {
				release = func() {}
				return err
			}
			c.refreshTry(ctx, req)
		}
		batch = c.buyer.Step(time.Now(), c.askAll(ctx, batch.Asks))
	}
	o.tries, o.refusals = c.buyer.Tries()
	for i, home := range c.buyer.Placed() {
		if home == "" || batch.Err != nil {
			o.Purchases[i].Machine = nil // not needed for the minimum, or undone
		}
	}
	return batch.Err
}

// enterView records the view, and where the shadow policy would have placed the gang on it.
func (c *gangPurchase) enterView(req market.GangRequest) {
	noteView(c.view, c.Purchases...)
	c.watchByShadow(c.Purchases, func(reqs []placement.Request, watcher placement.Policy) []cluster.WorkerID {
		req.Members = reqs
		homes, ok := market.PlanGang(req, c.view, watcher)
		if !ok {
			return make([]cluster.WorkerID, len(reqs))
		}
		return homes
	})
}

// refreshTry begins another try, with a newer view and new ids: an undone machine's id cannot be used again.
func (c *gangPurchase) refreshTry(ctx context.Context, req market.GangRequest) {
	c.view = c.fleet.View(ctx)
	c.buyer.SetView(c.view)
	for i, p := range c.Purchases {
		p.renameMachine(machine.NewID(c.rand))
		c.buyer.Rename(i, p.Request.Machine)
	}
	c.enterView(req)
}

// waitBetween pauses between two tries, and reports whether the caller has gone away.
func (c *gangPurchase) waitBetween(ctx context.Context, d time.Duration) (gone bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.Gone:
	case <-ctx.Done():
	case <-t.C:
		return false
	}
	return true
}

// askAll carries out the asks of a batch side by side.
func (c *gangPurchase) askAll(ctx context.Context, asks []market.Ask) []market.Answer {
	got := make([]reply, len(asks))
	var all sync.WaitGroup
	var layout *gangLayout
	if len(asks) > 0 && asks[0].Act == market.ActGrant {
		layout = layoutOf(c.Order.gang, c.buyer.Homes(), c.view)
	}
	for i, a := range asks {
		p := c.Purchases[a.Member]
		p.setPlannedFleet(a.Fleet)
		mine := *p
		var why *machine.Placement
		if a.Act == market.ActGrant {
			mine.Launch = layout.memberLaunch(p.Launch, a.Member)
			why = c.judgeMember(p, a.Worker, len(layout.rank))
		}
		all.Go(func() { got[i] = c.askForPurchase(ctx, &mine, a, why) })
	}
	all.Wait()
	answers := make([]market.Answer, len(asks))
	for i, a := range asks {
		p := c.Purchases[a.Member]
		if got[i].machine != nil {
			p.Machine = got[i].machine
		}
		p.enterAsk(a, got[i])
		answers[i] = got[i].Answer
		c.metrics.countConflict(GangStrategy, got[i].Refused != nil && a.Act != market.ActRelease)
	}
	return answers
}

// judgeMember ranks the workers for a gang member before its grant, and makes its decision record at once: keeping the
// rankings of 1,000 members over 1,000 workers until all have answered would take too much memory.
func (c *gangPurchase) judgeMember(p *Purchase, w cluster.WorkerID, placed int) *machine.Placement {
	how := fmt.Sprintf("one of a gang of %d that started together", placed)
	p.Ranked, p.Consent = placement.Rank(p.Request, p.View, p.Policy), ""
	why := p.explainPlacement(w, how)
	if c.log != nil {
		expected := *p
		expected.Consent = how
		expected.Asks = append(expected.Asks[:len(expected.Asks):len(expected.Asks)],
			market.Asked{Worker: w, Before: p.viewedRecord(w), Result: market.ResultGranted})
		p.record.expected = expected.makeDecision(GangStrategy, nil)
	}
	p.Ranked = nil
	return why
}

// recordGang logs a decision for each placed member, or a single one if the gang was not placed, and returns the error
// for the caller.
func (b *Broker) recordGang(o *Order, err error) error {
	if err == nil {
		for _, p := range o.Purchases {
			if d := p.record.expected; d != nil && p.Machine != nil {
				p.record.finishDecision(d)
				b.logDecision(d)
			}
		}
		return nil
	}
	p := o.Purchases[0]
	p.Ranked = placement.Rank(p.Request, p.View, p.Policy)
	d := p.makeDecision(GangStrategy, err)
	if d.Outcome == decision.Refused {
		d.Reason = fault.As(err).Text
		if d.Fitting > 0 { // alone this member would have fitted
			d.Pending = decision.WaitingForGang
		}
	}
	b.logDecision(d)
	return explainError(d, err, &p.Request)
}
