package hostnet

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	goruntime "runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// link is a container's veth pair.
type link struct {
	name   string
	of     string // name of its worker's tree
	group  uint32
	inside netns.NsHandle

	host, peer netlink.Link
	in         *netlink.Handle // netlink in the container's namespace
}

// Fixed addresses of each link: both ends know them, so neither needs neighbour discovery.
var (
	hostMAC = net.HardwareAddr{0x02, 's', 'o', 'u', 'k', 0x01}
	peerMAC = net.HardwareAddr{0x02, 's', 'o', 'u', 'k', 0x02}

	gateway6 = netip.MustParseAddr("fe80::1")
)

const peerName = "eth0"

// makePair makes both ends in their namespaces, in one step.
func (l *link) makePair() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Group, attrs.HardwareAddr = l.name, l.group, hostMAC
	mtu, err := wayOut()
	if err != nil {
		return err
	}
	attrs.MTU = mtu
	v := netlink.NewVeth(attrs)
	v.PeerName, v.PeerHardwareAddr, v.PeerNamespace, v.PeerMTU = peerName, peerMAC, netlink.NsFd(l.inside), uint32(mtu)
	if err := netlink.LinkAdd(v); err != nil {
		return fmt.Errorf("make a pair of devices: %w", err)
	}
	if l.host, err = netlink.LinkByName(l.name); err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(l.host, l.of); err != nil { // identifies the worker of the link
		return err
	}
	if l.in, err = netlink.NewHandleAt(l.inside, unix.NETLINK_ROUTE); err != nil {
		return err
	}
	l.peer, err = l.in.LinkByName(peerName)
	return err
}

// setUpLoopback prepares a new namespace, which runsc leaves as the kernel made it: it brings up the loopback device
// and lets any user bind low ports.
func (l *link) setUpLoopback() error {
	lo, err := l.in.LinkByName("lo")
	if err == nil {
		err = l.in.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bring the loopback device up: %w", err)
	}
	return doInNamespace(l.inside, func() error {
		return writeSetting("/proc/sys/net/ipv4/ip_unprivileged_port_start",
			"0")
	})
}

// doInNamespace runs do in a network namespace, on the caller's thread: that works even if no new thread can be made.
// If the thread cannot return to its namespace, it stays locked and ends with the caller.
func doInNamespace(ns netns.NsHandle, do func() error) error {
	goruntime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		goruntime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err = netns.Set(ns); err == nil {
		err = do()
	}
	if back := netns.Set(own); back != nil {
		return errors.Join(err, back)
	}
	goruntime.UnlockOSThread()
	return err
}

func (l *link) removeLink() { l.in.Close() }

// wayOut returns the MTU of the host's default route, so that no larger packets arrive there.
func wayOut() (mtu int, err error) {
	const usual = 1500
	rs, err := listRoutes(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_DST)
	if err != nil || len(rs) == 0 || rs[0].LinkIndex == 0 {
		return usual, err
	}
	out, err := netlink.LinkByIndex(rs[0].LinkIndex)
	if err != nil {
		return usual, err
	}
	return min(usual, out.Attrs().MTU), nil
}

