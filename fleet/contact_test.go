package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/fleet"
)

// TestLostContactIsTimedFromTheFirstFailure: an outage begins with the first call that fails, and ends with one that is answered, or when
// nobody has called for long.
func TestLostContactIsTimedFromTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c fleet.Contact
		passes := func(d time.Duration) { <-time.After(d) } // of the bubble's clock
		lost := func(want time.Duration) {
			t.Helper()
			since, lost := c.Lost("w1")
			if lost != (want >= 0) || lost && time.Since(since) != want {
				t.Errorf("lost %v, for %v, not %v", lost, time.Since(since), want)
			}
		}
		lost(-1)
		c.Called("w1", false)
		passes(30 * time.Second)
		c.Called("w1", false)
		lost(30 * time.Second)
		c.Called("w2", true)
		lost(30 * time.Second)
		c.Called("w1", true)
		lost(-1)
		c.Called("w1", false)
		passes(time.Hour)
		lost(-1)
		c.Called("w1", false)
		lost(0)
	})
}
