package known

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/store/catalog"
)

// Accounts compute how much namespaces have spent and occupy, from the workers' reports.
type Accounts struct {
	Catalog AccountCatalog
	Fleet   *fleet.Fleet
}

// AccountCatalog is what Accounts needs of the catalog.
type AccountCatalog interface {
	NamespaceOf(app string) (catalog.Namespace, error)
	AllNamespaces() []catalog.Namespace
	Price() quota.Price
}

// Spendings returns each worker's last report of what was spent there. It includes unreachable workers, whose machines
// have spent it all the same, but not removed ones (souk node rm).
func (a Accounts) Spendings() map[cluster.WorkerID]map[string]cluster.Spending {
	out := map[cluster.WorkerID]map[string]cluster.Spending{}
	for w := range a.Fleet.Snapshot().Workers() {
		if w.Reported {
			out[w.ID] = w.Record.Spending
		}
	}
	return out
}

// Of returns the account of a namespace that has a budget or caps.
func (a Accounts) Of(n catalog.Namespace) quota.Account {
	var told []cluster.Spending
	for w := range a.Fleet.Snapshot().Workers() {
		if s, some := w.Record.Spending[n.Name]; some {
			told = append(told, s)
		}
	}
	var b quota.Budget
	if n.Budget != nil {
		b = *n.Budget
	}
	out := quota.Of(b, told, time.Now())
	out.Unlimited, out.Max = n.Budget == nil, n.Max
	return out
}

// Limits returns the budget limits for a worker: see lifecycle.Supervisor.Budgets.
func (a Accounts) Limits(worker cluster.WorkerID) quota.Limits {
	b := quota.Limits{Price: a.Catalog.Price(), Budgets: map[string]quota.Budget{},
		Caps: map[string]quota.Caps{}, Weights: map[string]float64{}, Others: map[string]cluster.Spending{}}
	limited := false
	for _, n := range a.Catalog.AllNamespaces() {
		if n.Weight > 0 {
			b.Weights[n.Name] = n.Weight
		}
		if n.Budget != nil {
			b.Budgets[n.Name], limited = *n.Budget, true
		}
		if len(n.Max) > 0 {
			b.Caps[n.Name], limited = n.Max, true
		}
	}
	if !limited {
		return b
	}
	others := map[string][]cluster.Spending{}
	for id, by := range a.Spendings() {
		for name, s := range by {
			if id != worker {
				others[name] = append(others[name], s)
			}
		}
	}
	for name, told := range others {
		if budget, has := b.Budgets[name]; has || len(b.Caps[name]) > 0 {
			b.Others[name] = quota.Fold(budget, told, time.Now())
		}
	}
	return b
}

// Account adds up the workers' reports on an app's namespace.
func (a Accounts) Account(_ context.Context, app string) (string, *quota.Account, error) {
	space, err := a.Catalog.NamespaceOf(app)
	if err != nil || space.Budget == nil && len(space.Max) == 0 {
		return space.Name, nil, err
	}
	x := a.Of(space)
	return space.Name, &x, nil
}

// Price is what a namespace pays.
func (a Accounts) Price() quota.Price { return a.Catalog.Price() }

// Shares lists the weights.
func (a Accounts) Shares() map[string]quota.Share {
	shares := map[string]quota.Share{}
	for _, n := range a.Catalog.AllNamespaces() {
		shares[n.Name] = quota.Share{Weight: n.Weight}
	}
	return shares
}
