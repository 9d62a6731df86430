package market_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func record(id string, free int64) cluster.Record {
	return cluster.Record{Worker: cluster.WorkerID(id), Region: "local", State: cluster.Ready, Incarnation: 1,
		Version:  1,
		Capacity: cluster.Resources{CPU: 1000}, Used: cluster.Resources{CPU: 1000 - free}}
}

func TestBuyerTakesOneRoundTripWhenTheViewIsRight(t *testing.T) {
	b := market.NewBuyer(request("m", cluster.Resources{CPU: 100}),
		cluster.View{Workers: []cluster.Record{record("a", 200), record("b", 900), record("c", 50)}},
		placement.Default())
	if o := b.Step(market.In{}); o.Ask != "b" {
		t.Fatalf("asked %q, want b: it has most room", o.Ask)
	}
	if o := b.Step(market.In{Granted: true, Worker: "b"}); !o.Done || o.Err != nil {
		t.Fatalf("%+v", o)
	}
	p := b.Placement("b")
	if p.Worker != "b" || len(p.Candidates) != 3 || !strings.Contains(p.Reason, "2 workers that fit (of 3)") {
		t.Fatalf("%+v", p)
	}
}

func TestBuyerUpdatesItsViewFromARefusal(t *testing.T) {
	b := market.NewBuyer(request("m", cluster.Resources{CPU: 100}),
		cluster.View{Workers: []cluster.Record{record("a", 200), record("b", 900)}}, placement.Default())
	b.Step(market.In{})
	fresh := record("b", 10)
	fresh.Version = 7
	if o := b.Step(market.In{Worker: "b",
		Refused: &market.Refusal{Record: fresh, Verdict: placement.Judge(request("m", cluster.Resources{CPU: 100}),
			fresh)}}); o.Ask != "a" {
		t.Fatalf("asked %q, want a", o.Ask)
	}
	o := b.Step(market.In{Worker: "a", Refused: &market.Refusal{Record: record("a", 200)}})
	if !o.Done || !fault.Is(o.Err, fault.Exhausted) {
		t.Fatalf("%+v", o)
	}
	if !strings.Contains(o.Err.Error(),
		"could not find a candidate host: cpu: wanted 0.1, had 0.01 free of 1 (1 of 2 workers)") {
		t.Fatal(o.Err)
	}
}

// TestPortInUseEverywhereIsAConflict: a buyer asks the next worker when a port is taken; when it is taken at every
// worker the answer is a conflict, not a lack of room.
func TestPortInUseEverywhereIsAConflict(t *testing.T) {
	b := market.NewBuyer(request("m", cluster.Resources{CPU: 100}),
		cluster.View{Workers: []cluster.Record{record("a", 200), record("b", 900), record("c", 10)}},
		placement.Default())
	no := func(id string, free int64) market.In {
		seller := market.NewSeller(cluster.Record{Worker: cluster.WorkerID(id), State: cluster.Ready,
			Capacity: cluster.Resources{CPU: free}})
		err := market.Refuse(seller, time.Time{}, request("m", cluster.Resources{CPU: 100}),
			[]machine.Clause{{Code: placement.CodePort, Wanted: "80/tcp free", Had: "another"}})
		refusal, _ := fault.Detail[market.Refusal](err)
		return market.In{Worker: cluster.WorkerID(id), Refused: &refusal}
	}
	if o := b.Step(market.In{}); o.Ask != "b" {
		t.Fatalf("%+v", o)
	}
	if o := b.Step(no("b", 900)); o.Ask != "a" {
		t.Fatalf("%+v", o)
	}
	o := b.Step(no("a", 200))
	if !o.Done || fault.CodeOf(o.Err) != "port_taken" || !fault.Is(o.Err, fault.Conflict) {
		t.Fatalf("%+v", o)
	}
	if want :=
		"every worker asked refused: b: port 80/tcp is not free: there is another"; !strings.Contains(o.Err.Error(),
		want) {
		t.Fatal(o.Err)
	}
}

