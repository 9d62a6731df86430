package hostnet

import (
	"net/netip"
	"slices"
	"testing"
)

// TestAppNumbersAreUnique: two apps never have one number, also where their addresses are chosen for that, and none has 0.
func TestAppNumbersAreUnique(t *testing.T) {
	n := numbers{}
	app := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
	seen := map[string]string{}
	for _, s := range []string{"fd00:0:0:1:2:3::/96", "fd00:0:0:9:2:3::/96", "fd00::7:0:0:0:0/96",
		"fd00:0:0:1:ffff:ffff::/96", "fd00:0:0:2:ffff:ffff::/96"} {
		b := n.numberOf(app(s))
		if other, taken := seen[string(b)]; taken || slices.Equal(b, nativeUint32(0)) {
			t.Errorf("%s has the number of %q", s, other)
		}
		seen[string(b)] = s
		if !slices.Equal(b, n.numberOf(app(s))) {
			t.Errorf("%s has another number the second time", s)
		}
	}
}
