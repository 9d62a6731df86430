package remote

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"

	"github.com/soukhq/souk/fault"
)

// reach classifies an address (public, private, loopback). A registry may not send souk to a more private address than
// its own.
type reach int

const (
	public reach = iota
	private
	loopback // and other addresses of this host
	never    // link-local and metadata services (which serve cloud hosts' credentials), unspecified, multicast
)

// metadata are the addresses of cloud metadata services that are not link-local.
var metadata = []netip.Prefix{ //nolint:gochecknoglobals // a constant
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::/32"),       // Google
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.0/24"),       // Oracle, and IANA's protocol assignments
	netip.MustParsePrefix("0.0.0.0/8"),          // "this host"
}

// shared is used like private addresses (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10") //nolint:gochecknoglobals // a constant

// embedding are IPv6 prefixes whose addresses contain an IPv4 address that a gateway, or the host, connects to.
var embedding = []struct { //nolint:gochecknoglobals // a constant
	of netip.Prefix
	at int // index of the first byte of the IPv4 address
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, {netip.MustParsePrefix("64:ff9b:1::/48"), 12},
	{netip.MustParsePrefix("::/96"), 12}, {netip.MustParsePrefix("2002::/16"), 2},
}

func reachOf(a netip.Addr) reach {
	a = a.WithZone("").Unmap()
	switch {
	case !a.IsValid(), a.IsUnspecified(), a.IsMulticast(), a.IsLinkLocalUnicast(), isWithin(metadata, a):
		return never
	case a.IsLoopback():
		return loopback
	}
	for _, e := range embedding {
		if raw := a.As16(); a.Is6() && e.of.Contains(a) {
			return reachOf(netip.AddrFrom4([4]byte(raw[e.at : e.at+4])))
		}
	}
	if a.IsPrivate() || shared.Contains(a) {
		return private
	}
	return public
}

func isWithin(all []netip.Prefix, a netip.Addr) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// limit is the most private reach that a registry may send souk to, besides its own address.
type limit struct {
	reach  reach
	itself netip.Addr // the registry's address, if it is not public
}

// maxLimits bounds the clients cached for addresses that registries name. All public registries share one client.
const maxLimits = 64

// limitOf returns the limit of a registry at an address. If the address is unknown, as behind a proxy, the registry
// counts as public.
func limitOf(a netip.Addr) limit {
	a = a.WithZone("").Unmap()
	if !a.IsValid() {
		return limit{}
	}
	of := limit{reach: min(reachOf(a), loopback)}
	if reachOf(a) == never {
		of.reach = public // a registry there may not name its neighbours
	}
	if of.reach != public || reachOf(a) == never || isOwn(a) {
		of.itself = a
	}
	return of
}

// canConnect reports whether souk may connect to an address that a registry named.
func (l limit) canConnect(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	near := reachOf(a)
	if near < loopback && isOwn(a) {
		near = loopback // this host, under any of its addresses
	}
	return near <= l.reach || a == l.itself
}

// isOwn reports whether an address is one of this host's.
func isOwn(a netip.Addr) bool {
	all, _ := net.InterfaceAddrs() // on an error the address is judged by its range alone
	for _, x := range all {
		if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// guard makes connections for a client. It checks the address that it connects to, so what a name resolves to at
// another time does not matter.
type guard struct {
	limit   *limit // nil: for the registry itself, which may be anywhere
	dialer  net.Dialer
	proxies sync.Map // HOST:PORT of proxies, which are not checked: the host's owner configures them
}

func (g *guard) dialGuarded(ctx context.Context, network, address string) (net.Conn, error) {
	d := g.dialer
	if _, is := g.proxies.Load(address); !is {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		_, err = netip.ParseAddr(host)
		literal := err == nil
		d.ControlContext = func(_ context.Context, _, to string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(to)
			if err != nil {
				return err
			}
			return g.checkAddress(at.Addr(), to, literal)
		}
	}
	return d.DialContext(ctx, network, address)
}

// checkAddress refuses a forbidden address. A registry may be anywhere, but its name may not resolve to a metadata
// service.
func (g *guard) checkAddress(a netip.Addr, to string, literal bool) error {
	if g.limit == nil && (literal || reachOf(a) != never) || g.limit != nil && g.limit.canConnect(a) {
		return nil
	}
	if g.limit == nil {
		return fault.New(fault.Denied, codeRegistryReach,
			"the registry's name resolves to %s, a link-local, cloud metadata or multicast address, which souk does "+
				"not ask", to)
	}
	return fault.New(fault.Denied, codeRegistryReach,
		"the registry redirects to %s, a more private address than its own, which souk does not follow", to)
}

// proxyFor returns the proxy from the environment. With a proxy, the proxy makes the connection, so only the host in
// the URL can be checked.
func (g *guard) proxyFor(r *http.Request) (*url.URL, error) {
	p, err := http.ProxyFromEnvironment(r)
	if p == nil || err != nil {
		return p, err
	}
	host := r.URL.Hostname()
	a, notLiteral := netip.ParseAddr(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		a, notLiteral = netip.IPv6Loopback(), nil
	}
	if notLiteral == nil {
		if err := g.checkAddress(a, r.URL.Host, true); err != nil {
			return nil, err
		}
	}
	g.proxies.Store(hostPort(p), true)
	return p, nil
}

// hostPort returns the address that the transport dials for a proxy.
func hostPort(p *url.URL) string {
	if p.Port() != "" {
		return p.Host
	}
	return net.JoinHostPort(p.Hostname(), map[string]string{"http": "80", "https": "443", "socks5": "1080",
		"socks5h": "1080"}[p.Scheme])
}
