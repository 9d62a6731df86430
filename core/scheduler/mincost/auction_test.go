package mincost_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/core/scheduler/mincost"
	"github.com/soukhq/souk/fault"
)

// TestAuctionSolvesDenseNetworks runs networks in which searches do not pay, one with a node of very many arcs, and proves each answer.
func TestAuctionSolvesDenseNetworks(t *testing.T) {
	shape := mincost.FirmamentShape()
	shape.Machines, shape.Slots, shape.Tasks, shape.PerRack = 3000, 2, 6600, 40
	q := quincy(t, shape, 11)
	r, err := q.Graph.Solve()
	if err != nil {
		t.Fatal(err)
	}
	if r.Stats.Auctions != 1 {
		t.Errorf("%d auctions, want 1: %+v", r.Stats.Auctions, r.Stats)
	}
	if err := q.Graph.Verify(); err != nil {
		t.Fatal(err)
	}
	for _, j := range q.Jobs { // where nobody may wait, 600 tasks have nowhere to go
		for a := range q.Graph.OutArcs(j) {
			if err := q.Graph.SetUpper(a, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := q.Graph.Solve(); fault.KindOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "600 units") {
		t.Errorf("got %v, want 600 units left over", err)
	}
	for _, j := range q.Jobs {
		for a := range q.Graph.OutArcs(j) {
			if err := q.Graph.SetUpper(a, mincost.MaxCapacity); err != nil {
				t.Fatal(err)
			}
		}
	}
	again, err := q.Graph.Solve()
	if err != nil || again.Cost != r.Cost {
		t.Errorf("cost %d after it was infeasible, %d before (%v)", again.Cost, r.Cost, err)
	}
	if err := q.Graph.Verify(); err != nil {
		t.Error(err)
	}
}