// assignAddress brings the host's end up and routes the container's addresses there. The routing table decides which
// IPv4 address is free: the first to add a route has the address, and loses it with the device.
func (l *link) assignAddress(container string, v6 netip.Addr) (v4 netip.Addr, err error) {
	for _, s := range [][2]string{
		{"ipv6/conf/" + l.name + "/accept_ra", "0"},
		{"ipv6/conf/" + l.name + "/addr_gen_mode", "1"},  // none: gateway6 is the only one
		{"ipv4/conf/" + l.name + "/route_localnet", "1"}, // for the resolver, and for ports from the host itself
	} {
		if err := writeSetting("/proc/sys/net/"+s[0], s[1]); err != nil {
			return v4, err
		}
	}
	near := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(gateway6, 64)), Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrAdd(l.host, near); err != nil {
		return v4, fmt.Errorf("the address %s: %w", gateway6, err)
	}
	if err := netlink.LinkSetUp(l.host); err != nil {
		return v4, err
	}
	// The source of the host's own packets is the link's address, which exists at once and on each host.
	r := &netlink.Route{LinkIndex: l.host.Attrs().Index, Dst: ipNet(hostPrefix(v6)), Src: gateway6.AsSlice()}
	if err := netlink.RouteReplace(r); err != nil {
		return v4, fmt.Errorf("a route to %s: %w", v6, err)
	}
	for i := range uint32(maxTries) {
		var usable bool
		if v4, usable = candidateAddress(container, i); !usable {
			continue
		}
		// The host's own IPv4 packets get its loopback address as source, which the rules translate to the link's
		// address: a host may have no other address.
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: l.host.Attrs().Index, Dst: ipNet(hostPrefix(v4)),
			Scope: netlink.SCOPE_LINK, Src: loopback.Addr().Next().AsSlice()})
		if err == nil {
			return v4, l.announceAddrs(v4, v6)
		}
		if !errors.Is(err, os.ErrExist) {
			return v4, fmt.Errorf("a route to %s: %w", v4, err)
		}
	}
	return v4, fault.New(fault.Unavailable, codeAddresses, "no IPv4 address of %s was found free on this host in %d "+
		"tries", Private, maxTries)
}

const maxTries = 4096

// candidateAddress returns the address number i that a container tries.
func candidateAddress(container string, i uint32) (v4 netip.Addr, usable bool) {
	sum, base := sha256.Sum256([]byte(container)), Private.Addr().As4()
	size := uint32(1)<<(32-Private.Bits()) - uint32(1)<<(32-Entries.Bits())
	n := (binary.BigEndian.Uint32(sum[:]) + i) % size
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(base[:])+n)
	return netip.AddrFrom4(b), b[3] != 0 && b[3] != 255 // some systems take these for broadcast addresses
}

// announceAddrs enters the other end's addresses as neighbours of the host's end.
func (l *link) announceAddrs(addrs ...netip.Addr) error {
	for _, a := range addrs {
		err := netlink.NeighSet(neighbourEntry(l.host.Attrs().Index, a, peerMAC))
		if err != nil {
			return fmt.Errorf("a neighbour at %s: %w", a, err)
		}
	}
	return nil
}

func neighbourEntry(link int, a netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	return &netlink.Neigh{LinkIndex: link, Family: family, State: netlink.NUD_PERMANENT, IP: a.AsSlice(),
		HardwareAddr: mac}
}

// bringUp gives the container's end its addresses and its default routes.
func (l *link) bringUp(at Addresses) error {
	for _, a := range []netip.Addr{at.V4, at.V6} {
		addr := &netlink.Addr{IPNet: ipNet(hostPrefix(a))}
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD // no duplicates: nobody else is on the link
		}
		if err := l.in.AddrAdd(l.peer, addr); err != nil {
			return fmt.Errorf("the address %s: %w", a, err)
		}
	}
	if err := l.in.LinkSetUp(l.peer); err != nil {
		return err
	}
	i := l.peer.Attrs().Index
	for _, gw := range []netip.Addr{netplan.Resolver, gateway6} {
		if err := l.in.NeighSet(neighbourEntry(i, gw, hostMAC)); err != nil {
			return fmt.Errorf("a neighbour at %s: %w", gw, err)
		}
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		r := &netlink.Route{LinkIndex: i, Gw: gw.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if gw.Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		} else {
			r.Src = at.V4.AsSlice()
		}
		r.Dst = ipNet(all)
		if err := l.in.RouteAdd(r); err != nil {
			return fmt.Errorf("the way out by %s: %w", gw, err)
		}
	}
	return l.waitUntilUp()
}

// waitUntilUp waits until the host's end has noticed that the other end is up, which the kernel does asynchronously.
// Until then it drops packets, and a container's first answer would arrive only with a retry after a second.
func (l *link) waitUntilUp() error {
	limit := time.NewTimer(settlePatience)
	defer limit.Stop()
	t := time.NewTicker(100 * time.Microsecond)
	defer t.Stop()
	for {
		now, err := netlink.LinkByIndex(l.host.Attrs().Index)
		if err != nil || now.Attrs().OperState == netlink.OperUp {
			return err
		}
		select {
		case <-t.C:
		case <-limit.C:
			return nil // senders retransmit
		}
	}
}

const settlePatience = 2 * time.Second

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
