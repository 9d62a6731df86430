package broker

import (
	"context"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// fund says in an order's request whose means it takes and what there is of them, for all its machines together. One that
// cannot be paid for asks on lent terms where its namespace's budget allows that; else the judge will say no.
func (b *Broker) fund(ctx context.Context, o *Order) error {
	namespace, account, err := b.funds.Account(ctx, o.App)
	if err != nil {
		return err
	}
	req := &o.Purchases[0].Request
	req.Namespace, req.Funds, req.Scheduling.Lent = namespace, nil, false
	if account != nil && req.Start {
		rate := b.funds.Price().Rate(req.Resources, req.Scheduling) * float64(len(o.Purchases))
		f := account.Afford(namespace, rate)
		if req.Scheduling.Lent = !f.Enough() && account.Budget.Lend; !req.Scheduling.Lent {
			req.Funds = f
		}
	}
	o.lend(req.Scheduling.Lent)
	o.shareOut()
	return nil
}

// lend sets on what terms the order's machines are to run. What the client sent is not changed.
func (o *Order) lend(lent bool) {
	terms := o.Purchases[0].Launch.Scheduling
	if terms == nil && !lent || terms != nil && terms.Lent == lent {
		return
	}
	var with machine.Scheduling
	if terms != nil {
		with = *terms
	}
	with.Lent = lent
	for _, p := range o.Purchases {
		p.Launch.Scheduling = &with
	}
}

// unpaid puts in front of why a request was not placed that its namespace cannot pay for it, where that is so.
func unpaid(err error, req *placement.Request) error {
	f := fault.As(err)
	if f == nil || f.Kind != fault.Exhausted {
		return err
	}
	e := *f
	switch {
	case !req.Funds.Enough():
		wanted, had := req.Funds.Clause()
		e.Code, e.Scope, e.RetryAfter = "quota", fault.ScopeQuota, req.Funds.Wait
		e.Text = "over the allowed quota: wanted " + wanted + ", had " + had + "; ask for less or a cheaper band, stop something, or have the quota raised (souk quota show " + req.Namespace + ")"
	case req.Scheduling.Lent:
		e.Text += "; namespace " + req.Namespace + " cannot pay for it now (souk quota show " + req.Namespace + "), so it may only have room that is idle"
	default:
		return err
	}
	return &e
}
