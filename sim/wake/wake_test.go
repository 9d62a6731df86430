package wake_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/sim/wake"
)

// TestAllRequestsAreAnsweredAndIdleMachinesStop draws 1,000 loads: no request fails, and when they have ended, all machines but those
// that are to stay up are stopped within the stated time.
func TestAllRequestsAreAnsweredAndIdleMachinesStop(t *testing.T) {
	for seed := range uint64(1000) {
		c := wake.Draw(rand.New(rand.NewPCG(seed, 7)))
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

// TestBurstWakesOnce: however many ask for machines that sleep, one is woken where there is no soft limit.
func TestBurstWakesOnce(t *testing.T) {
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
