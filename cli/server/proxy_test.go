package server

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestTrustedProxyFlagsParseNetworks: each flag for proxies in front takes their networks.
func TestTrustedProxyFlagsParseNetworks(t *testing.T) {
	plan := func(args ...string) (p proxyDoors, err error) {
		var o proxyFlags
		f := pflag.NewFlagSet("souk", pflag.ContinueOnError)
		o.add(f)
		if err := f.Parse(append(args, "--http", "off")); err != nil {
			t.Fatal(err)
		}
		return o.plan(func(_, addr string) (net.Listener, error) { return net.Listen("tcp", addr) })
	}
	p, err := plan("--trusted-proxy", "10.0.0.0/8", "--proxy-protocol-from", "192.0.2.0/24", "--proxy-protocol-from",
		"2001:db8::/32")
	if err != nil || len(p.how.Trusted) != 1 || len(p.how.ProxyProtocol) != 2 ||
		p.how.ProxyProtocol[1] != netip.MustParsePrefix("2001:db8::/32") {
		t.Errorf("%+v, %v", p.how, err)
	}
	for _, flag := range []string{"--trusted-proxy", "--proxy-protocol-from"} {
		if _, err := plan(flag, "10.0.0.1"); err == nil || !strings.Contains(err.Error(), flag+" is a network") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
