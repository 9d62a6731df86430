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
	capWorkers = 128 // in a larger cluster what they have told must do
	// Workers hear four times a second what the others have.
	capPause = 300 * time.Millisecond
	capTries = 3
)

// refusedByOldNews reports whether a worker has refused an order for a cap that it is within: what was given back
// elsewhere that worker has not been told yet.
func (o *Order) refusedByOldNews(err error) bool {
	return o.capped != "" && fault.Is(err, fault.Exhausted) && o.Purchases[0].Request.Funds.Enough() &&
		slices.ContainsFunc(o.Purchases, func(p *Purchase) bool { return p.overCap })
}

// noteQuotaRefusal notes whether a worker has refused a purchase for its namespace's quota.
func (p *Purchase) noteQuotaRefusal(r *market.Refusal) {
	p.overCap = r != nil && slices.ContainsFunc(r.Verdict.Failing,
		func(c machine.Clause) bool { return c.Code == placement.CodeQuota })
}

// keepCaps has one order of a namespace with caps go on at a time, at all members together, and asks all workers that
// can be asked what they have, so that what the orders before have made is counted. Of one that cannot be asked counts
// what it has told, and what was made there since. Each worker judges again when it grants. An order that may wait for
// room holds up nobody: it is judged by its worker alone.
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
			b.agree(ctx, true) // or who decides in the place of a member that dies now would not know of it
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
