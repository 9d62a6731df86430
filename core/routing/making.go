package routing

import (
	"time"

	"github.com/soukhq/souk/internal/backoff"
)

// believeMade is within how long the fleet tells of a machine that was made.
const believeMade = 2 * time.Second

// making is the making of another machine of a service, one at a time: for requests that wait (Pool), or ahead of them
// (Spares).
type making struct {
	under    bool
	until    time.Time // for how long it is waited that the fleet tells of one that was made
	at       time.Time // before, none is made, as that has failed
	failures int       // in a row
	cause    error     // of the last of them
}

// isUnderWay reports whether a machine is being made, or was made a moment ago.
func (k *making) isUnderWay(now time.Time) bool { return k.under || now.Before(k.until) }

// end takes the end of the making of a machine. listed says that the fleet tells of it already. Where it failed, the next
// one is made after a pause of at least so long.
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
