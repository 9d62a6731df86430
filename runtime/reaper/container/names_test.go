package container

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// TestResolverFitForContainersIsChosen: of the host's own resolver that counts which holds for its containers, too.
func TestResolverFitForContainersIsChosen(t *testing.T) {
	servers, search, options := resolverOf([]byte("# made\nnameserver 127.0.0.53\nnameserver 10.0.0.2\n" +
		"nameserver fe80::1%eth0\nnameserver 2001:db8::53\ndomain old.example\nsearch corp.example lab.example .\n" +
		"options edns0 ndots:2 trust-ad\nnameserver\n"))
	if d := cmp.Diff([][]string{{"10.0.0.2", "2001:db8::53"}, {"corp.example", "lab.example"}, {"ndots:2"}},
		[][]string{servers, search, options}); d != "" {
		t.Error(d)
	}
}

// TestNameserversFollowTheNetworkRights: a container has the cluster's server alone, whatever servers the host has; one that may reach some
// networks alone has that which knows the cluster's names alone, and those of the host's that lie there.
func TestNameserversFollowTheNetworkRights(t *testing.T) {
	is := func(want string) func(string) bool { return func(s string) bool { return s == want } }
	at := netip.MustParseAddrPort("127.0.0.1:53")
	for name, c := range map[string]struct {
		n    netplan.Network
		want func(line string) bool
	}{
		"open":   {netplan.Network{DNS: &at, Narrow: &at}, is("169.254.1.1")},
		"closed": {netplan.Network{DNS: &at, Narrow: &at, Closed: true}, is("169.254.1.2")},
		"closed but for everything": {netplan.Network{DNS: &at, Narrow: &at, Closed: true,
			Egress: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}},
			func(s string) bool { return s != "169.254.1.1" }},
		"without the cluster's": {netplan.Network{}, func(s string) bool {
			return !strings.HasPrefix(s, "169.254.1.")
		}},
	} {
		text, err := nameserverLines(&c.n)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if server, is := strings.CutPrefix(line, "nameserver "); is && !c.want(strings.TrimSpace(server)) {
				t.Errorf("%s: %q", name, text)
			}
		}
	}
}
