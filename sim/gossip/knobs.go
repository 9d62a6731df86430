package gossip

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/soukhq/souk/sim/ticks"
)

// Knobs are the carrier's times and amounts; the live package gossip has the same, and callers convert them.
type Knobs struct {
	Probe, ProbeTimeout, Gossip, Settle, Flush, Sync, Patience ticks.Time

	Indirect, Suspicion, SuspicionMax, Retransmit, Awareness int
	Push, Fanout                                             int
}

// retransmitLimit computes memberlist's retransmitLimit.
func retransmitLimit(mult, n int) int { return mult * int(math.Ceil(math.Log10(float64(n+1)))) }

// suspicionTime computes memberlist's suspicionTimeout.
func suspicionTime(mult, n int, probe ticks.Time) ticks.Time {
	scale := max(1, math.Log10(max(1, float64(n))))
	return ticks.Time(mult) * ticks.Time(scale*1000) * probe / 1000
}

// Times is a distribution of durations, as sorted samples.
type Times []ticks.Time

func sortedTimes(ts []ticks.Time) Times {
	slices.Sort(ts)
	return ts
}

// Quantile returns the q-quantile by nearest rank, in microseconds; 0 when there are none.
func (t Times) Quantile(q float64) ticks.Time {
	if len(t) == 0 {
		return 0
	}
	return t[min(max(int(math.Ceil(q*float64(len(t))))-1, 0), len(t)-1)]
}

// MS returns the q-quantile in milliseconds.
func (t Times) MS(q float64) float64 { return float64(t.Quantile(q)) / float64(ticks.Millisecond) }

// Delays is a distribution of how long a worker's record takes to reach another member. Simulations with stale views
// use one: a record written at t is in a view from t plus a delay on.
type Delays interface {
	Delay(rng *rand.Rand) ticks.Time
}

// Delay returns a random sample.
func (t Times) Delay(rng *rand.Rand) ticks.Time {
	if len(t) == 0 {
		return 0
	}
	return t[rng.IntN(len(t))]
}

// remainingSuspicion is Lifeguard's timeout after n of k confirmations, as in memberlist's remainingSuspicionTime.
func remainingSuspicion(n, k int, least, most ticks.Time) ticks.Time {
	frac := math.Log(float64(n)+1) / math.Log(float64(k)+1)
	return max(least, most-ticks.Time(frac*float64(most-least)))
}

// Sorted sorts samples of several runs.
func (t Times) Sorted() Times { return sortedTimes(t) }

// entryBytes is the bytes of a member in memberlist's full exchange, as measured with the live package's meta.
const entryBytes = 110

// MembershipBytes computes what memberlist's own full exchanges cost a member, in bytes sent and received a second: it
// asks one member in each interval and is asked by one, and both send all members. The interval grows with the cluster
// as memberlist's pushPullScale has it.
func MembershipBytes(members int, interval ticks.Time) float64 {
	scale := 1.0
	if members > 32 {
		scale = math.Ceil(math.Log2(float64(members))-5) + 1
	}
	return 4 * float64(members) * entryBytes / (scale * ticks.Seconds(interval))
}
