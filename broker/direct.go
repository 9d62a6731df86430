package broker

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/internal/wait"
)

// direct asks one worker after another, the best first.
type direct struct{ *Broker }

// Buy places the one machine of an order.
func (s direct) Buy(ctx context.Context, o *Order) error {
	p := o.Purchases[0]
	buyer, looked := s.directBuyer(ctx, &p.Request, &p.Policy)
	p.Purchase = buyer.Purchase()
	p.record.looked, p.record.viewed = looked, p.View.At
	s.watchAlone(ctx, p)
	var in market.In
	for {
		out := buyer.Step(in)
		p.Purchase = buyer.Purchase()
		if out.Done {
			return out.Err
		}
		if err := wait.For(ctx, out.After); err != nil {
			return err
		}
		var got reply
		if w := s.fleet.Worker(out.Ask); w != nil {
			got = s.askGrant(ctx, w, p, buyer.Placement(out.Ask), "", out.Evict)
		} else {
			got.NotSent = true // the worker has gone since the view was read
		}
		p.record.noteTime(out.Ask, got.took)
		p.noteQuotaRefusal(got.Answer.Refused)
		p.Machine, in = got.machine, inOf(out.Ask, got.Answer)
		if in.Refused != nil {
			s.fleet.Refused(out.Ask, in.Refused.Record)
		}
	}
}

// inOf returns an answer as the input of a market buyer.
func inOf(w cluster.WorkerID, a market.Answer) market.In {
	return market.In{Worker: w, Granted: a.Done, Refused: a.Refused, Lost: a.Lost, NotSent: a.NotSent, Failed: a.Failed}
}

// directBuyer makes the buyer of a request. In a large fleet it ranks only an index's candidates, which are the same
// for the same machine as long as nothing changes; looked is then how many workers the index looked at.
func (b *Broker) directBuyer(ctx context.Context, r *placement.Request,
	p *placement.Policy) (buyer *market.Buyer, looked int) {
	few, looked := b.fleet.Pick(ctx, r, p, market.MaxAsked,
		func() (placement.Policy, error) { return b.policies.PolicyFor(r) })
	if len(few.Workers) == 0 {
		return market.NewBuyer(*r, b.fleet.View(ctx), *p), 0
	}
	return market.NewNarrowBuyer(*r, few, b.fleet.Workers(), func() cluster.View { return b.fleet.View(ctx) }, *p),
		looked
}
