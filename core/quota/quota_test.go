package quota_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/machine"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(a)+math.Abs(b)) }

func TestPriceFollowsTheBand(t *testing.T) {
	p := quota.Price{PerHour: map[string]float64{"cpu": 1, "memory": 0.5, "gpu": 20, "licence": 3},
		Bands: map[machine.Band]float64{machine.BandBatch: 0.5, machine.BandSystem: 2}}
	want := cluster.Resources{CPU: 1500, Memory: 2048, GPU: 500, Disk: 1 << 20, Named: map[string]int64{"licence": 2}}
	for band, is := range map[machine.Band]float64{"": 18.5, machine.BandService: 18.5, machine.BandBatch: 9.25,
		machine.BandSystem: 37, machine.BandFree: 0} {
		if got := p.Rate(want, machine.Scheduling{Band: band}); !near(got, is) {
			t.Errorf("band %q costs %v, want %v", band, got, is)
		}
	}
	if why := quota.DefaultPrice().Valid(); why != "" {
		t.Fatal(why)
	}
	for _, bad := range []quota.Price{{PerHour: map[string]float64{"cpu": math.NaN()}},
		{PerHour: map[string]float64{"cpu": -1}}, {PerHour: map[string]float64{"": 1}},
		{Bands: map[machine.Band]float64{"gold": 1}}, {Bands: map[machine.Band]float64{machine.BandFree: 1}},
		{Bands: map[machine.Band]float64{machine.BandBatch: math.Inf(1)}}} {
		if bad.Valid() == "" {
			t.Errorf("%+v is let pass", bad)
		}
	}
}

func TestAffordSaysWantedHadAndWait(t *testing.T) {
	b := quota.Budget{PerHour: 6, Burst: 6}
	idle := quota.Of(b, nil, epoch)
	for _, c := range []struct {
		a           quota.Account
		rate        float64
		wanted, had string
	}{
		{quota.Account{Budget: b, Owed: 6, Rate: 3}, 6, "0.921 credits of namespace ml", "0.461 left, enough in 12m1s"},
		{quota.Account{Budget: b, Owed: 6, Rate: 6}, 1, "0.154 credits of namespace ml",
			"0 left, and no more as long as all goes on that runs"},
		{idle, 60, "9.21 credits of namespace ml", "6 left, and its burst is less"},
		{quota.Account{Budget: quota.Budget{Burst: 1}, Owed: 1}, 6, "1 credits of namespace ml",
			"0 left, and no more as long as all goes on that runs"},
	} {
		f := c.a.Afford("ml", c.rate)
		wanted, had := f.Clause()
		if f.Enough() || wanted != c.wanted || had != c.had {
			t.Errorf("%v at %v/h: %v: wanted %q, had %q", c.a, c.rate, f.Enough(), wanted, had)
		}
	}
	if f := idle.Afford("ml", 30); !f.Enough() {
		t.Error(f)
	}
	if idle.Afford("ml", 0) != nil {
		t.Error("what is free needs no funds")
	}
	for _, bad := range []quota.Budget{{PerHour: -1}, {PerHour: 60, Burst: 1}, {Burst: math.Inf(1)}} {
		if bad.Valid() == "" {
			t.Errorf("%+v is let pass", bad)
		}
	}
}

// TestAffordWaitIsExactlyEnough: when Afford says how long to wait, it is enough then, and was not a minute before.
func TestAffordWaitIsExactlyEnough(t *testing.T) {
	waits := 0
	rapid.Check(t, func(t *rapid.T) {
		b := quota.Budget{PerHour: rapid.Float64Range(0.1, 1000).Draw(t, "per hour")}
		b.Burst = b.PerHour * rapid.Float64Range(quota.Ahead, 100).Draw(t, "burst hours")
		a := quota.Account{Budget: b, Owed: rapid.Float64Range(0, 2).Draw(t, "owed") * b.Burst,
			Rate: rapid.Float64Range(0, 1.5).Draw(t, "rate") * b.PerHour}
		rate := rapid.Float64Range(0.001, 2).Draw(t, "wanted") * b.PerHour
		f := a.Afford("a", rate)
		if f.Enough() || f.Wait == 0 {
			return
		}
		waits++
		then := func(d time.Duration) quota.Account {
			owed := a.Owed
			for d > 0 { // an account is only good for a minute
				step := min(d, time.Minute)
				owed = quota.Of(b, []cluster.Spending{{Owed: owed, Rate: a.Rate, At: epoch}}, epoch.Add(step)).Owed
				d -= step
			}
			return quota.Account{Budget: b, Owed: owed, Rate: a.Rate}
		}
		if later := then(f.Wait).Afford("a", rate); later.Had < later.Wanted*(1-1e-6) {
			t.Fatalf("after %v: %+v", f.Wait, later)
		}
		if f.Wait > time.Minute {
			if sooner := then(f.Wait-time.Minute).Afford("a", rate); sooner.Had > sooner.Wanted*(1+1e-6) {
				t.Fatalf("a minute before %v: %+v", f.Wait, sooner)
			}
		}
	})
	if waits == 0 {
		t.Fatal("nobody waited")
	}
}

