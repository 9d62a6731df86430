package node

import (
	"context"
	"reflect"
	"time"

	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/core/quota"
)

// tellEvery is how often the workers of this process get the namespaces' budgets and what is spent elsewhere. A quota
// can be overdrawn for about this long.
const tellEvery = time.Second / 4

// namespaceCaps returns what each namespace may occupy at once.
func (n *Node) namespaceCaps() map[string]quota.Caps {
	out := map[string]quota.Caps{}
	for _, space := range n.catalog.Namespaces.AllNamespaces() {
		if len(space.Max) > 0 {
			out[space.Name] = space.Max
		}
	}
	return out
}

// tellBudgets sends the budgets to the workers until ctx ends.
func (n *Node) tellBudgets(ctx context.Context) {
	every := time.NewTicker(tellEvery)
	defer every.Stop()
	accounts := known.Accounts{Catalog: n.catalog.Namespaces, Fleet: n.fleet}
	told := make([]*quota.Limits, len(n.workers))
	for {
		for i, w := range n.workers {
			if b := accounts.Limits(w.ID()); told[i] == nil || !reflect.DeepEqual(*told[i], b) {
				told[i] = &b
				w.Budgets(b)
				n.runners[i].Budgets(b)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
