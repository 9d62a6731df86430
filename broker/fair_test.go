package broker

import (
	"slices"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
)

// TestFairOrderServesTheLeastShareFirst: of requests that come at once, those of the namespace with the least share by its weight go first.
func TestFairOrderServesTheLeastShareFirst(t *testing.T) {
	cpu := func(n int64) cluster.Resources { return cluster.Resources{CPU: n} }
	view := cluster.View{Workers: []cluster.Record{{Capacity: cpu(10000),
		Spending: map[string]cluster.Spending{"ml": {Used: cpu(2000)}, "web": {Used: cpu(3000)}}}}}
	var reqs []placement.Request
	for _, ns := range []string{"ml", "ml", "web", "web", "default"} {
		reqs = append(reqs, placement.Request{Namespace: ns, Resources: cpu(1000)})
	}
	shares := map[string]quota.Share{"ml": {}, "web": {Weight: 2}, "default": {}}
	// Shares by weight: default 0, web 0.15 and then 0.2 (with ml, which wished first), ml 0.2 and 0.3.
	if got := fairOrder(shares, reqs, view); !slices.Equal(got, []int{4, 2, 0, 3, 1}) {
		t.Errorf("%v", got)
	}
}
