package jobs_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/share"
)

// ofNamespace makes a bid for one-core tasks of a namespace; the rank orders it in the auction.
func ofNamespace(namespace string, rank int64, quota int) jobs.ShapeBid {
	bid := auction.NoBid()
	bid.Short = rank
	return jobs.ShapeBid{Shape: jobs.Shape{CPU: 1000, Memory: 64, Namespace: namespace}, Bid: bid, Quota: quota}
}

// accept answers an offer with a task.
func accept(t *testing.T, s *jobs.Slots, now time.Time, o jobs.SlotOffer) {
	t.Helper()
	if got := s.Answer(now, "a", o.Offer, auction.TaskGrant{Offer: o.Number}, true); got != auction.Accept {
		t.Fatalf("the grant: %v", got)
	}
}

// TestWhoHasUsedLessIsOfferedFirst: between accounts their use comes before the auction's order and priority; the first
// offers go by the auction, to more than one.
func TestWhoHasUsedLessIsOfferedFirst(t *testing.T) {
	s := jobs.NewSlots(8, auction.DefaultRules(8))
	s.Hear("a", &jobs.Bulletin{Bids: []jobs.ShapeBid{ofNamespace("ml", -1e15, 8), ofNamespace("", 2, 8)}})
	now := epoch
	rounds := map[string]int{}
	for round := range 40 {
		a, _ := offered(s, now, 0)
		if len(a) != 4 {
			t.Fatalf("of four cores %d were offered", len(a))
		}
		if round == 0 && (a[0].Shape.Namespace != "ml" || a[1].Shape.Namespace != "ml" || a[2].Shape.Namespace != "") {
			t.Errorf("the first offers: %+v", a)
		}
		for _, o := range a {
			rounds[o.Shape.Namespace]++
			accept(t, s, now, o)
		}
		now = now.Add(time.Hour)
		for _, o := range a {
			s.Free(now, o.Slot)
		}
		s.Hear("a", &jobs.Bulletin{Bids: []jobs.ShapeBid{ofNamespace("ml", -1e15, 8), ofNamespace("", 2, 8)}})
	}
	if d := rounds["ml"] - rounds[""]; d < -8 || d > 8 {
		t.Errorf("%v hours were taken", rounds)
	}
}

// TestWeightsCount: of the namespaces, for what is due.
func TestWeightsCount(t *testing.T) {
	s := jobs.NewSlots(8, auction.DefaultRules(8))
	s.SetShares(quota.DefaultPrice(), map[string]float64{"ml": 3})
	s.Hear("a", &jobs.Bulletin{Bids: []jobs.ShapeBid{ofNamespace("ml", 1, 8), ofNamespace("web", 2, 8)}})
	got := s.Standings(epoch, "a")
	if len(got) != 2 || got[0].Namespace != "ml" || got[0].Due != 0.75 || got[1].Due != 0.25 {
		t.Errorf("%+v", got)
	}
}

// TestAnAccountThatIsBehindHasRoomSaved: the bid that was passed over for lack of room is that of the account that goes
// first, whatever the auction says.
func TestAnAccountThatIsBehindHasRoomSaved(t *testing.T) {
	s := jobs.NewSlots(8, auction.DefaultRules(8))
	used := share.Used{Account: share.Account{Namespace: "ml"}, Hours: 9}
	s.RestoreShares(epoch, share.Saved{At: epoch, Used: []share.Used{used}})
	large := ofNamespace("web", 2, 8)
	large.Shape.CPU = 4000
	s.Hear("a", &jobs.Bulletin{Bids: []jobs.ShapeBid{ofNamespace("ml", 1, 8), large}})
	offered(s, epoch, 1000)
	offered(s, epoch.Add(6*time.Second), 1000)
	if got := s.PassedOver(epoch.Add(6*time.Second), "a"); len(got) != 1 || got[0] != large.Shape {
		t.Errorf("passed over: %+v", got)
	}
}

