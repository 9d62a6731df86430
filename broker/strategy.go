package broker

import (
	"context"
	"errors"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Strategy is a way in which machines are bought. Strategies run side by side on one pool of workers, and none has
// authoritative state: each is a client of the market, like a scheduler outside of souk.
type Strategy interface {
	// Buy places the machines of an order whose request, policy and names are settled, or returns why not. It enters in
	// the order's purchases what it has seen and asked, and the machines that were made.
	Buy(ctx context.Context, o *Order) error
}

// The strategies that a launch or a policy may name.
const (
	Direct    = "direct"     // grant at the best worker of the view: one round trip
	Race      = "race"       // hold at several at once, grant at the first that says yes
	Shared    = "shared"     // a transaction of its own from a private copy of the view
	Batching  = "batching"   // gathers the orders of some milliseconds, and places them together, largest first
	FairShare = "fair-share" // gathers as batching does, and places in the order of namespaces' fair shares
)

// Strategies that follow from the kind of request, and cannot be named.
const (
	GangStrategy = "gang" // hold room for all members, then grant them all
	BidStrategy  = "bid"  // grant at the worker that was named
)

// reply is the outcome of an ask.
type reply struct {
	market.Answer
	machine *machine.Machine // of a successful grant
	took    time.Duration
}

// askForPurchase carries out one ask of a buyer's batch, for one purchase. why goes with a grant.
func (b *Broker) askForPurchase(ctx context.Context, p *Purchase, a market.Ask, why *machine.Placement) (got reply) {
	began := time.Now()
	defer func() { got.took = time.Since(began) }()
	w := b.fleet.Worker(a.Worker)
	if w == nil {
		return reply{Answer: market.Answer{NotSent: true}} // the worker has gone since the view was read
	}
	switch a.Act {
	case market.ActHold:
		until, err := w.Hold(ctx, lifecycle.HoldCommand{Request: p.Request, Token: a.Token, TTL: a.TTL})
		got.Answer = answerOf(err)
		got.Expires = until
	case market.ActWant:
		_, err := w.Hold(ctx, lifecycle.HoldCommand{Request: p.Request, Token: a.Token, TTL: a.TTL, Want: true})
		got.Answer = answerOf(err)
	case market.ActRelease:
		got.Answer = answerOf(w.Release(ctx, a.Token))
	case market.ActUndo:
		got.Answer = answerOf(destroyMachine(ctx, w, p.Request.App, p.Request.Machine))
	case market.ActGrant:
		got = b.askGrant(ctx, w, p, why, a.Token, false)
	}
	if got.Refused != nil {
		b.fleet.Refused(a.Worker, got.Refused.Record)
	}
	return got
}

// askGrant asks a worker to make a machine. All strategies use it, so every machine's record has the shadow policy's
// choice, and every grant is counted.
func (b *Broker) askGrant(ctx context.Context, w Worker, p *Purchase, why *machine.Placement, token string,
	evict bool) reply {
	began := time.Now()
	p.came = cluster.MayBeMade
	m, err := w.Grant(ctx, p.grantRequest(why, p.viewedRecord(w.ID()).Region, token, evict))
	got := reply{Answer: answerOf(err), machine: m, took: time.Since(began)}
	b.metrics.countBid(got.Answer)
	if got.Done {
		b.metrics.countShadow(p.Shadow, w.ID())
	}
	return got
}

// watchByShadow asks the shadow policy, if there is one, where it would have placed purchases that are planned
// together. plan returns each one's worker, or "". Nothing is placed.
func (b *Broker) watchByShadow(list []*Purchase, plan func(reqs []placement.Request,
	p placement.Policy) []cluster.WorkerID) {
	watcher, ok := b.policies.Watcher()
	if !ok {
		return
	}
	reqs := make([]placement.Request, len(list))
	for i, p := range list {
		reqs[i] = p.Request
	}
	for i, home := range plan(reqs, watcher) {
		list[i].Shadow = &machine.Shadow{Policy: policyLabel(watcher.Name, watcher.Version), Worker: string(home)}
	}
}

// watchAlone is watchByShadow for a single purchase.
func (b *Broker) watchAlone(ctx context.Context, p *Purchase) {
	b.watchByShadow([]*Purchase{p}, func(reqs []placement.Request, watcher placement.Policy) []cluster.WorkerID {
		return market.PlanEach(reqs, b.fleet.View(ctx), watcher, market.LargestFirst)
	})
}

// noteView records the view on which purchases are decided.
func noteView(view cluster.View, list ...*Purchase) {
	for _, p := range list {
		p.View, p.record.viewed = view, view.At
	}
}

// endedWaiting reports whether an error says that the wait was cancelled or timed out.
func endedWaiting(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// isUncertain reports whether it is unknown after a placement whether the machine was made.
func isUncertain(err error) bool {
	return fault.CodeOf(err) == fault.CodeAmbiguous || endedWaiting(err)
}
