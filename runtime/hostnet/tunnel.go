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

// TunnelPort is the UDP port of tunnels on each host.
const TunnelPort = 4283

// Limits of what is entered for other hosts, regardless of their records.
const (
	maxPeers  = 4096
	maxRemote = 65536 // machines of all peers
)

// Peer is another host with a tunnel.
type Peer struct {
	ID       string       // the worker's id
	At       netip.Addr   // address of its tunnel on the network between the hosts
	Key      wgtypes.Key  // public; zero for a way without keys
	Machines []netip.Addr // the machines on that host

	// Partial means that the peer's list may be incomplete or empty: machines entered for it earlier stay.
	Partial bool
}

// TunnelOptions configure a tunnel. Way, ID, At, Name and Network are required.
type TunnelOptions struct {
	Way     netplan.Way
	ID      string     // this worker's id
	At      netip.Addr // this host's address, as the others reach it
	Name    string     // distinguishes the tunnel from those of other souks on the host
	Network netplan.Network
	Helper  []string // command for WireGuard in user space; NAME and MTU are appended; see package wgspace
	Log     string   // file for the helper's output
	Build   string   // this program's build; a helper of another build is replaced
}

// Tunnel leads to the containers of other hosts. It consists of a device with routes and a table of rules, which stay
// in the kernel when this process ends; the next process finds them.
type Tunnel struct {
	o       TunnelOptions
	name    string // of the device and of the table
	carrier carrier

	mu      sync.Mutex
	link    netlink.Link              // nil: it must be found or made
	have    map[netip.Addr]netip.Addr // gateways by machine, as in the kernel; nil: they must be read
	applied []Peer                    // nil: the peers must be entered again
	owners  map[wgtypes.Key]string    // ids of the peers, and of this worker, by key
	let     []netip.Addr              // addresses that the rules let in; nil: the rules must be laid
}

// carrier is how a tunnel's packets cross the network between the hosts.
type carrier interface {
	// openDevice finds or makes the device, up and with its own settings.
	openDevice() (netlink.Link, error)
	// knownPeers returns the device's peers, by gateway. have maps machines to gateways.
	knownPeers(l netlink.Link, have map[netip.Addr]netip.Addr) (map[netip.Addr]Peer, error)
	// setPeers makes these the device's only peers.
	setPeers(l netlink.Link, peers []Peer) error
	// publicKey returns the key that other hosts need; zero: none.
	publicKey() wgtypes.Key
	// describeCarrier returns a description for people.
	describeCarrier() string
}

// OpenTunnel returns the tunnel that an earlier process may have made. The first Apply makes it if needed.
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
		return nil, fault.New(fault.Invalid, CodeNetworkBetween, "%q is not a way to connect workers", o.Way)
	}
	return t, nil
}

func tunnelName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "souk-" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:6]))
}

// Public returns the key that other hosts need; zero: none.
func (t *Tunnel) Public() wgtypes.Key { return t.carrier.publicKey() }

// How describes what carries the packets, once Apply has made it.
func (t *Tunnel) How() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.carrier.describeCarrier()
}

// gatewayOf returns the gateway address that represents a host in routes; no host has it.
func gatewayOf(id string) netip.Addr {
	sum := sha256.Sum256([]byte("souk gateway\x00" + id))
	a := [16]byte{0: 0xfe, 1: 0x80}
	copy(a[8:], sum[:8])
	return netip.AddrFrom16(a)
}

// tunnelMetric is larger than the metric of a container's own link, so that local machines are never sought elsewhere.
const tunnelMetric = 4096

// Apply makes the tunnel lead to the machines of these peers only. Call it repeatedly, not concurrently. With anew it
// checks everything entered before, since other programs may have changed it.
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
				"the tunnel to the containers of other workers cannot be set up now; souk tries again")
		}
	}
	return err
}

// Watch calls removed when another program has removed some of the tunnel's rules, or may have done so unnoticed, until
// ctx ends: call Apply with anew then.
func (t *Tunnel) Watch(ctx context.Context, removed func()) { Watch(ctx, t.name, removed) }

// forgetState makes the next Apply check everything.
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

// addRemembered completes Partial peers with what the kernel has for them, unless another peer has it now.
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

// enterablePeers leaves out what cannot be entered: peers without a usable address, a second peer with the same key,
// machines that another peer has, and what exceeds the limits. A peer keeps its key if others claim it later.
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

// leadsTo reports whether a tunnel can end at an address: one of another host. A vxlan device sends by IPv4 or by IPv6,
// never by both.
func (t *Tunnel) leadsTo(a netip.Addr) bool {
	return a.IsGlobalUnicast() && a != t.o.At && (t.o.Way != netplan.VXLAN || a.Is4() == t.o.At.Is4())
}

// readRoutes returns the gateway of each machine from the kernel's routes.
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

// setRoutes makes the routes lead to the machines of the peers, and removes others.
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

// applySettings applies the device settings that are common to all carriers. The device gets no address: the host
// itself neither sends nor receives through it.
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

// overhead is the bytes that a tunnel adds to a packet, with either way, over IPv6.
const overhead = 80

// tunnelMTU returns the MTU of the tunnel.
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
			continue // the link is gone meanwhile
		}
		for _, a := range addrs {
			if a.IP.Equal(t.o.At.AsSlice()) {
				mtu = min(mtu, l.Attrs().MTU)
			}
		}
	}
	return max(mtu-overhead, 1280), nil // the minimum of IPv6
}

// Remove removes the tunnel completely; nil if there is none.
func (t *Tunnel) Remove() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetState()
	return RemoveTunnel(t.o.Name)
}

// RemoveTunnel removes the tunnel with a name, whichever process made it; nil if there is none.
func RemoveTunnel(of string) error {
	name := tunnelName(of)
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(l) // removes its routes, and ends a helper
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return cmp.Or(RemoveTable(name), removeSocket(name))
}
