package cluster_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
)

func TestIdempotencyKeyMarkRoundTrips(t *testing.T) {
	at := time.Unix(1764100000, 0)
	m := cluster.MarkKey("shop", "order 7", "request", at)
	if m.Key() != cluster.HashKey("shop", "order 7") || !m.Of("request") || m.Of("another") || !m.Bound().Equal(at) {
		t.Errorf("%s says key %s, bound %v", m, m.Key(), m.Bound())
	}
	for _, other := range []string{cluster.HashKey("shop2", "order 7"), cluster.HashKey("shop", "order 8"),
		cluster.HashKey("sho", "p\x00order 7")} {
		if other == m.Key() {
			t.Errorf("two keys have the hash %s", other)
		}
	}
	// A malformed mark, as a peer may send it, has no key.
	for _, bad := range []cluster.KeyMark{"", "x", m[:31], m + "0", m[:24] + "zzzzzzzz"} {
		if !bad.Bound().IsZero() || len(bad) != len(m) && (bad.Key() != "" || bad.Of("request")) {
			t.Errorf("%q says key %q, bound %v", bad, bad.Key(), bad.Bound())
		}
	}
}
