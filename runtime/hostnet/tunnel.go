package hostnet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// TunnelPort is the UDP port of tunnels, on each host.
const TunnelPort = 4283

// Bounds of what is entered for others, whatever they say of themselves.
const (
	maxPeers  = 4096
	maxRemote = 65536 // machines of all of them
)

// Peer is another host with a tunnel.
type Peer struct {
	ID       string       // of its worker
	At       netip.Addr   // where its tunnel is, on the network between the hosts
	Key      wgtypes.Key  // public; zero where the way has none
	Machines []netip.Addr // that are there

	// Partial says that its worker may not have told all yet, or nothing at all: what was entered for it before stays.
	Partial bool
}

// TunnelOptions say what a tunnel is. Way, ID, At, Name and Network are needed.
type TunnelOptions struct {
	Way     netplan.Way
	ID      string     // of the own worker
	At      netip.Addr // of this host, as the others reach it
	Name    string     // what tells it from the tunnels of other souks on the host
	Network netplan.Network
	Helper  []string // becomes WireGuard in user space when its NAME and MTU are appended; package wgspace
	Log     string   // a file for what that has to say
	Build   string   // of this program: a helper of another is replaced
}

// Tunnel leads to the containers of other hosts. What it consists of, a device with routes and a table of rules, is the
// kernel's and goes on when this process ends; the next one finds it.
type Tunnel struct {
	o       TunnelOptions
	name    string // of the device, and of the table
	carrier carrier

	mu      sync.Mutex
	link    netlink.Link              // nil: it is to be looked for, or made
	have    map[netip.Addr]netip.Addr // gateways by machine, as the kernel has them; nil: to be read
	applied []Peer                    // nil: to be entered anew
	owners  map[wgtypes.Key]string    // ids of the peers that have these keys, and of the own worker
	let     []netip.Addr              // whom the rules let in; nil: they are to be laid
}

// carrier is how a tunnel's packets cross the network between the hosts.
type carrier interface {
	// open finds the device, or makes it, up and with its own settings.
	openDevice() (netlink.Link, error)
	// peers tells whom the device knows, by gateway. have is which machines are behind which gateway.
	knownPeers(l netlink.Link, have map[netip.Addr]netip.Addr) (map[netip.Addr]Peer, error)
	// enter has the device know these peers, and no others.
	setPeers(l netlink.Link, peers []Peer) error
	// public is the key that others must know; zero: there is none.
	publicKey() wgtypes.Key
	// how tells what it is.
	describeCarrier() string
}

// OpenTunnel looks for the tunnel that an earlier process has made. It is made with the first Apply.
func OpenTunnel(o TunnelOptions) (*Tunnel, error) {
	t := &Tunnel{o: o, name: tunnelName(o.Name)}
	if !o.At.IsGlobalUnicast() {
		return nil, fault.New(fault.Invalid, CodeNetworkBetween,
			"the tunnel between workers needs an IP address at which the other hosts reach this one, not %s: give "+
				"souk agent --host", o.At)
	}
	switch o.Way {
	case netplan.VXLAN:
		t.carrier = vxlan{t}
	case netplan.WireGuard:
		w := &wireguard{t: t}
		if err := w.loadKey(); err != nil {
			return nil, err
		}
		t.carrier = w
	default:
		return nil, fault.New(fault.Invalid, CodeNetworkBetween, "there is no way %q between workers", o.Way)
	}
	return t, nil
}

func tunnelName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "souk-" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:6]))
}

// Public returns the key that the others must know; zero: there is none.
func (t *Tunnel) Public() wgtypes.Key { return t.carrier.publicKey() }

// How tells what carries the packets, once Apply has made it.
func (t *Tunnel) How() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.carrier.describeCarrier()
}

// gatewayOf is what stands for a host in routes: nobody has it as an address.
func gatewayOf(id string) netip.Addr {
	sum := sha256.Sum256([]byte("souk gateway\x00" + id))
	a := [16]byte{0: 0xfe, 1: 0x80}
	copy(a[8:], sum[:8])
	return netip.AddrFrom16(a)
}

// tunnelMetric is larger than that of a container's own link: what is here is never sought elsewhere.
const tunnelMetric = 4096

