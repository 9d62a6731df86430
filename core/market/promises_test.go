package market_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func newPromiser(limit int64, capacity cluster.Resources) *market.Seller {
	return market.NewSeller(cluster.Record{Worker: "w1", Region: "local", State: cluster.Ready, Capacity: capacity,
		Incarnation: 1, PromiseLimit: limit})
}

func waking(id string, want cluster.Resources) placement.Request {
	r := request(id, want)
	r.Wakes = true
	return r
}

// TestWakePromisesAreBounded: a worker accepts wakeable machines up to the room it may owe, asleep or not; other
// machines are accepted while there is free room; an accepted machine may always wake or ask for less.
func TestWakePromisesAreBounded(t *testing.T) {
	s := newPromiser(2000, cluster.Resources{CPU: 1000, Memory: 1000, Disk: 100})
	want := cluster.Resources{CPU: 500, Memory: 100, Disk: 10}
	take := func(r placement.Request, up bool) {
		t.Helper()
		if err := s.Grant(epoch, r, "", up); err != nil {
			t.Fatal(err)
		}
		s.Check()
	}
	take(waking("m1", want), true)
	take(waking("m2", want), true)
	if err := s.SetUp(epoch, "m1", false); err != nil {
		t.Fatal(err)
	}
	take(waking("m3", want), false)
	take(waking("m4", want), false)
	mustOwe(t, s, cluster.Resources{CPU: 1500, Memory: 300})

	fifth := waking("m5", want)
	quote, err := s.Ask(epoch, fifth), s.Grant(epoch, fifth, "", false)
	if f := quote.Verdict.Failing; quote.Verdict.Fits || quote.Verdict.Never || len(f) != 1 ||
		f[0] != (machine.Clause{Code: placement.CodePromised, Wanted: "cpu 500m", Had: "0m left to promise of 2000m"}) {
		t.Fatalf("the quote of one more: %+v", quote.Verdict)
	}
	if fault.KindOf(err) != fault.Exhausted {
		t.Fatalf("the grant of one more: %v", err)
	}
	take(request("owner's", want), true) // it asks for no promise
	s.Free("owner's")
	if err := s.SetUp(epoch, "m1", true); err != nil {
		t.Fatalf("one that is there does not wake: %v", err)
	}
	mustOwe(t, s, cluster.Resources{CPU: 1000, Memory: 200})
	if err := s.SetUp(epoch, "m3", true); err == nil {
		t.Fatal("a third is up where there is room for two")
	}
	if err := s.SetUp(epoch, "m1", false); err != nil {
		t.Fatal(err)
	}
	s.Free("m4")
	take(fifth, false)
}

// TestUpdateBeyondTheWakePromiseIsRefused: a machine that is there is refused where it would want more than is left, or would be
// woken by requests from now on; one that wants less, or no promise, is not.
func TestUpdateBeyondTheWakePromiseIsRefused(t *testing.T) {
	s := newPromiser(1000, cluster.Resources{CPU: 1000, Memory: 1000})
	for _, r := range []placement.Request{waking("m1", cluster.Resources{CPU: 400}),
		waking("m2", cluster.Resources{CPU: 400}), request("m3", cluster.Resources{CPU: 400})} {
		if err := s.Grant(epoch, r, "", false); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		id    string
		cpu   int64
		wakes bool
		taken bool
	}{
		{"m1", 400, true, true}, {"m1", 600, true, true}, {"m1", 601, true, false}, {"m1", 601, false, true},
		{"m3", 200, true, true}, {"m3", 201, true, false}, {"m3", 900, false, true}, {"nobody", 900, true, true},
	} {
		err := s.Promise(epoch, c.id, cluster.Resources{CPU: c.cpu}, c.wakes)
		if (err == nil) != c.taken || err != nil && fault.KindOf(err) != fault.Exhausted {
			t.Errorf("%+v: %v", c, err)
		}
	}
	mustOwe(t, s, cluster.Resources{CPU: 800}) // to ask changes nothing
	s.Describe("m3", market.Tenant{Wakes: true})
	s.Check()
	mustOwe(t, s, cluster.Resources{CPU: 1200})
	s.Describe("m3", market.Tenant{})
	mustOwe(t, s, cluster.Resources{CPU: 800})
}

