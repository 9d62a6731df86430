package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
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

// fund says in a request whose means it takes and what there is of them, for n machines alike. One that cannot be paid for
// asks on lent terms where its namespace's budget allows that; else the judge will say no.
func (g *Gateway) fund(ctx context.Context, req *placement.Request, launch *machine.Launch, n int) error {
	space, err := g.catalog.NamespaceOf(req.App)
	if err != nil {
		return err
	}
	req.Namespace, req.Funds = space.Name, nil
	g.lend(req, launch, false)
	if space.Budget == nil || !req.Start {
		return nil
	}
	rate := g.catalog.Price().Rate(req.Resources, req.Scheduling) * float64(n)
	f := g.account(ctx, space).Afford(space.Name, rate)
	switch {
	case !f.Enough() && space.Budget.Lend:
		g.lend(req, launch, true)
	default:
		req.Funds = f
	}
	return nil
}

// lend sets on what terms a launch is to run. What the client sent is not changed.
func (g *Gateway) lend(req *placement.Request, launch *machine.Launch, lent bool) {
	req.Scheduling.Lent = lent
	if launch.Scheduling == nil && !lent {
		return
	}
	var sc machine.Scheduling
	if launch.Scheduling != nil {
		sc = *launch.Scheduling
	}
	sc.Lent = lent
	launch.Scheduling = &sc
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