// Apply has the tunnel lead to the machines of these peers, and to nothing else. It is for one caller at a time to
// repeat: with anew, all that was entered before is looked at, as others may have changed it.
func (t *Tunnel) Apply(peers []Peer, anew bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if anew || t.applied == nil {
		t.forgetState()
	} else if slices.EqualFunc(peers, t.applied, samePeer) {
		return nil
	}
	err := t.applyPeers(peers)
	if err != nil {
		t.forgetState()
		if fault.CodeOf(err) == "" {
			err = fault.Wrap(err, fault.Unavailable, CodeNetworkBetween,
				"the tunnel to the containers of other workers cannot be had now; it is tried again")
		}
	}
	return err
}

// Watch calls removed when somebody has removed some of the tunnel's rules, or it may have missed that, until ctx ends:
// Apply is to look at all then.
func (t *Tunnel) Watch(ctx context.Context, removed func()) { Watch(ctx, t.name, removed) }

// forgetState has all be looked at again.
func (t *Tunnel) forgetState() { t.link, t.have, t.applied, t.let = nil, nil, nil, nil }

func (t *Tunnel) applyPeers(peers []Peer) (err error) {
	if t.link == nil {
		if t.link, err = t.carrier.openDevice(); err != nil {
			return err
		}
	}
	if t.have == nil {
		if t.have, err = t.readRoutes(); err != nil {
			return err
		}
	}
	whole := peers
	if slices.ContainsFunc(peers, func(p Peer) bool { return p.Partial }) {
		if whole, err = t.addRemembered(peers); err != nil {
			return err
		}
	}
	whole = t.enterablePeers(whole)
	if err := t.layGuardRules(whole); err != nil {
		return err
	}
	if err := t.carrier.setPeers(t.link, whole); err != nil {
		return err
	}
	if err := t.setRoutes(whole); err != nil {
		return err
	}
	t.applied = slices.Clone(peers)
	return nil
}

func samePeer(a, b Peer) bool {
	return a.ID == b.ID && a.At == b.At && a.Key == b.Key && a.Partial == b.Partial &&
		slices.Equal(a.Machines, b.Machines)
}

// addRemembered adds, for those of which not all is known, what the kernel has from before and nobody has told
// otherwise.
func (t *Tunnel) addRemembered(peers []Peer) ([]Peer, error) {
	before, err := t.carrier.knownPeers(t.link, t.have)
	if err != nil {
		return nil, err
	}
	said := map[netip.Addr]bool{}
	for _, p := range peers {
		for _, a := range p.Machines {
			said[a] = true
		}
	}
	out := slices.Clone(peers)
	for i, p := range out {
		if !p.Partial {
			continue
		}
		if was := before[gatewayOf(p.ID)]; !p.At.IsValid() {
			out[i].At, out[i].Key = was.At, was.Key
		}
		for a, g := range t.have {
			if g == gatewayOf(p.ID) && !said[a] {
				out[i].Machines = append(slices.Clip(out[i].Machines), a)
			}
		}
	}
	return out, nil
}

// enterablePeers leaves out what cannot be entered: peers that have no address, the second of two with one key, a
// machine that another peer has, what is beyond the bounds. Whoever has a key already keeps it from those who say that
// it is theirs.
func (t *Tunnel) enterablePeers(peers []Peer) (out []Peer) {
	owners := map[wgtypes.Key]string{t.Public(): t.o.ID}
	for _, p := range peers {
		if t.owners[p.Key] == p.ID {
			owners[p.Key] = p.ID
		}
	}
	for _, p := range peers {
		if owners[p.Key] == "" {
			owners[p.Key] = p.ID
		}
	}
	t.owners = owners
	seen := map[netip.Addr]bool{}
	keyed := t.Public() != wgtypes.Key{}
	for _, p := range peers {
		alien := keyed && (p.Key == wgtypes.Key{} || owners[p.Key] != p.ID)
		if !t.leadsTo(p.At) || alien || len(out) == maxPeers {
			continue
		}
		var own []netip.Addr
		for _, a := range p.Machines {
			if !seen[a] && t.o.Network.Cluster.Contains(a) && len(seen) < maxRemote {
				seen[a] = true
				own = append(own, a)
			}
		}
		p.Machines = own
		out = append(out, p)
	}
	return out
}

