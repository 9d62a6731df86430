package market

import (
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

func unaskedView() cluster.View {
	room := cluster.Resources{CPU: 1000, Memory: 1000, Disk: 1000, Ports: 10}
	return cluster.View{Workers: []cluster.Record{
		{Worker: "w1", State: cluster.Ready, Capacity: room}, {Worker: "w2", State: cluster.Ready, Capacity: room}}}
}

// TestBuyerMovesOnOnlyIfTheWorkerWasNotAsked: a worker that surely was not asked costs one more ask and no wait; one whose answer was lost
// before is stayed with, for it may have the machine.
func TestBuyerMovesOnOnlyIfTheWorkerWasNotAsked(t *testing.T) {
	req := placement.Request{App: "a", Machine: "00000000000001", Resources: cluster.Resources{CPU: 100}}
	b := NewBuyer(req, unaskedView(), placement.Default())
	first := b.Step(In{})
	next := b.Step(In{NotSent: true, Worker: first.Ask})
	if next.Done || next.Ask == first.Ask || next.After != 0 {
		t.Fatalf("%+v after %+v", next, first)
	}
	if tr := b.Purchase(); len(tr.Asks) != 2 || tr.Asks[0].Result != ResultRefused ||
		tr.Asks[0].Refusal.Record.Worker != first.Ask {
		t.Fatalf("%+v", tr.Asks)
	}
	if end := b.Step(In{NotSent: true, Worker: next.Ask}); !end.Done || end.Err == nil {
		t.Fatalf("%+v", end)
	}

	b = NewBuyer(req, unaskedView(), placement.Default())
	first = b.Step(In{})
	if out := b.Step(In{Lost: true, Worker: first.Ask}); out.Ask != first.Ask {
		t.Fatalf("%+v", out)
	}
	if out := b.Step(In{NotSent: true, Worker: first.Ask}); out.Ask != first.Ask || out.After == 0 {
		t.Fatalf("the machine may be at %s, and the buyer went on: %+v", first.Ask, out)
	}
}
