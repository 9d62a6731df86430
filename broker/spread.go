package broker

import (
	"context"
	"slices"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/machine"
)

// spreads places machines of apps that must be spread. Concurrent orders of one app are placed together: separately,
// each on a view without the others, they would all go to the same worker. It is Batching with one batcher per app, so
// that no app waits for another's starts.
type spreads struct {
	*Broker
	mu   sync.Mutex
	apps map[string]*appSpread
}

type appSpread struct {
	*batcher
	orders int // under way
}

// Buy places the one machine of an order with whatever else of its app comes in time.
func (s *spreads) Buy(ctx context.Context, o *Order) error {
	a := s.enterApp(o.App)
	defer s.leaveApp(o.App)
	return a.Buy(ctx, o)
}

func (s *spreads) enterApp(app string) *appSpread {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.apps[app]
	if a == nil {
		a = &appSpread{batcher: newBatcher(s.Broker, Batching, market.LargestFirst)}
		a.together = s.keepSpread
		s.apps[app] = a
	}
	a.orders++
	return a
}

func (s *spreads) leaveApp(app string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.apps[app]
	if a.orders--; a.orders == 0 {
		delete(s.apps, app) // its last batch is settled
	}
}

// mustSpread reports whether purchases must be refused rather than placed unevenly.
func mustSpread(list []*Purchase) bool {
	return slices.ContainsFunc(list, func(p *Purchase) bool {
		return slices.ContainsFunc(p.Request.Scheduling.Spread, func(s machine.Spread) bool { return s.MaxSkew > 0 })
	})
}

// keepSpread counts an app's machines before purchases of it are placed. If the spread is mandatory, one order of the
// app is placed at a time, across all members: this one waits for its turn, and release lets the next one go on.
func (b *Broker) keepSpread(ctx context.Context, list []*Purchase) (release func(), err error) {
	release = func() {}
	if mustSpread(list) {
		app := list[0].Request.App
		placed, done, err := b.claims.Spread(ctx, app)
		if err != nil {
			return nil, err
		}
		for _, p := range placed {
			b.fleet.Granted(&machine.Machine{ID: p.Machine, App: app, Worker: p.Worker, State: machine.Created},
				&list[0].Request)
		}
		release = func() { done(placedBy(list)) }
	}
	told := release
	release = func() { // before the next order counts the app's machines
		b.enterMade(ctx, list)
		told()
	}
	for _, p := range list {
		p.Request = b.fleet.Resolve(ctx, p.Request)
	}
	return release, nil
}

func placedBy(list []*Purchase) (made []cluster.Placed) {
	for _, p := range list {
		if p.Machine != nil {
			made = append(made, cluster.Placed{Machine: p.Machine.ID, Worker: p.Machine.Worker})
		}
	}
	return made
}

// alone is a strategy for orders that must be spread: while one is placed, the others of its app wait.
type alone struct {
	*Broker
	Strategy
}

// Buy places an order.
func (s alone) Buy(ctx context.Context, o *Order) error {
	release, err := s.keepSpread(ctx, o.Purchases)
	if err != nil {
		return err
	}
	defer release()
	return s.Strategy.Buy(ctx, o)
}
