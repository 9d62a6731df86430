package node

import (
	"crypto/sha256"
	"net/netip"
	"path/filepath"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/names"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/oci/hostnet"
	"github.com/soukhq/souk/runtime/oci/hostnet/netplan"
)

// Addresses gives machines their addresses.
func Addresses() *netplan.Addresses {
	return &netplan.Addresses{Of: cluster.Network(cluster.DefaultNetwork)}
}

// insidePort is where containers' DNS is answered, on a loopback address that only this process uses.
const (
	insidePort = 4254
	narrowPort = 4255 // of containers that may not go out: the cluster's names alone
)

// openNetwork makes what containers are connected to, with a DNS server for them. Its address stays from start to
// start, since that of containers that go on is asked there.
func (n *Node) openNetwork() error {
	c := n.o.Containers
	if c == nil || n.o.Runtime != nil {
		return nil
	}
	dir, err := filepath.Abs(n.o.Dir)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "dir", "the directory %s has no path", n.o.Dir)
	}
	n.network = &oci.Network{Addresses: Addresses(), Realm: dir, AllowHost: c.AllowHost, Lacks: c.NoNetwork}
	if c.NoNetwork != nil {
		return nil
	}
	view := n.names()
	open, dns, err := n.listenInside(view, netip.AddrPortFrom(insideAddress(dir), insidePort))
	if err != nil {
		return err
	}
	open.Forward(new(names.Forwarder))
	narrow, narrowDNS, err := n.listenInside(names.Narrow{View: view},
		netip.AddrPortFrom(insideAddress(dir), narrowPort))
	if err != nil {
		return err
	}
	n.inside = []*names.Server{open, narrow}
	n.network.DNS, n.network.Narrow = &dns, &narrowDNS
	return n.openBetween()
}

// listenInside makes a DNS server for containers at an address, or at another port of it.
func (n *Node) listenInside(v names.View, at netip.AddrPort) (s *names.Server, is netip.AddrPort, err error) {
	if s, err = names.Listen(at.String(), v); err != nil {
		other := netip.AddrPortFrom(at.Addr(), 0) // what goes on asks there once another container is started
		n.o.Log.Warn("another port is taken to answer containers' DNS at", "instead of", at, "err", err)
		if s, err = names.Listen(other.String(), v); err != nil {
			return nil, is, err
		}
	}
	n.closers = append(n.closers, s.Close)
	if is, err = netip.ParseAddrPort(s.Addr()); err != nil {
		return nil, is, fault.Wrap(err, fault.Internal, "dns", "%s is no address", s.Addr())
	}
	return s, is, nil
}

// insideAddress is one of 127.0.0.0/8 that follows from a directory.
func insideAddress(dir string) netip.Addr {
	sum := sha256.Sum256([]byte(dir))
	return netip.AddrFrom4([4]byte{127, 64 + sum[0]%64, sum[1], 1 + sum[2]%254})
}

// names is what containers' DNS server answers from. A process that is alone tells nothing of machines that share its
// host's network: containers do not reach the host.
func (n *Node) names() names.View {
	neighbours := new(hostnet.Neighbours).Beside
	if m := n.o.Member; m != nil {
		return m.Names(n.network.Addresses, func(s *fleet.Snapshot, w cluster.WorkerID) bool {
			return n.between != nil && n.between.leads(s, w)
		}, neighbours)
	}
	return &fleet.Names{Fleet: n.fleet, Addresses: n.network.Addresses, V4: neighbours,
		Known: func(app string) bool { _, err := n.catalog.App(app); return err == nil },
		Host:  func(*fleet.Snapshot, cluster.WorkerID) (none netip.Addr) { return none }}
}
