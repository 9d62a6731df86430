package quota_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
)

// host is a worker of the property test: its meter, what it has heard of others, and its journal.
type host struct {
	meter   *quota.Meter
	journal map[string]quota.Saved
	heard   map[int]heard
	runs    map[string]quota.Charge
	since   map[string]time.Time // when each started
	written time.Time
}

type heard struct {
	s  cluster.Spending
	at time.Time // when it was told
}

// TestQuotaOvershootIsBounded: workers that hear of each other late, lose messages and crash start all that each of them
// thinks can be paid for, and lend as soon as they think it cannot. What is owed never exceeds the burst by more than
// what all spend at most in the time that news takes, the time between two looks, and the step of the test.
func TestQuotaOvershootIsBounded(t *testing.T) {
	overdrawn, lent, crashes := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		b := quota.Budget{PerHour: rapid.Float64Range(5, 50).Draw(t, "per hour"), Lend: true}
		b.Burst = b.PerHour * rapid.Float64Range(quota.Ahead, 1).Draw(t, "burst")
		delay := time.Duration(rapid.IntRange(0, 40).Draw(t, "delay")) * time.Second
		const step = 15 * time.Second
		n := rapid.IntRange(1, 5).Draw(t, "workers")
		hosts := make([]*host, n)
		for i := range hosts {
			hosts[i] = &host{meter: quota.NewMeter(), journal: map[string]quota.Saved{}, heard: map[int]heard{},
				runs: map[string]quota.Charge{}, since: map[string]time.Time{}}
			hosts[i].meter.Budget(epoch, "ns", &b)
		}
		now, peak, id, silent := epoch, 0.0, 0, map[int]time.Time{}
		account := func(i int) quota.Account {
			told := []cluster.Spending{hosts[i].meter.Now(now, "ns")}
			for _, h := range hosts[i].heard {
				told = append(told, h.s)
			}
			return quota.Of(b, told, now)
		}
		stale := time.Duration(0)
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			now = now.Add(step)
			for i, h := range hosts {
				if now.Sub(h.written) >= quota.Every { // as a worker does when its counters are due
					for ns, s := range h.meter.Write(now) {
						h.journal[ns] = s
					}
					h.written = now
					var mine []quota.Payer
					for m, c := range h.runs {
						mine = append(mine, quota.Payer{ID: m, Rate: c.Rate, Lent: c.Lent})
					}
					lend, pay := quota.Shift(account(i), mine)
					lent += len(lend)
					for k, list := range [][]string{lend, pay} {
						for _, m := range list {
							c := h.runs[m]
							c.Lent = k == 0
							h.runs[m] = c
							h.meter.Put(now, m, c)
						}
					}
				}
				for j, o := range hosts { // news of o, unless it is lost, at most delay old
					if i == j {
						continue
					}
					if rapid.IntRange(0, 2).Draw(t, "lost") == 0 && now.Sub(silent[i*8+j]) < delay {
						continue
					}
					silent[i*8+j] = now
					h.heard[j] = heard{o.meter.Reported()["ns"], now}
				}
			}
			for _, last := range silent {
				stale = max(stale, now.Sub(last))
			}
			i := rapid.IntRange(0, n-1).Draw(t, "host")
			h := hosts[i]
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0, 1, 2, 3:
				rate := rapid.Float64Range(0.1, 3).Draw(t, "rate") * b.PerHour
				if account(i).Afford("ns", rate).Enough() {
					id++
					m := fmt.Sprint(id)
					h.runs[m] = quota.Charge{Namespace: "ns", Rate: rate}
					h.since[m] = now
					h.meter.Put(now, m, h.runs[m])
				}
			case 4:
				for m := range h.runs {
					delete(h.runs, m)
					h.meter.Put(now, m, quota.Charge{})
					break
				}
			case 5:
				crashes++
				fresh := quota.NewMeter()
				for ns, s := range h.journal {
					fresh.Restore(ns, s)
				}
				fresh.Begin(now)
				fresh.Budget(now, "ns", &b)
				for m, c := range h.runs {
					fresh.Resume(now, m, c, h.since[m])
				}
				h.meter = fresh
			}
			owed, rate := 0.0, 0.0
			for _, h := range hosts {
				s := h.meter.Now(now, "ns")
				owed, rate = owed+s.Owed, rate+s.Rate
			}
			peak = max(peak, rate)
			bound := b.Burst + peak*(stale+2*quota.Every+2*step).Hours()
			if owed > b.Burst {
				overdrawn++
			}
			if owed > bound+1e-6 {
				t.Fatalf("owes %v, the burst is %v and the bound %v: spends %v/h at most, news are %v old", owed,
					b.Burst, bound, peak, stale)
			}
		}
	})
	if overdrawn == 0 || lent == 0 || crashes == 0 {
		t.Fatalf("overdrawn %d times, lent %d, crashed %d", overdrawn, lent, crashes)
	}
}

// TestShiftLendsLowestRanksFirstWhenOverdrawn: who is overdrawn keeps at most the budget's rate, all workers together, and lends to the lowest rank
// first.
func TestShiftLendsLowestRanksFirstWhenOverdrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := quota.Budget{PerHour: 10, Burst: 10}
		n := rapid.IntRange(1, 4).Draw(t, "workers")
		all, total := make([][]quota.Payer, n), 0.0
		for i := range all {
			for k := range rapid.IntRange(0, 6).Draw(t, "machines") {
				p := quota.Payer{ID: fmt.Sprint(i, k), Rate: rapid.Float64Range(0.1, 8).Draw(t, "rate"),
					Rank: rapid.IntRange(0, 2).Draw(t, "rank") * 1000,
					Lent: rapid.IntRange(0, 3).Draw(t, "lent") == 0}
				if !p.Lent {
					total += p.Rate
				}
				all[i] = append(all[i], p)
			}
		}
		a := quota.Account{Budget: b, Owed: 11, Rate: total}
		left := 0.0
		for _, mine := range all {
			lend, pay := quota.Shift(a, mine)
			if len(pay) > 0 {
				t.Fatal("nothing is paid for again by who has overdrawn")
			}
			gone := map[string]bool{}
			for _, id := range lend {
				gone[id] = true
			}
			for _, p := range mine {
				if !p.Lent && !gone[p.ID] {
					left += p.Rate
				}
				for _, q := range mine { // of two alike, the one of lower rank goes
					if p.Rank < q.Rank && !p.Lent && !q.Lent && p.Rate >= q.Rate && !gone[p.ID] && gone[q.ID] {
						t.Fatalf("%+v is lent to, %+v is not", q, p)
					}
				}
			}
		}
		if left > b.PerHour*(1+1e-6) && left >= total {
			t.Fatalf("%v an hour are kept of %v", left, total)
		}
	})
}
