// Package gossiptest has knobs for tests of clusters.
package gossiptest

import (
	"time"

	"github.com/soukhq/souk/mesh/gossip"
)

// Fast returns knobs for tests on loopback: deaths, partitions and losses are noticed in about a second. A member on a
// busy host that does not run for half a second does not yet count as dead.
func Fast() gossip.Knobs {
	k := gossip.LAN()
	k.Probe, k.ProbeTimeout, k.Suspicion, k.SuspicionMax = 200*time.Millisecond, 150*time.Millisecond, 4, 4
	k.Reprobe, k.Gossip, k.PushPull = 50*time.Millisecond, 20*time.Millisecond, 2*time.Second
	k.Sync, k.Settle, k.Flush = time.Second, 20*time.Millisecond, time.Millisecond
	k.Reconnect, k.Save, k.StuckAfter = 200*time.Millisecond, 50*time.Millisecond, time.Second
	return k
}
