package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
)

// batch gathers purchases and has them placed together. The first that comes leads: it waits for market.Gather, takes
// what has come meanwhile, and places it; who comes later waits for the next batch.
type batch struct {
	fair    bool // the strategy is FairShare
	mu      sync.Mutex
	waiting []*order
	leading bool
}

// buy places a machine with whatever else comes in time. It answers Exhausted "busy" when market.Backlog machines wait.
func (b *batch) buy(ctx context.Context, g *Gateway, t *taking, p *purchase) (*machine.Machine, error) {
	o := &order{p: p, t: t, done: make(chan struct{})}
	b.mu.Lock()
	if len(b.waiting) >= market.Backlog {
		b.mu.Unlock()
		return nil, &fault.Error{Kind: fault.Exhausted, Code: "busy", Op: "gateway.batching", RetryAfter: time.Second,
			Text: "4096 machines wait to be placed already, the most that are kept waiting; try again in a second"}
	}
	b.waiting = append(b.waiting, o)
	lead := !b.leading
	b.leading = true
	b.mu.Unlock()
	if lead {
		go b.lead(context.WithoutCancel(ctx), g)
	}
	<-o.done
	return o.machine, o.err
}

// lead places batch after batch until nothing waits.
func (b *batch) lead(ctx context.Context, g *Gateway) {
	name := Batching
	if b.fair {
		name = FairShare
	}
	for {
		_ = pause(ctx, market.Gather) // it cannot be cancelled
		b.mu.Lock()
		orders := b.waiting
		b.waiting = nil
		b.leading = len(orders) > 0
		b.mu.Unlock()
		if len(orders) == 0 {
			return
		}
		began, cancel := context.WithTimeout(ctx, createTimeout)
		view, byID := g.view(began)
		for _, same := range byPolicy(orders) {
			g.transact(began, name, same, view, byID)
		}
		cancel()
	}
}

// byPolicy splits orders by their policy, which ranks a whole transaction.
func byPolicy(orders []*order) [][]*order {
	at := map[string]int{}
	var out [][]*order
	for _, o := range orders {
		i, ok := at[o.p.policy.Name]
		if !ok {
			i = len(out)
			at[o.p.policy.Name] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], o)
	}
	return out
}
