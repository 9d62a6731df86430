package wake

import (
	"math/rand/v2"
	"time"

	"github.com/soukhq/souk/core/routing"
)

// Draw draws a load of at most two minutes: bursts, waves and trickles, at one entry or at all. The run continues for
// two more minutes, in which all machines can rest.
func Draw(rng *rand.Rand) Config {
	ms := func(lo, hi int) time.Duration { return time.Duration(lo+rng.IntN(hi-lo+1)) * time.Millisecond }
	c := Config{
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
			a := Arrival{At: begin, Entry: entry, Takes: ms(1, 1+rng.IntN(300))}
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