// TestUseIsKeptOverARestart: and a task that ran on counts for whom its terms say.
func TestUseIsKeptOverARestart(t *testing.T) {
	s := jobs.NewSlots(8, auction.DefaultRules(8))
	s.Hear("a", &jobs.Bulletin{Bids: []jobs.ShapeBid{ofNamespace("ml", 1, 8)}})
	a, _ := offered(s, epoch, 0)
	accept(t, s, epoch, a[0])
	saved := s.SaveShares(epoch.Add(time.Hour))
	next := jobs.NewSlots(8, auction.DefaultRules(8))
	next.RestoreShares(epoch.Add(2*time.Hour), saved)
	slot := next.Occupy()
	rec := cluster.Record{Capacity: cluster.Resources{CPU: 4000, Memory: 4096}}
	for range 2 { // a buyer may connect again
		next.Own(epoch.Add(2*time.Hour), slot, &jobs.Terms{Namespace: "ml"}, jobs.Life{CPU: 1000, Memory: 64}, epoch,
			&rec)
	}
	got := next.SaveShares(epoch.Add(2 * time.Hour))
	if len(got.Used) != 1 || got.Used[0].Hours < 1.9*saved.Used[0].Hours || got.Used[0].Hours > 2*saved.Used[0].Hours {
		t.Errorf("%+v, and after an hour more %+v", saved, got)
	}
	next.Free(epoch.Add(3*time.Hour), slot)
	if got := next.SaveShares(epoch.Add(1000 * time.Hour)); len(got.Used) != 0 {
		t.Errorf("at last %+v", got)
	}
}

// TestWorkerWithoutAccountsRunsTasksOfAll: one of an older build offers slots without a namespace, and gets the best
// task of any.
func TestWorkerWithoutAccountsRunsTasksOfAll(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		d := jobs.NewDispatcher(auction.DefaultRules(8))
		d.Open(epoch)
		for i, namespace := range []string{"web", "ml"} {
			spec := settled(t, jobs.Spec{Last: 2, Namespace: namespace, EstimateMS: int64(2000 - 1000*i)})
			if err := d.Submit(epoch, jobs.ID(uint64(i+1)), spec); err != nil {
				t.Fatal(err)
			}
		}
		d.Flush()
		d.Saved(epoch)
		d.Report(epoch, jobs.Report{Worker: "w", Record: twoCPUs("w"), Full: true, Accounts: keeps, Free: 4})
		d.Open(epoch.Add(time.Minute))
		var shape jobs.Shape
		for _, o := range d.Take().Orders {
			if o.Bulletin != nil && len(o.Bulletin.Bids) == 2 {
				shape = o.Bulletin.Bids[0].Shape
			}
		}
		if shape.Namespace == "" {
			t.Fatal("there is no bulletin with two bids")
		}
		shape.Namespace = ""
		d.Report(epoch.Add(time.Minute), jobs.Report{Worker: "w", Record: twoCPUs("w"), Free: 4,
			Offers: []jobs.SlotOffer{{Offer: jobs.Offer{Slot: 1, Number: 1}, Shape: shape}}})
		granted, back := 0, 0
		for _, o := range d.Take().Orders {
			back += len(o.Back)
			for _, g := range o.Grants {
				if granted++; g.Terms.Namespace != "ml" {
					t.Errorf("a task of %s was granted", g.Terms.Namespace)
				}
			}
		}
		if granted != 1 && !keeps || back != 1 && keeps {
			t.Errorf("keeps accounts %v: %d granted, %d given back", keeps, granted, back)
		}
	}
}

// TestBulletinOfManyAccountsIsSmall: with 100 accounts it has at most 20 KiB.
func TestBulletinOfManyAccountsIsSmall(t *testing.T) {
	var b jobs.Bulletin
	for i := range 100 {
		bid := ofNamespace(fmt.Sprint("team-", i), epoch.UnixMicro(), 100)
		bid.Bid.Long, bid.Bid.Age, bid.Bid.Least, bid.Bid.Left = bid.Bid.Short, bid.Bid.Short, 100, 100
		b.Bids = append(b.Bids, bid)
	}
	raw, err := json.Marshal(b)
	if err != nil || len(raw) > 20<<10 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	t.Logf("%d bytes for each account", len(raw)/100)
}

// BenchmarkOffersOfManyAccounts hears the bids of 100 accounts, offers 16 free slots, and takes them back.
func BenchmarkOffersOfManyAccounts(b *testing.B) {
	var bulletin jobs.Bulletin
	for i := range 100 {
		bulletin.Bids = append(bulletin.Bids, ofNamespace(fmt.Sprint("n", i), int64(i), 1<<30))
	}
	rec := cluster.Record{Worker: "w", State: cluster.Ready, Capacity: cluster.Resources{CPU: 64000, Memory: 1 << 20}}
	s := jobs.NewSlots(16, auction.DefaultRules(64))
	for b.Loop() {
		s.Hear("b", &bulletin)
		offers := s.Offers(epoch, rec)["b"]
		if len(offers) != 16 {
			b.Fatal(len(offers))
		}
		for _, o := range offers {
			s.Back("b", o.Offer)
		}
	}
}
