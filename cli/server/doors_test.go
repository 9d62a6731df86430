package server

import (
	"net"
	"slices"
	"testing"

	"github.com/soukhq/souk/runtime/hostnet"
)

// TestAdvertisedAddressesAreReachableFromOtherHosts: other hosts are told no address that leads nowhere from there, though it stands first: loopback, that of a
// link, and what an entry for this host's containers has.
func TestAdvertisedAddressesAreReachableFromOtherHosts(t *testing.T) {
	var addrs []net.Addr
	for _, cidr := range []string{"127.0.0.1/8", "::1/128", "fd73:6f75:6b00:1:5e38:6b33:b54a:63e/128", "fe80::1/64",
		"192.0.2.7/24", "fd12:3456::7/64"} {
		ip, n, err := net.ParseCIDR(cidr)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	if got, want := reachable(addrs), []string{"192.0.2.7", "fd12:3456::7"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if hostnet.IsEntryServer(hostnet.Entries6.Addr().Next()) {
		t.Error("an address of an app is taken for a server's")
	}
}
