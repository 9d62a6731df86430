package market_test

import (
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// TestBuyerDoesNotEvictForUnhealthyDevices: a buyer does not ask a worker to evict for a device that is granted to nobody.
func TestBuyerDoesNotEvictForUnhealthyDevices(t *testing.T) {
	for health, asks := range map[string]bool{"": true, "lost": false} {
		w := cluster.Record{Worker: "w", State: cluster.Ready, Incarnation: 1,
			Capacity: cluster.Resources{CPU: 1000, GPU: 1000}, Used: cluster.Resources{CPU: 1000, GPU: 1000},
			GPUs: []cluster.GPU{{Kind: "a", Health: health}},
			Evictable: []cluster.Evictable{{Rank: 1000, Machines: 1,
				Resources: cluster.Resources{CPU: 1000, GPU: 1000}}}}
		q := placement.Request{App: "s", Machine: "s1", Start: true, Resources: cluster.Resources{CPU: 500, GPU: 1000},
			Scheduling: machine.Scheduling{Band: "service"}}
		out := market.NewBuyer(q, cluster.View{Workers: []cluster.Record{w}}, placement.Default()).Step(market.In{})
		if (out.Ask == "w" && out.Evict) != asks {
			t.Errorf("with a device that is %q: %+v", health, out)
		}
	}
}
