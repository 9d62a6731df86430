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

// reach is from how far an address can be had: what a registry names must not be nearer to souk than the registry is.
type reach int

const (
	public reach = iota
	private
	loopback // and what else is this host
	never    // link-local and metadata services (where clouds keep their hosts' credentials), unspecified, multicast
)

// metadata are the addresses of clouds' metadata services that are not link-local.
var metadata = []netip.Prefix{ //nolint:gochecknoglobals // a constant
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::/32"),       // Google
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.0/24"),       // Oracle, and what IANA keeps for protocols
	netip.MustParsePrefix("0.0.0.0/8"),          // "this host"
}

// shared are private in all but name.
var shared = netip.MustParsePrefix("100.64.0.0/10") //nolint:gochecknoglobals // a constant

// embedding are prefixes of IPv6 whose last bits are an address of IPv4 that a gateway, or the host, connects to.
var embedding = []struct { //nolint:gochecknoglobals // a constant
	of netip.Prefix
	at int // the first of its four bytes
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

// limit is how near a registry may send souk: as near as it is itself, or to where it is itself.
type limit struct {
	reach  reach
	itself netip.Addr // where it is, if that is not public
}

// maxLimits bounds how many clients are kept for what registries name. All registries that are public share one.
const maxLimits = 64

// limitOf is the limit of a registry at an address. One whose address is not known, behind a proxy, is public.
func limitOf(a netip.Addr) limit {
	a = a.WithZone("").Unmap()
	if !a.IsValid() {
		return limit{}
	}
	of := limit{reach: min(reachOf(a), loopback)}
	if reachOf(a) == never {
		of.reach = public // its neighbours are what nobody may name
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
		near = loopback // it is this host, by whichever of its addresses
	}
	return near <= l.reach || a == l.itself
}

// isOwn reports whether an address is one of this host's.
func isOwn(a netip.Addr) bool {
	all, _ := net.InterfaceAddrs() // without them it is judged by its form
	for _, x := range all {
		if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// guard connects for a client. Addresses are judged as they are connected to, so what a name resolves to at another time
// does not matter.
type guard struct {
	limit   *limit // nil: for the registry itself, which may be anywhere
	dialer  net.Dialer
	proxies sync.Map // their HOST:PORT, which are judged by nobody: the host's owner names them
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

// checkAddress refuses an address. A registry itself may be anywhere, but its name may not resolve to a metadata
// service.
func (g *guard) checkAddress(a netip.Addr, to string, literal bool) error {
	if g.limit == nil && (literal || reachOf(a) != never) || g.limit != nil && g.limit.canConnect(a) {
		return nil
	}
	if g.limit == nil {
		return fault.New(fault.Denied, codeRegistryReach,
			"the registry's name resolves to %s, where no registry is but a link's or a cloud's own services; it was "+
				"not asked", to)
	}
	return fault.New(fault.Denied, codeRegistryReach,
		"the registry sent souk to %s, which is not as public as the registry itself; it was not asked", to)
}

// proxyFor is that of the environment. What is asked through one is connected to by the proxy, so the form of what a
// registry names is all there is to judge.
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

// hostPort is what the transport dials for a proxy.
func hostPort(p *url.URL) string {
	if p.Port() != "" {
		return p.Host
	}
	return net.JoinHostPort(p.Hostname(), map[string]string{"http": "80", "https": "443", "socks5": "1080",
		"socks5h": "1080"}[p.Scheme])
}
