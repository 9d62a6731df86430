package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/quota"
)

// spendings is what each worker last told of what is spent there. One that cannot be heard is remembered: what its machines
// have spent is spent. One that is no longer listed (souk node rm) is forgotten.
type spendings struct {
	mu   sync.Mutex
	last map[cluster.WorkerID]map[string]cluster.Spending
}

// hear asks all workers, and gives what is known of each. Far ones answer from what they have told.
func (s *spendings) hear(ctx context.Context, workers []Worker) map[cluster.WorkerID]map[string]cluster.Spending {
	records, errs := fanOut(workers, func(w Worker) (cluster.Record, error) { return w.Record(ctx) })
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[cluster.WorkerID]map[string]cluster.Spending, len(workers))
	for i, w := range workers {
		switch {
		case errs[i] == nil:
			next[w.ID()] = records[i].Spending
		case s.last[w.ID()] != nil:
			next[w.ID()] = s.last[w.ID()]
		}
	}
	s.last = next
	return next
}

// account gives how a namespace that has a budget stands.
func (g *Gateway) account(ctx context.Context, n catalog.Namespace) quota.Account {
	var told []cluster.Spending
	for _, by := range g.spent.hear(ctx, g.workers()) {
		if s, some := by[n.Name]; some {
			told = append(told, s)
		}
	}
	return quota.Of(*n.Budget, told, time.Now())
}

// Book is what a worker is to be told of budgets: see lifecycle.Supervisor.Budgets.
func (g *Gateway) Book(ctx context.Context, worker cluster.WorkerID) quota.Book {
	b := quota.Book{Price: g.catalog.Price(), Budgets: map[string]quota.Budget{}, Others: map[string]cluster.Spending{}}
	limited := false
	for _, n := range g.catalog.Namespaces() {
		if n.Budget != nil {
			b.Budgets[n.Name], limited = *n.Budget, true
		}
	}
	if !limited {
		return b
	}
	others := map[string][]cluster.Spending{}
	for id, by := range g.spent.hear(ctx, g.workers()) {
		for name, s := range by {
			if id != worker {
				others[name] = append(others[name], s)
			}
		}
	}
	for name, told := range others {
		if budget, has := b.Budgets[name]; has {
			b.Others[name] = quota.Fold(budget, told, time.Now())
		}
	}
	return b
}