// TestMeterNeverFallsAndSumsPriceTimesTime: counters never fall, not when the clock goes back, machines come, go and change, or the worker is away;
// what is told is what was written; and Spent is the sum of price times time of what ran.
func TestMeterNeverFallsAndSumsPriceTimesTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, now, top := quota.NewMeter(), epoch, epoch
		journal := map[string]quota.Saved{}
		exact, lost := map[string]float64{}, map[string]float64{}
		heard := map[string]cluster.Spending{}
		running := map[string]quota.Charge{}
		ids := rapid.SampledFrom([]string{"a1", "a2", "b1", "b2"})
		listen := func() {
			for ns, s := range m.Reported() {
				if s.Spent < heard[ns].Spent || s.Lent < heard[ns].Lent {
					t.Fatalf("%s told %+v after %+v", ns, s, heard[ns])
				}
				if s.Spent > 0 && s.Spent > journal[ns].Spent {
					t.Fatalf("%s told %+v, and the journal has %+v", ns, s, journal[ns])
				}
				heard[ns] = s
			}
		}
		pass := func(d time.Duration) {
			now = now.Add(d)
			if now.After(top) {
				for _, c := range running {
					if !c.Lent {
						exact[c.Namespace] += c.Rate * now.Sub(top).Hours()
					}
				}
				top = now
			}
		}
		least := rapid.SampledFrom([]int{0, -20}).Draw(t, "least") // below 0: the clock goes back at times
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			pass(time.Duration(rapid.IntRange(least, 100).Draw(t, "ms")) * 100 * time.Millisecond)
			id := ids.Draw(t, "id")
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				c := quota.Charge{Namespace: id[:1], Rate: rapid.Float64Range(0, 50).Draw(t, "rate"),
					Lent: rapid.Bool().Draw(t, "lent"), Used: cluster.Resources{CPU: 100}}
				m.Put(now, id, c)
				running[id] = c
			case 2:
				m.Put(now, id, quota.Charge{})
				delete(running, id)
			case 3:
				m.Budget(now, id[:1], &quota.Budget{PerHour: 5, Burst: 5})
			case 4:
				for ns, s := range m.Write(now) {
					journal[ns] = s
				}
			case 5: // a crash: what survives runs on
				for ns := range exact {
					before := m.Now(now, ns).Spent
					lost[ns] += before - journal[ns].Spent
				}
				m = quota.NewMeter()
				for ns, s := range journal {
					m.Restore(ns, s)
				}
				pass(time.Duration(rapid.IntRange(0, 100).Draw(t, "away")) * time.Second)
				m.Begin(now)
				for _, id := range []string{"a1", "a2", "b1", "b2"} {
					if c, ok := running[id]; ok {
						m.Resume(now, id, c, epoch)
					}
				}
			}
			listen()
		}
		for ns, want := range exact {
			got := m.Now(top, ns).Spent
			if least == 0 && got < want-lost[ns]-1e-6 {
				t.Fatalf("%s has spent %v, was charged %v, and crashes lost %v at most", ns, want, got, lost[ns])
			}
		}
	})
}

// TestSpendingInAnyWindowIsBounded: whoever only starts what Afford lets start, and is never overdrawn, spends in any time T at most the
// burst and what the rate gives in T.
func TestSpendingInAnyWindowIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := quota.Budget{PerHour: 10, Burst: rapid.Float64Range(2, 100).Draw(t, "burst")}
		m, now := quota.NewMeter(), epoch
		m.Budget(now, "a", &b)
		type point struct{ at, spent float64 }
		trail := []point{{0, 0}}
		n := 0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			a := quota.Of(b, []cluster.Spending{m.Now(now, "a")}, now)
			if rate := rapid.Float64Range(1, 100).Draw(t, "rate"); a.Afford("a", rate).Enough() {
				n++
				m.Put(now, string(rune('a'+n)), quota.Charge{Namespace: "a", Rate: rate})
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 1200).Draw(t, "s")) * time.Second)
			if a := quota.Of(b, []cluster.Spending{m.Now(now, "a")}, now); a.Balance() < 0 {
				return // overdrawn: what ran too long is Shift's business
			}
			trail = append(trail, point{now.Sub(epoch).Hours(), m.Now(now, "a").Spent})
			if rapid.Bool().Draw(t, "stop") {
				for i := range n {
					m.Put(now, string(rune('a'+i+1)), quota.Charge{})
				}
			}
		}
		for i, p := range trail {
			for _, q := range trail[i:] {
				if q.spent-p.spent > b.Burst+b.PerHour*(q.at-p.at)+1e-6 {
					t.Fatalf("%v in %v hours, with %+v", q.spent-p.spent, q.at-p.at, b)
				}
			}
		}
	})
}
