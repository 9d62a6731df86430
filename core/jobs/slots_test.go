package jobs_test

import (
	"maps"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

// bidAt makes a bulletin of one short bid.
func bidAt(rank int64, cpu int64, quota int) *jobs.Bulletin {
	bid := auction.NoBid()
	bid.Short = rank
	return &jobs.Bulletin{Bids: []jobs.ShapeBid{{Shape: jobs.Shape{CPU: cpu, Memory: 64}, Bid: bid, Quota: quota}}}
}

// offered counts the offers to each of two buyers.
func offered(s *jobs.Slots, now time.Time, used int64) (a, b []jobs.SlotOffer) {
	out := s.Offers(now, cluster.Record{Worker: "w", State: cluster.Ready, Incarnation: 1,
		Capacity: cluster.Resources{CPU: 4000, Memory: 4096}, Used: cluster.Resources{CPU: used}})
	return out["a"], out["b"]
}

// TestBuyersAreNeverOfferedTheSameRoom: of two buyers the better bid is served first, up to its quota and the worker's
// room; what one gives back or leaves is offered to the other.
func TestBuyersAreNeverOfferedTheSameRoom(t *testing.T) {
	s := jobs.NewSlots(8, auction.DefaultRules(8))
	s.Hear("a", bidAt(1, 1000, 3))
	s.Hear("b", bidAt(2, 1000, 8))
	first, second := offered(s, epoch, 0)
	if len(first) != 3 || len(second) != 1 {
		t.Fatalf("of room for four %d and %d were offered", len(first), len(second))
	}
	if a, b := offered(s, epoch, 0); len(a)+len(b) != 0 {
		t.Fatalf("promised room was offered again: %v, %v", a, b)
	}
	s.Back("b", first[0].Offer) // another buyer's
	s.Back("a", first[0].Offer)
	if a, b := offered(s, epoch, 0); len(a) != 0 || len(b) != 1 {
		t.Fatalf("after one was given back %d and %d were offered", len(a), len(b))
	}
	o := first[1].Offer
	if got := s.Answer(epoch, "b", o, auction.TaskGrant{Offer: o.Number}, true); got != auction.Refuse {
		t.Errorf("a grant of a buyer without the offer: %v", got)
	}
	if got := s.Answer(epoch, "a", o, auction.TaskGrant{Offer: o.Number}, true); got != auction.Accept {
		t.Errorf("the grant: %v", got)
	}
	s.Leave("a")
	if a, b := offered(s, epoch, 1000); len(a) != 0 || len(b) != 1 {
		t.Fatalf("after a buyer has left %d and %d were offered", len(a), len(b))
	}
	g := auction.TaskGrant{Offer: first[2].Number}
	if got := s.Answer(epoch, "a", first[2].Offer, g, true); got != auction.Refuse {
		t.Errorf("a grant of a buyer that has left: %v", got)
	}
}

// TestSavedRoomEndsWithItsTasks: room that is saved for a large task is offered to nobody else, until the task fits, its
// buyer bids for it no more, or the time is over.
func TestSavedRoomEndsWithItsTasks(t *testing.T) {
	for name, end := range map[string]func(*jobs.Slots) (used int64, now time.Time){
		"fits":    func(*jobs.Slots) (int64, time.Time) { return 0, epoch },
		"no bid":  func(s *jobs.Slots) (int64, time.Time) { s.Hear("a", &jobs.Bulletin{}); return 3000, epoch },
		"gone":    func(s *jobs.Slots) (int64, time.Time) { s.Leave("a"); return 3000, epoch },
		"expired": func(*jobs.Slots) (int64, time.Time) { return 3000, epoch.Add(2 * time.Minute) },
	} {
		s := jobs.NewSlots(8, auction.DefaultRules(8))
		s.Hear("a", bidAt(1, 4000, 1))
		s.Hear("b", bidAt(2, 1000, 8))
		s.Save(epoch, "a", jobs.Shape{CPU: 4000, Memory: 64})
		if a, b := offered(s, epoch, 3000); len(a)+len(b) != 0 {
			t.Fatalf("%s: saved room was offered: %v, %v", name, a, b)
		}
		used, now := end(s)
		if a, b := offered(s, now, used); len(a)+len(b) != 1 || (len(a) == 1) != (name == "fits") {
			t.Errorf("%s: %d and %d are offered then", name, len(a), len(b))
		}
	}
}

// TestPausedBuyerGetsNoOffer: one that has not recorded many results is passed over until it has.
func TestPausedBuyerGetsNoOffer(t *testing.T) {
	s := jobs.NewSlots(1, auction.DefaultRules(8))
	s.Hear("a", bidAt(1, 1000, 1))
	s.Pause("a", true)
	if a, _ := offered(s, epoch, 0); len(a) != 0 {
		t.Error("it was offered a slot")
	}
	s.Pause("a", false)
	if a, _ := offered(s, epoch, 0); len(a) != 1 {
		t.Error("it was offered none afterwards")
	}
}

// TestGPUsOfOneKindAreOfferedOnce: a worker with a GPU of each of two kinds offers one slot to tasks of each, and none
// to a third or to those of a kind that it lacks.
func TestGPUsOfOneKindAreOfferedOnce(t *testing.T) {
	s := jobs.NewSlots(8, auction.DefaultRules(8))
	bid := auction.NoBid()
	bid.Short = 1
	bulletin := &jobs.Bulletin{}
	for _, kind := range []string{"a100", "h200", "b200"} {
		bulletin.Bids = append(bulletin.Bids, jobs.ShapeBid{Bid: bid, Quota: 8,
			Shape: jobs.Shape{CPU: 100, Memory: 64, GPU: 1000, GPUKind: kind}})
	}
	s.Hear("a", bulletin)
	gpus := []cluster.GPU{{Kind: "a100", Free: 1000}, {Kind: "h200", Free: 1000}}
	rec := cluster.Record{Worker: "w", State: cluster.Ready, Incarnation: 1, GPUs: gpus,
		Capacity: cluster.Resources{CPU: 4000, Memory: 4096}.Add(machine.DeviceResources(gpus))}
	got := map[string]int{}
	for range 2 {
		for _, o := range s.Offers(epoch, rec)["a"] {
			got[o.Shape.GPUKind]++
		}
	}
	if want := map[string]int{"a100": 1, "h200": 1}; !maps.Equal(got, want) {
		t.Errorf("offers by kind: %v, want %v", got, want)
	}
}