func mustOwe(t *testing.T, s *market.Seller, want cluster.Resources) {
	t.Helper()
	if is := s.Record(epoch).Promised; !is.Sub(want).IsZero() {
		t.Fatalf("promised are %v, not %v", is, want)
	}
}

// TestPromisesEqualUseIfAllWereAwake: whatever comes, goes, sleeps, wakes and changes, what is used and promised is
// what would be used if all were awake that requests may wake; to wake and to sleep change nothing of the sum; and a
// machine that is taken leaves it within the limit.
func TestPromisesEqualUseIfAllWereAwake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int64{500, 1000, 2500}).Draw(t, "limit")
		capacity := drawResources(t, "capacity", 100)
		s := newPromiser(limit, capacity)
		type fact struct {
			want      cluster.Resources
			up, wakes bool
		}
		facts := map[string]fact{}
		id := rapid.SampledFrom([]string{"m1", "m2", "m3", "m4", "m5", "m6"})
		sum := func() cluster.Resources { r := s.Record(epoch); return r.Used.Add(r.Promised) }
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				r := request(id.Draw(t, "id"), drawResources(t, "want", 60))
				r.Wakes = rapid.Bool().Draw(t, "wakes")
				up := rapid.Bool().Draw(t, "up")
				if _, had := facts[r.Machine]; had || s.Grant(epoch, r, "", up) != nil {
					return
				}
				facts[r.Machine] = fact{r.Resources, up, r.Wakes}
				rec := s.Record(epoch)
				for _, d := range sum().Dims() {
					if r.Wakes && r.Resources.Get(d.Name) > 0 && d.Name != "disk" && d.Amount > rec.Promisable(d.Name) {
						t.Fatalf("%d of %s are used and promised, of at most %d", d.Amount, d.Name,
							rec.Promisable(d.Name))
					}
				}
			},
			"wake or sleep": func(t *rapid.T) {
				m, before := id.Draw(t, "id"), sum()
				f, had := facts[m]
				if !had || s.SetUp(epoch, m, !f.up) != nil {
					return
				}
				f.up = !f.up
				if facts[m] = f; f.wakes && !sum().Sub(before).IsZero() {
					t.Fatalf("%v were used and promised, now %v", before, sum())
				}
			},
			"change": func(t *rapid.T) {
				m, wakes := id.Draw(t, "id"), rapid.Bool().Draw(t, "wakes")
				if f, had := facts[m]; had {
					s.Describe(m, market.Tenant{Wakes: wakes})
					f.wakes = wakes
					facts[m] = f
				}
			},
			"free": func(t *rapid.T) {
				m := id.Draw(t, "id")
				s.Free(m)
				delete(facts, m)
			},
			"": func(t *rapid.T) {
				s.Check()
				var want cluster.Resources
				for _, f := range facts {
					if !f.up && !f.wakes {
						f.want = cluster.Resources{Disk: f.want.Disk}
					}
					want = want.Add(f.want)
				}
				if !sum().Sub(want).IsZero() {
					t.Fatalf("%v are used and promised, not %v", sum(), want)
				}
			},
		})
	})
}

// TestEvictionKeepsTheVictimsWakePromise: what a machine that requests may wake gives back when it is evicted it is promised at
// once, so that room cannot be promised to the one that it leaves for; what another gives back can.
func TestEvictionKeepsTheVictimsWakePromise(t *testing.T) {
	for _, wakes := range []bool{true, false} {
		s := newPromiser(1000, cluster.Resources{CPU: 1000})
		victim := ranked("cheap", "m1", "free", 1000)
		victim.Wakes = wakes
		if err := s.Grant(epoch, victim, "", true); err != nil {
			t.Fatal(err)
		}
		r := ranked("dear", "m2", "service", 1000)
		r.Wakes = true
		list, err := s.Claim(epoch, r, "")
		gone := slices.ContainsFunc(list, func(p machine.Preemption) bool { return p.Machine == "m1" })
		if gone == wakes || (err == nil) == wakes {
			t.Errorf("the victim may be woken %v: evicted %v, %v", wakes, list, err)
		}
	}
}
