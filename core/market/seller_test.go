package market_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
)

var epoch = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func newSeller(cap cluster.Resources) *market.Seller {
	return market.NewSeller(cluster.Record{Worker: "w1", Region: "local", State: cluster.Ready, Capacity: cap,
		Incarnation: 1})
}

func request(id string, r cluster.Resources) placement.Request {
	return placement.Request{App: "a", Machine: id, Resources: r}
}

func TestSellerRefusalsCarryTheFreshRecord(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1000, Memory: 1000})
	if err := s.Grant(epoch, request("m1", cluster.Resources{CPU: 800, Memory: 100}), "", true); err != nil {
		t.Fatal(err)
	}
	err := s.Grant(epoch, request("m2", cluster.Resources{CPU: 300, Memory: 2000}), "", true)
	e := fault.As(err)
	if e.Kind != fault.Exhausted || e.Resource != "cpu" {
		t.Fatalf("kind %s, resource %q: %v", e.Kind, e.Resource, err)
	}
	r, ok := fault.Detail[market.Refusal](e)
	if !ok || len(r.Verdict.Failing) != 2 || r.Record.Used.CPU != 800 {
		t.Fatalf("the refusal must have every failing clause and the fresh record: %+v", e.Detail)
	}
	if !r.Verdict.Never {
		t.Error("2000 MiB never fit into 1000 MiB, and the verdict must say so")
	}
}

func TestSellerGrantIsIdempotentByMachine(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1000})
	for range 3 {
		if err := s.Grant(epoch, request("m1", cluster.Resources{CPU: 600}), "", true); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Record(epoch).Used.CPU; got != 600 {
		t.Fatalf("used %d, want 600", got)
	}
	other := request("m1", cluster.Resources{CPU: 1})
	other.App = "b"
	if err := s.Grant(epoch, other, "", true); !fault.Is(err, fault.Conflict) {
		t.Fatalf("an id of another app must be a conflict: %v", err)
	}
}

func TestSellerStoppedMachineKeepsOnlyItsDisk(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1000, Disk: 100})
	if err := s.Grant(epoch, request("m1", cluster.Resources{CPU: 1000, Disk: 60}), "", true); err != nil {
		t.Fatal(err)
	}
	if err := s.SetUp(epoch, "m1", false); err != nil {
		t.Fatal(err)
	}
	if err := s.Grant(epoch, request("m2", cluster.Resources{CPU: 1000, Disk: 40}), "", true); err != nil {
		t.Fatal(err)
	}
	if err := s.SetUp(epoch, "m1", true); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("a start is a new bid, and there is no room: %v", err)
	}
}

func TestSellerHoldBelongsToItsTokenUntilExpiry(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1000})
	all := cluster.Resources{CPU: 1000}
	until, err := s.Hold(epoch, "b", request("m1", all), "tok", 10*time.Second)
	if err != nil || !until.Equal(epoch.Add(10*time.Second)) {
		t.Fatal(until, err)
	}
	if err := s.Grant(epoch, request("m2", all), "", true); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("held room is not free: %v", err)
	}
	if err := s.Grant(epoch, request("m2", all), "tok", true); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("a token is good for its own machine only: %v", err)
	}
	if err := s.Grant(epoch.Add(11*time.Second), request("m2", all), "", true); err != nil {
		t.Fatalf("the hold has expired: %v", err)
	}
	if n, _ := s.Counters(); n != 1 {
		t.Fatalf("%d holds expired, want 1", n)
	}
	if err := s.Grant(epoch.Add(11*time.Second), request("m1", all), "tok", true); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("an expired hold counts for nothing: %v", err)
	}
	for _, ttl := range []time.Duration{0, -1, market.MaxHoldTTL + 1} {
		if _, err := s.Hold(epoch, "b", request("m3", all), "t3", ttl); !fault.Is(err, fault.Invalid) {
			t.Errorf("a hold of %v: %v", ttl, err)
		}
	}
}