// leadsTo reports whether the end of a tunnel can be at an address: a host's, and not this one's. A vxlan device sends
// by IPv4 or by IPv6, and never by both.
func (t *Tunnel) leadsTo(a netip.Addr) bool {
	return a.IsGlobalUnicast() && a != t.o.At && (t.o.Way != netplan.VXLAN || a.Is4() == t.o.At.Is4())
}

// readRoutes reads which machines are behind which gateway.
func (t *Tunnel) readRoutes() (map[netip.Addr]netip.Addr, error) {
	rs, err := listRoutes(netlink.FAMILY_V6, &netlink.Route{LinkIndex: t.link.Attrs().Index},
		netlink.RT_FILTER_OIF)
	if err != nil {
		return nil, err
	}
	have := map[netip.Addr]netip.Addr{}
	for _, r := range rs {
		if r.Dst == nil || r.Priority != tunnelMetric {
			continue // the kernel's own
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		g, _ := netip.AddrFromSlice(r.Gw)
		if ones, _ := r.Dst.Mask.Size(); ok && ones == 128 {
			have[a] = g
		}
	}
	return have, nil
}

// setRoutes has the routes be those to the machines of the peers.
func (t *Tunnel) setRoutes(peers []Peer) error {
	want := map[netip.Addr]netip.Addr{}
	for _, p := range peers {
		for _, a := range p.Machines {
			want[a] = gatewayOf(p.ID)
		}
	}
	for a, g := range maps.Clone(t.have) {
		if want[a] == g {
			continue
		}
		if err := netlink.RouteDel(t.routeTo(a, g)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("the route to %s cannot be removed: %w", a, err)
		}
		delete(t.have, a)
	}
	for a, g := range want {
		if t.have[a] == g {
			continue
		}
		if err := netlink.RouteAdd(t.routeTo(a, g)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("a route to %s: %w", a, err)
		}
		t.have[a] = g
	}
	return nil
}

func (t *Tunnel) routeTo(a, gateway netip.Addr) *netlink.Route {
	return &netlink.Route{LinkIndex: t.link.Attrs().Index, Dst: ipNet(hostPrefix(a)), Gw: gateway.AsSlice(),
		Priority: tunnelMetric, Flags: int(netlink.FLAG_ONLINK)}
}

// applySettings are those of the device that are the same whatever carries the packets. It has no address: nothing of
// the host's own speaks through it, nor is spoken to.
func (t *Tunnel) applySettings(l netlink.Link) error {
	for _, s := range []string{"accept_ra=0", "addr_gen_mode=1", "forwarding=1"} {
		name, to, _ := strings.Cut(s, "=")
		if err := writeSetting("/proc/sys/net/ipv6/conf/"+t.name+"/"+name, to); err != nil {
			return err
		}
	}
	mtu, err := t.tunnelMTU()
	if err != nil {
		return err
	}
	if l.Attrs().MTU != mtu {
		if err := netlink.LinkSetMTU(l, mtu); err != nil {
			return err
		}
	}
	if l.Attrs().Group != tunnelGroup(&t.o.Network) {
		if err := netlink.LinkSetGroup(l, int(tunnelGroup(&t.o.Network))); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

// overhead is what a tunnel adds to a packet, with either way, over IPv6.
const overhead = 80

// tunnelMTU is how large packets may be in the tunnel.
func (t *Tunnel) tunnelMTU() (int, error) {
	mtu, err := wayOut()
	if err != nil {
		return 0, err
	}
	links, err := allLinks()
	if err != nil {
		return 0, err
	}
	for _, l := range links {
		addrs, err := addressesOf(l)
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, a := range addrs {
			if a.IP.Equal(t.o.At.AsSlice()) {
				mtu = min(mtu, l.Attrs().MTU)
			}
		}
	}
	return max(mtu-overhead, 1280), nil // less is no IPv6
}

// Remove ends the tunnel, with all that is of it. nil when there is none.
func (t *Tunnel) Remove() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetState()
	return RemoveTunnel(t.o.Name)
}

// RemoveTunnel ends the tunnel of that name, whichever process has made it. nil when there is none.
func RemoveTunnel(of string) error {
	name := tunnelName(of)
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(l) // with its routes; a helper ends with it
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return cmp.Or(RemoveTable(name), removeSocket(name))
}
