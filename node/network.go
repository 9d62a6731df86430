package node

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/mesh/names"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/oci"
)

// Addresses computes machines' addresses.
func Addresses() *netplan.Addresses {
	return &netplan.Addresses{Of: cluster.Network(cluster.DefaultNetwork)}
}

// insidePort is the port of the containers' DNS server, on a loopback address that only this process uses.
const (
	insidePort = 4254
	narrowPort = 4255 // for containers without outside access: only the cluster's names
)

// openNetwork makes the containers' network, with a DNS server for them. The server's address is the same after each
// start, since running containers keep using it.
func (n *Node) openNetwork() error {
	c := n.o.Containers
	if c == nil || n.o.Runtime != nil {
		return nil
	}
	dir, err := filepath.Abs(n.o.Dir)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, fault.CodeDir, "the directory %s has no path", n.o.Dir)
	}
	n.network = &oci.Network{Addresses: Addresses(), Realm: dir, AllowHost: c.AllowHost, Lacks: c.NoNetwork}
	if c.NoNetwork != nil {
		return nil
	}
	if err := n.openFirewall(dir, c.ForwardChain); err != nil {
		return err
	}
	view := n.dnsView()
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
		other := netip.AddrPortFrom(at.Addr(), 0) // running containers use it once another container is started
		n.o.Log.Warn("another port is taken to answer containers' DNS at", "instead of", at, "err", err)
		if s, err = names.Listen(other.String(), v); err != nil {
			return nil, is, err
		}
	}
	n.closers = append(n.closers, s.Close)
	if is, err = netip.ParseAddrPort(s.Addr()); err != nil {
		return nil, is, fault.Wrap(err, fault.Internal, names.CodeDNS, "%s is not an IP address", s.Addr())
	}
	return s, is, nil
}

// insideAddress returns an address of 127.0.0.0/8 that is derived from a directory.
func insideAddress(dir string) netip.Addr {
	sum := sha256.Sum256([]byte(dir))
	return netip.AddrFrom4([4]byte{127, 64 + sum[0]%64, sum[1], 1 + sum[2]%254})
}

// dnsView returns the data of the containers' DNS server. Without a cluster it leaves out machines that share the
// host's network: containers do not reach the host.
func (n *Node) dnsView() names.View {
	neighbours := new(hostnet.Neighbours).Beside
	if m := n.o.Member; m != nil {
		v := m.Names(n.network.Addresses, func(s *fleet.Snapshot, w cluster.WorkerID) bool {
			return n.between != nil && n.between.needsTunnelTo(s, w)
		}, neighbours)
		v.Entries, v.KeepsOut = n.entryOf, n.keepsOut
		return v
	}
	return &fleet.Names{Fleet: n.fleet, Addresses: n.network.Addresses, V4: neighbours, Entries: n.entryOf,
		KeepsOut: n.keepsOut,
		Known:    func(app string) bool { _, err := n.catalog.Apps.App(app); return err == nil },
		Host:     func(*fleet.Snapshot, cluster.WorkerID) (none netip.Addr) { return none }}
}

// openFirewall opens a chain of the host's own firewall for containers' packets, or removes the opening of an earlier
// process of the directory.
func (n *Node) openFirewall(dir, chain string) (err error) {
	if chain != "" {
		n.opening, err = hostnet.NewOpening(chain, dir)
		return err
	}
	if err := hostnet.RemoveOpening(dir); err != nil {
		n.o.Log.Warn("the rules by which the host's firewall let packets of containers pass could not be removed",
			"err", err)
	}
	return nil
}

// watchRemovals watches rules in the host's firewall until ctx ends. The channel has a value after they were removed.
func watchRemovals(ctx context.Context, watch func(context.Context, func())) <-chan struct{} {
	removed := make(chan struct{}, 1)
	go watch(ctx, func() {
		select {
		case removed <- struct{}{}:
		default:
		}
	})
	return removed
}

// openAgain is how often the host's firewall is checked: it may be reloaded, or start after souk.
const openAgain = 5 * time.Second

// keepOpen writes the rules of an opening, and again when they are gone, until ctx ends. They stay after that, since
// containers do. A failure is logged once.
func keepOpen(ctx context.Context, o *hostnet.Opening, log *slog.Logger) {
	again := time.NewTicker(openAgain)
	defer again.Stop()
	for failed := ""; ctx.Err() == nil; {
		switch laid, err := o.Lay(); {
		case err == nil && laid:
			log.Info("packets of containers pass the host's firewall by rules of souk's", "chain", o.Chain())
			failed = ""
		case err == nil:
			failed = ""
		case err.Error() != failed:
			log.Error("packets of containers cannot be let pass the host's firewall", "err", err)
			failed = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-again.C:
		}
	}
}