func TestRefusalNamesTheWorkerItsNumbersComeFrom(t *testing.T) {
	for _, c := range []struct {
		b    cluster.Record
		want string
	}{
		{record("b", 30), "had 0.01 free of 1 on a (2 of 2 workers)"},
		{record("b", 10), "had 0.01 free of 1 (2 of 2 workers)"},
	} {
		b := market.NewBuyer(request("m", cluster.Resources{CPU: 100}),
			cluster.View{Workers: []cluster.Record{record("a", 10), c.b}}, placement.Default())
		o := b.Step(market.In{})
		if !o.Done || o.Err == nil || !strings.Contains(o.Err.Error(), c.want) {
			t.Errorf("%+v, want %q", o, c.want)
		}
	}
}

func TestBuyerRetriesTheSameWorkerAfterALostAnswer(t *testing.T) {
	b := market.NewBuyer(request("m", cluster.Resources{CPU: 100}),
		cluster.View{Workers: []cluster.Record{record("a", 200), record("b", 900)}}, placement.Default())
	b.Step(market.In{})
	for i := range market.MaxLost {
		o := b.Step(market.In{Lost: true, Worker: "b"})
		if o.Ask != "b" || o.After != market.LostWait<<i {
			t.Fatalf("try %d: %+v", i, o)
		}
	}
	if o := b.Step(market.In{Lost: true, Worker: "b"}); !o.Done || fault.CodeOf(o.Err) != "ambiguous" {
		t.Fatalf("%+v", o)
	}
}

func TestBuyerStopsOnAnErrorOtherThanRefusal(t *testing.T) {
	b := market.NewBuyer(request("m", cluster.Resources{}), cluster.View{Workers: []cluster.Record{record("a", 200)}},
		placement.Default())
	b.Step(market.In{})
	if o := b.Step(market.In{Failed: errors.New("bad config"), Worker: "a"}); !o.Done || o.Err == nil {
		t.Fatalf("%+v", o)
	}
}

// TestBuyersNeverOverGrantWithStaleViews: a stale view can only cost a refusal (invariant 5), the machine ends on at
// most one worker, and a buyer gives up only when every worker it knows would refuse.
func TestBuyersNeverOverGrantWithStaleViews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		sellers, stale := map[cluster.WorkerID]*market.Seller{}, cluster.View{}
		for i := range rapid.IntRange(1, 6).Draw(t, "workers") {
			id := cluster.WorkerID(fmt.Sprintf("w%d", i))
			s := market.NewSeller(cluster.Record{Worker: id, Region: "local", State: cluster.Ready, Incarnation: 1,
				Capacity: cluster.Resources{CPU: 1000}})
			sellers[id] = s
			stale.Workers = append(stale.Workers, s.Record(epoch))
		}
		for n := range rapid.IntRange(1, 40).Draw(t, "machines") {
			req := request(fmt.Sprintf("m%d", n), cluster.Resources{CPU: int64(rng.IntN(500) + 1)})
			placed, err := buy(market.NewBuyer(req, stale, placement.Default()), sellers, req, rng)
			if placed > 1 {
				t.Fatalf("%s was placed %d times", req.Machine, placed)
			}
			if err == nil && placed != 1 {
				t.Fatalf("%s: done, and on no worker", req.Machine)
			}
			if fault.Is(err, fault.Exhausted) {
				for id, s := range sellers {
					if s.Ask(epoch, req).Verdict.Fits {
						t.Fatalf("gave up on %s although %s has room", req.Machine, id)
					}
				}
			}
		}
		for _, s := range sellers {
			s.Check()
		}
	})
}

// buy drives a buyer over a network that loses answers; placed counts the workers that have the machine at the end.
func buy(b *market.Buyer, sellers map[cluster.WorkerID]*market.Seller, req placement.Request,
	rng *rand.Rand) (placed int, err error) {
	got := map[cluster.WorkerID]bool{}
	for o := b.Step(market.In{}); ; {
		if o.Done {
			return len(got), o.Err
		}
		err := sellers[o.Ask].Grant(epoch, req, "", true)
		if err == nil {
			got[o.Ask] = true
		}
		switch {
		case rng.IntN(5) == 0:
			o = b.Step(market.In{Lost: true, Worker: o.Ask})
		case err == nil:
			o = b.Step(market.In{Granted: true, Worker: o.Ask})
		default:
			r, _ := fault.Detail[market.Refusal](err)
			o = b.Step(market.In{Refused: &r, Worker: o.Ask})
		}
	}
}
