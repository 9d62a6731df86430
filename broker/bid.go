package broker

import (
	"cmp"
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The market's own verbs, for schedulers outside of souk: these read the view, choose a worker themselves, and ask it
// by its id. They may do no more than souk's own strategies: the worker judges every grant.

// bidPolicy names the policy of a machine that a scheduler outside of souk placed.
const bidPolicy = "its own"

// bid grants at the named worker, once: the bidder decides what to do after a refusal.
type bid struct{ *Broker }

// Buy places the one machine of an order.
func (s bid) Buy(ctx context.Context, o *Order) error {
	p := o.Purchases[0]
	w, err := s.workerByID(o.Bid.Worker)
	if err != nil {
		return err
	}
	rec, err := w.Record(ctx)
	if err != nil {
		return err
	}
	noteView(cluster.View{Workers: []cluster.Record{rec}, At: time.Now()}, p)
	p.Ranked = placement.Rank(p.Request, p.View, p.Policy)
	p.Consent = cmp.Or(clipText(o.Bid.Reason, 300), "chosen by a scheduler outside of souk")
	why := &machine.Placement{Policy: bidPolicy, Worker: string(o.Bid.Worker), Reason: p.Consent,
		Candidates: []machine.Candidate{}}
	m, err := w.Grant(ctx, p.grantRequest(why, rec.Region, o.Bid.Hold, o.Bid.Evict))
	got := reply{Answer: answerOf(err), machine: m, took: time.Since(p.record.viewed)}
	s.metrics.countBid(got.Answer)
	s.metrics.countConflict("outside", got.Refused != nil)
	p.enterAsk(market.Ask{Act: market.ActGrant, Worker: o.Bid.Worker}, got)
	p.Machine = m
	return err
}

// redeemHold makes a replica's machine at the worker that holds room for it. over is false if no worker holds room any
// more: then the order's strategy places it.
func (b *Broker) redeemHold(ctx context.Context, o *Order) (err error, over bool) {
	if o.Replica == nil || o.Replica.Token == "" {
		return nil, false
	}
	p, at := o.Purchases[0], o.Replica.Booked
	w := b.fleet.Worker(at)
	if w == nil {
		return nil, false
	}
	rec, err := w.Record(ctx)
	if err != nil {
		return nil, false
	}
	noteView(cluster.View{Workers: []cluster.Record{rec}, At: time.Now()}, p)
	p.Ranked, p.Consent = placement.Rank(p.Request, p.View, p.Policy), "it holds the room since the release was planned"
	why := &machine.Placement{Policy: p.Policy.Name, Worker: string(at), Reason: p.Consent,
		Candidates: []machine.Candidate{}}
	got := b.askGrant(ctx, w, p, why, o.Replica.Token, false)
	p.enterAsk(market.Ask{Act: market.ActGrant, Worker: at}, got)
	switch {
	case got.Done:
		p.Machine = got.machine
		return nil, true
	case got.Lost:
		return market.Ambiguous(at, p.Request.Machine), true
	case got.Refused != nil:
		b.fleet.Refused(at, got.Refused.Record)
	}
	p.Ranked, p.Consent = nil, ""
	return nil, false
}

// Offer is a launch offered to one worker, for a quote or a hold.
type Offer struct {
	App    string
	Launch *machine.Launch
	Worker cluster.WorkerID
}

// Quote asks a worker what it would say to a launch now. Nothing is reserved.
func (b *Broker) Quote(ctx context.Context, of Offer) (market.Quote, error) {
	w, req, err := b.findOffer(ctx, of)
	if err != nil {
		return market.Quote{}, err
	}
	return w.Quote(ctx, req)
}

// Held is room that a worker keeps.
type Held struct {
	Token   string
	Expires time.Time
	Machine string // the id that the grant must name
}

// Hold has a worker keep room for a launch. token "" draws one.
func (b *Broker) Hold(ctx context.Context, of Offer, token string, ttl time.Duration) (Held, error) {
	w, req, err := b.findOffer(ctx, of)
	if err != nil {
		return Held{}, err
	}
	if token == "" {
		token = b.newHoldToken()
	}
	until, err := w.Hold(ctx, lifecycle.HoldCommand{Request: req, Token: token, TTL: ttl})
	return Held{token, until, req.Machine}, err
}

// Release gives held room back.
func (b *Broker) Release(ctx context.Context, worker cluster.WorkerID, token string) error {
	w, err := b.workerByID(worker)
	if err != nil {
		return err
	}
	return w.Release(ctx, token)
}

// findOffer finds the worker, and resolves the request as Place does.
func (b *Broker) findOffer(ctx context.Context, of Offer) (Worker, placement.Request, error) {
	var none placement.Request
	w, err := b.workerByID(of.Worker)
	if err != nil {
		return nil, none, err
	}
	o, err := b.openOrder(Intent{App: of.App, Launch: of.Launch, Bid: &Bid{Worker: of.Worker}})
	if err != nil {
		return nil, none, err
	}
	if err := b.prepareOrder(ctx, o); err != nil {
		return nil, none, err
	}
	return w, o.Purchases[0].Request, nil
}

func (b *Broker) workerByID(id cluster.WorkerID) (Worker, error) {
	if w := b.fleet.Worker(id); w != nil {
		return w, nil
	}
	return nil, fault.New(fault.NotFound, fault.CodeWorkerNotFound, "there is no worker %s; see GET /v1/souk/workers",
		clipText(string(id), 80))
}
