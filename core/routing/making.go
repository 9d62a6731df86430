package routing

import (
	"time"

	"github.com/soukhq/souk/internal/backoff"
)

// believeMade is how long a new machine counts before the fleet reports it.
const believeMade = 2 * time.Second

// making is the creation of another machine of a service, one at a time: for waiting requests (Pool), or in advance
// (Spares).
type making struct {
	under    bool
	until    time.Time // until then a new machine counts, although the fleet has not reported it
	at       time.Time // no creation before then, after a failure
	failures int       // in a row
	cause    error     // of the last failure
}

// isUnderWay reports whether a machine is being made, or was made recently.
func (k *making) isUnderWay(now time.Time) bool { return k.under || now.Before(k.until) }

// end records the end of a creation. listed: the fleet reports the machine already. After a failure the next creation
// waits for at least least.
func (k *making) end(now time.Time, listed bool, err error, again backoff.Doubling, least time.Duration) {
	k.under, k.cause = false, err
	switch {
	case err != nil:
		k.at = now.Add(max(least, again.After(k.failures)))
		k.failures++
	case listed:
		k.failures = 0
	default:
		k.failures, k.until = 0, now.Add(believeMade)
	}
}
