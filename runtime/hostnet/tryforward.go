package hostnet

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/osthread"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// lost is which packets did not get through the host.
type lost struct {
	v4, v6 bool
	names  []string
}

// trial is two containers without a program, and a namespace that represents the outside, on this host.
type trial struct {
	net     *Net
	spaces  []netns.NsHandle
	conns   []*net.UDPConn
	outside *link
	a, b    Addresses
	out     netip.Addr // address of the outside namespace
	host    netip.Addr // the host's address as seen from outside
	port    uint16     // of the host, published to container a
}

// trialPort is the port on which the namespaces listen.
const trialPort = 9

// tryForward sends packets through the host like containers do, and removes everything it made.
func tryForward() (l lost, err error) {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	t := &trial{net: New("souk-" + hex.EncodeToString(id[:]))}
	defer func() { err = errors.Join(err, t.removeNamespaces()) }()
	if err := t.openNamespaces(); err != nil {
		return l, err
	}
	in := func(i int, to netip.AddrPort) func() bool { return func() bool { return isAnswered(t.spaces[i], to) } }
	checks := []struct {
		name string
		v6   bool
		do   func() bool
	}{
		{"from container to container by IPv4", false, in(1, netip.AddrPortFrom(t.a.V4, trialPort))},
		{"from container to container by IPv6", true, in(1, netip.AddrPortFrom(t.a.V6, trialPort))},
		{"from a container to what is outside", false, in(0, netip.AddrPortFrom(t.out, trialPort))},
		{"from outside to a published port", false, in(2, netip.AddrPortFrom(t.host, t.port))},
	}
	ok := make([]bool, len(checks))
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() { ok[i] = c.do() })
	}
	all.Wait()
	for i, c := range checks {
		if !ok[i] {
			l.names = append(l.names, c.name)
			l.v4, l.v6 = l.v4 || !c.v6, l.v6 || c.v6
		}
	}
	return l, nil
}

// openNamespaces makes the namespaces, connects them, and starts a server in each.
func (t *trial) openNamespaces() error {
	for range 3 {
		ns, err := newNamespace()
		if err != nil {
			return err
		}
		t.spaces = append(t.spaces, ns)
		if err := doInNamespace(ns, startEcho(t)); err != nil {
			return err
		}
	}
	var err error
	if t.port, err = freePort(); err != nil {
		return err
	}
	p := netplan.Network{Cluster: netip.MustParsePrefix("fdff:ffff:ffff::/48"),
		App: netip.MustParsePrefix("fdff:ffff:ffff::/96"), Address: netip.MustParseAddr("fdff:ffff:ffff::1"),
		Realm: t.net.tree, Publish: []netplan.Port{{UDP: true, Host: t.port, To: trialPort}}}
	if err := t.net.layHostRules(&p); err != nil {
		return err
	}
	if t.a, err = t.net.attachTo(t.spaces[0], "a", &p); err != nil {
		return err
	}
	p.Address, p.Publish = p.Address.Next(), nil
	if t.b, err = t.net.attachTo(t.spaces[1], "b", &p); err != nil {
		return err
	}
	t.host = netip.AddrFrom4([4]byte{192, 0, 2, 1}) // unused anywhere (RFC 5737)
	// The outside's device has another name prefix, so no rule for containers applies to it.
	t.outside = &link{name: "so" + t.net.deviceName("outside")[len(devices):], of: t.net.tree,
		group: groupOf("outside" + t.net.tree), inside: t.spaces[2]}
	if err := t.outside.makePair(); err != nil {
		return err
	}
	if t.out, err = t.outside.assignAddress("outside", p.Address.Next()); err != nil {
		return err
	}
	if err := netlink.AddrAdd(t.outside.host, &netlink.Addr{IPNet: ipNet(hostPrefix(t.host))}); err != nil {
		return err
	}
	return t.outside.bringUp(Addresses{V4: t.out, V6: p.Address.Next()})
}

// removeNamespaces removes what openNamespaces has made.
func (t *trial) removeNamespaces() error {
	err := errors.Join(t.net.Detach("a"), t.net.Detach("b"))
	if l := t.outside; l != nil {
		if l.in != nil {
			l.removeLink()
		}
		if dev, wrong := netlink.LinkByName(l.name); wrong == nil {
			err = errors.Join(err, netlink.LinkDel(dev))
		}
	}
	for _, c := range t.conns {
		err = errors.Join(err, c.Close())
	}
	for _, ns := range t.spaces {
		err = errors.Join(err, ns.Close())
	}
	return errors.Join(err, t.net.Remove())
}

// newNamespace makes an empty network namespace.
func newNamespace() (ns netns.NsHandle, err error) {
	done := make(chan struct{})
	osthread.Go(func() {
		defer close(done)
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = netns.Get()
		}
	})
	<-done
	return ns, err
}

// startEcho starts a UDP echo server in the current namespace, until the trial is over.
func startEcho(t *trial) func() error {
	return func() error {
		c, err := net.ListenUDP("udp", &net.UDPAddr{Port: trialPort})
		if err != nil {
			return err
		}
		t.conns = append(t.conns, c)
		go func() {
			var b [8]byte
			for {
				n, from, err := c.ReadFromUDPAddrPort(b[:])
				if err != nil {
					return
				}
				_, _ = c.WriteToUDPAddrPort(b[:n], from) // the client retries
			}
		}()
		return nil
	}
}

// Packets may get lost for other reasons, so several are sent.
const (
	trialPackets = 5
	trialPause   = 100 * time.Millisecond
)

// isAnswered reports whether an address answers packets from a namespace.
func isAnswered(ns netns.NsHandle, to netip.AddrPort) bool {
	var c *net.UDPConn
	err := doInNamespace(ns, func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return false
	}
	defer c.Close()
	var b [8]byte
	for range trialPackets {
		if _, err := c.Write([]byte("souk")); err != nil {
			continue // an ICMP error for the previous packet
		}
		if err := c.SetReadDeadline(time.Now().Add(trialPause)); err != nil {
			return false
		}
		if _, err := c.Read(b[:]); err == nil {
			return true
		}
	}
	return false
}

// freePort returns a free UDP port of the host.
func freePort() (uint16, error) {
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return 0, err
	}
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port(), c.Close()
}
