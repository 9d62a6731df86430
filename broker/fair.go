package broker

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
)

// orderByShares is the market.Order of fair shares, with the namespaces' current weights.
func (b *Broker) orderByShares(reqs []placement.Request, view cluster.View) []int {
	return fairOrder(b.funds.Shares(), reqs, view)
}

// fairOrder puts requests in the order of weighted fair shares between their namespaces, by what each namespace
// occupies in the view. A worker counts that in its own counters (cluster.Spending).
func fairOrder(shares map[string]quota.Share, reqs []placement.Request, view cluster.View) []int {
	var pool cluster.Resources
	for i := range view.Workers {
		w := &view.Workers[i]
		pool = pool.Add(w.Capacity)
		for name, s := range w.Spending {
			has := shares[name]
			has.Used = has.Used.Add(s.Used)
			shares[name] = has
		}
	}
	wishes := make([]quota.Wish, len(reqs))
	for i := range reqs {
		wishes[i] = quota.Wish{Namespace: reqs[i].Namespace, Want: reqs[i].Resources}
	}
	return quota.Order(shares, pool, wishes)
}
