// Package backoff has a pause that doubles with each try up to a bound. For jitter, draw a random pause below it.
package backoff

import "time"

// Doubling is a pause of Base before the first repeat, and of twice as much before each one after it, at most Most.
type Doubling struct{ Base, Most time.Duration }

// After returns the pause after so many tries; the first is after 0.
func (d Doubling) After(tries int) time.Duration {
	wait := min(d.Base, d.Most)
	for ; tries > 0 && wait < d.Most; tries-- {
		wait = min(2*wait, d.Most)
	}
	return wait
}
