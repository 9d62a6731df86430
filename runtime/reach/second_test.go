package reach

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestConcurrentAddressLookupsDoNotRace: checks and requests of a machine that has just started learn its IPv4 address side by side. The
// race detector sees whether they share it with a lock.
func TestConcurrentAddressLookupsDoNotRace(t *testing.T) {
	var d Dialer
	m := &machine.Machine{ID: "a", Events: []machine.Event{{ID: "one", Type: "start"}}}
	own, v4 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("198.18.0.1")
	d.start(m).v4 = v4
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			d.mu.Lock()
			d.start(m).v4 = v4
			d.mu.Unlock()
			if got, has := d.second(m, own); got != v4 || !has {
				t.Errorf("%v, %v", got, has)
			}
		})
	}
	all.Wait()
}
