package wake_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/soukhq/souk/routing"
	"github.com/soukhq/souk/sim/wake"
)

// shape draws a load: bursts, waves and trickles, at one entry or at all, that end before a third of the run is over.
func shape(rng *rand.Rand) wake.Config {
	ms := func(lo, hi int) time.Duration { return time.Duration(lo+rng.IntN(hi-lo+1)) * time.Millisecond }
	c := wake.Config{
		Entries: 1 + rng.IntN(4), Workers: 1 + rng.IntN(4), Machines: 1 + rng.IntN(12), Regions: 1 + rng.IntN(2),
		Hop:   [2]time.Duration{ms(0, 2), ms(3, 80)},
		News:  [2]time.Duration{ms(0, 5), ms(10, 1500)},
		Start: [2]time.Duration{ms(1, 10), ms(20, 2000)},
		Stop:  [2]time.Duration{ms(1, 5), ms(10, 3000)},
		End:   4 * time.Minute,
	}
	c.Policy = routing.Policy{Requests: true, Autostart: true, Autostop: routing.IsStopped, IdleAfter: ms(1000, 20000)}
	if rng.IntN(3) > 0 {
		c.Policy.Soft = 1 + rng.IntN(10)
		if rng.IntN(2) > 0 {
			c.Policy.Hard = c.Policy.Soft + rng.IntN(20)
		}
	}
	c.Policy.Min = rng.IntN(3) * rng.IntN(2)
	if rng.IntN(4) == 0 {
		c.Policy.Max = 1 + rng.IntN(c.Machines)
	}
	for range 1 + rng.IntN(4) {
		begin, n, entry := ms(0, 60000), 1+rng.IntN(200), rng.IntN(c.Entries)
		spread := [3]time.Duration{0, ms(1, 2000), ms(1000, 60000)}[rng.IntN(3)]
		for range n {
			a := wake.Arrival{At: begin, Entry: entry, Takes: ms(1, 1+rng.IntN(300))}
			if spread > 0 {
				a.At += time.Duration(rng.Int64N(int64(spread)))
			}
			if rng.IntN(4) == 0 {
				a.Entry = rng.IntN(c.Entries)
			}
			c.Arrivals = append(c.Arrivals, a)
		}
	}
	return c
}

// TestAllIsAnsweredAndAllRests draws 1,000 loads: no request fails, and when they have ended, all machines but those
// that are to stay up are stopped within the stated time.
func TestAllIsAnsweredAndAllRests(t *testing.T) {
	for seed := range uint64(1000) {
		c := shape(rand.New(rand.NewPCG(seed, 7)))
		r := wake.Run(c, seed)
		if len(r.Broken) > 0 || r.Answered != len(c.Arrivals) || r.Waiting > 0 || len(r.Refused) > 0 {
			t.Fatalf("seed %d: %d of %d answered, %d wait, refused %v, broken %v\n%+v", seed, r.Answered,
				len(c.Arrivals), r.Waiting, r.Refused, r.Broken, c.Policy)
		}
		if want := min(c.Policy.Min, r.Peak); r.Up != want {
			t.Errorf("seed %d: %d machines are up in the end, want %d (peak %d)\n%+v", seed, r.Up, want, r.Peak,
				c.Policy)
		}
		// It is looked once a second, and others are heard of a while later.
		latest := r.LastEnd + c.Policy.IdleAfter + 2*time.Second + 2*c.News[1] + c.Stop[1] + c.Start[1]
		if r.Peak > c.Policy.Min && (r.AllAsleep == 0 || r.AllAsleep > latest) {
			t.Errorf("seed %d: all rest at %v, want %v at the latest (last request %v)", seed, r.AllAsleep, latest,
				r.LastEnd)
		}
	}
}

// TestABurstWakesOnce: however many ask for machines that sleep, one is woken where there is no soft limit.
func TestABurstWakesOnce(t *testing.T) {
	c := wake.Config{Entries: 1, Workers: 3, Machines: 6, Regions: 1, End: time.Minute,
		Hop:    [2]time.Duration{time.Millisecond, 2 * time.Millisecond},
		News:   [2]time.Duration{0, 100 * time.Millisecond},
		Start:  [2]time.Duration{50 * time.Millisecond, 60 * time.Millisecond},
		Policy: routing.Policy{Autostart: true, IdleAfter: time.Hour}}
	for range 1000 {
		c.Arrivals = append(c.Arrivals, wake.Arrival{Takes: 10 * time.Millisecond})
	}
	if r := wake.Run(c, 1); r.Wakes != 1 || r.Answered != 1000 {
		t.Errorf("%d wakes, %d answered", r.Wakes, r.Answered)
	}
	c.Policy.Soft = 200 // and as many as it takes where there is one
	if r := wake.Run(c, 1); r.Wakes < 5 || r.Wakes > 6 || r.Answered != 1000 {
		t.Errorf("with a soft limit of 200: %d wakes, %d answered", r.Wakes, r.Answered)
	}
}
