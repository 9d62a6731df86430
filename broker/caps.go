package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of how workers are asked what a namespace with caps occupies.
const (
	capTime    = 2 * time.Second
	capWorkers = 128 // in a larger cluster their last reports must do
	// Workers learn four times a second what the others have.
	capPause = 300 * time.Millisecond
	capTries = 3
)

// refusedByOldNews reports whether a worker refused an order for a cap that the order keeps: that worker has not learnt
// yet what was freed elsewhere.
func (o *Order) refusedByOldNews(err error) bool {
	return o.capped != "" && fault.Is(err, fault.Exhausted) && o.Purchases[0].Request.Funds.Enough() &&
		slices.ContainsFunc(o.Purchases, func(p *Purchase) bool { return p.overCap })
}

// noteQuotaRefusal notes whether a worker has refused a purchase for its namespace's quota.
func (p *Purchase) noteQuotaRefusal(r *market.Refusal) {
	p.overCap = r != nil && slices.ContainsFunc(r.Verdict.Failing,
		func(c machine.Clause) bool { return c.Code == placement.CodeQuota })
}

// keepCaps lets one order of a namespace with caps proceed at a time, across all members, and asks all reachable
// workers what they have, so that the machines of previous orders count. For an unreachable worker its last report
// counts, and what was made there since. Each worker judges again when it grants. An order that may wait for room takes
// no turn: only its worker judges it.
func (b *Broker) keepCaps(ctx context.Context, o *Order) error {
	if o.capped == "" || o.waitPatience() > 0 {
		return nil
	}
	placed, done, err := b.claims.Spread(ctx, "namespace/"+o.capped) // no app has such a name
	if err != nil {
		return err
	}
	o.releases = append(o.releases, func() {
		made := placedBy(o.Purchases)
		for i := range made {
			made[i].Used = o.Purchases[0].Request.Occupies()
		}
		if len(made) > 0 {
			b.agree(ctx, true) // otherwise the stand-in of a decider that dies now would not know of it
		}
		done(made)
	})
	known := b.learnRecords(ctx, o.Purchases[0].Request)
	for _, p := range placed {
		if !known[p.Worker] {
			o.occupied = o.occupied.Add(p.Used)
		}
	}
	return b.addFunds(ctx, o)
}

// learnRecords asks all workers for their records by way of a request, and returns those that have answered.
func (b *Broker) learnRecords(ctx context.Context, r placement.Request) map[cluster.WorkerID]bool {
	known := map[cluster.WorkerID]bool{}
	view := b.fleet.View(ctx)
	if len(view.Workers) > capWorkers {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, capTime)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range view.Workers {
		id := view.Workers[i].Worker
		w := b.fleet.Worker(id)
		if w == nil {
			continue
		}
		all.Go(func() {
			q, err := w.Quote(ctx, r) // the answer has its newest record
			if err != nil {
				return
			}
			b.fleet.Refused(id, q.Record)
			mu.Lock()
			defer mu.Unlock()
			known[id] = true
		})
	}
	all.Wait()
	return known
}