func TestSellerHoldBesideAGrantCountsBoth(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 44})
	if err := s.Grant(epoch, request("m1", cluster.Resources{CPU: 1}), "", true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Hold(epoch, "b", request("m1", cluster.Resources{CPU: 44}), "t", time.Second); !fault.Is(err,
		fault.Exhausted) {
		t.Fatalf("1 is granted and 44 more are held of 44: %v", err)
	}
}

// TestSellerNeverOverGrants: no sequence of asks, holds, expiries, grants, starts, stops, resizes, releases and crashes
// ever grants more than there is, and every hold ends (invariants 1 and 6).
func TestSellerNeverOverGrants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := drawResources(t, "capacity", 100)
		s, now := newSeller(capacity), epoch
		type fact struct {
			want cluster.Resources
			up   bool
		}
		durable := map[string]fact{} // what a journal would have
		id := rapid.SampledFrom([]string{"m1", "m2", "m3", "m4", "m5"})
		token := rapid.SampledFrom([]string{"", "t1", "t2", "t3"})
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				tok, ttl := token.Draw(t, "token"), time.Duration(rapid.IntRange(1, 60).Draw(t, "ttl"))*time.Second
				until, err := s.Hold(now, "b", request(id.Draw(t, "id"), drawResources(t, "want", 60)), tok, ttl)
				if err == nil && until.After(now.Add(market.MaxHoldTTL)) {
					t.Fatalf("a hold until %v at %v", until, now)
				}
			},
			"release": func(t *rapid.T) {
				s.Release(now, token.Draw(t, "token"))
			},
			"grant": func(t *rapid.T) {
				m, want, up := id.Draw(t, "id"), drawResources(t, "want", 60), rapid.Bool().Draw(t, "up")
				tok := token.Draw(t, "token")
				quote := s.Ask(now, request(m, want))
				err := s.Grant(now, request(m, want), tok, up)
				if _, had := durable[m]; err == nil && !had {
					durable[m] = fact{want, up}
				} else if quote.Verdict.Fits && !had && err != nil {
					t.Fatalf("the quote said it fits, the grant said %v", err)
				}
			},
			"setup": func(t *rapid.T) {
				m, up := id.Draw(t, "id"), rapid.Bool().Draw(t, "up")
				if f, had := durable[m]; had && s.SetUp(now, m, up) == nil {
					durable[m] = fact{f.want, up}
				}
			},
			"resize": func(t *rapid.T) {
				m, want := id.Draw(t, "id"), drawResources(t, "want", 60)
				if f, had := durable[m]; had && s.Resize(now, m, want) == nil {
					durable[m] = fact{want, f.up}
				}
			},
			"free": func(t *rapid.T) {
				m := id.Draw(t, "id")
				s.Free(m)
				delete(durable, m)
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second)
			},
			"crash": func(t *rapid.T) { // holds are lost, grants are facts
				s = newSeller(capacity)
				for m, f := range durable {
					s.Restore(m, "a", f.want, f.up)
				}
			},
			"": func(t *rapid.T) {
				s.Check()
				if used := s.Record(now).Used; !used.Fits(capacity) {
					t.Fatalf("granted %v of %v", used, capacity)
				}
				if next := s.NextExpiry(); !next.IsZero() && !now.Before(next) {
					t.Fatalf("a hold that ended at %v is kept at %v", next, now)
				}
			},
		})
		s.Record(now.Add(market.MaxHoldTTL))
		if next := s.NextExpiry(); !next.IsZero() {
			t.Fatalf("a hold outlives the longest time: it ends at %v", next)
		}
	})
}

func drawResources(t *rapid.T, label string, most int64) cluster.Resources {
	n := rapid.Int64Range(0, most)
	r := cluster.Resources{CPU: n.Draw(t, label+" cpu"), Memory: n.Draw(t, label+" memory"),
		Disk:  n.Draw(t, label+" disk"),
		Ports: n.Draw(t, label+" ports"), GPU: n.Draw(t, label+" gpu")}
	if x := n.Draw(t, label+" licence"); x > 0 {
		r.Named = map[string]int64{"licence": x}
	}
	return r
}
