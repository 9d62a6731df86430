// Package netplan describes the network of a container. It is separate from package hostnet, which makes that network,
// so that code that only requests one does not depend on the implementation.
package netplan

import (
	"net/netip"
	"slices"

	"github.com/soukhq/souk/fault"
)

// Network is the network of one container.
type Network struct {
	Cluster netip.Prefix `json:"cluster"` // prefix of all machines: /48
	App     netip.Prefix `json:"app"`     // prefix of the machines that may always connect to it: /96
	Address netip.Addr   `json:"address"` // the container's own, in App

	// Realm names the containers of this host that may reach each other, subject to Allow: those of one souk, on all of
	// its workers. Containers of another realm with the same Cluster are unreachable.
	Realm string `json:"realm,omitempty"`

	Allow   []netip.Prefix `json:"allow,omitempty"`  // other apps that may connect to it
	Closed  bool           `json:"closed,omitempty"` // outside the cluster only Egress is reachable
	Egress  []netip.Prefix `json:"egress,omitempty"`
	Publish []Port         `json:"publish,omitempty"`
	// the cluster's DNS server, on the host's loopback (IPv4); nil: none
	DNS    *netip.AddrPort `json:"dns,omitempty"`
	Narrow *netip.AddrPort `json:"narrow,omitempty"` // like DNS, but for the cluster's names only
	Search []string        `json:"search,omitempty"` // search domains for names of one label
}

// Port is a port of the host that leads to a port of the container.
type Port struct {
	UDP     bool       `json:"udp,omitempty"`
	Address netip.Addr `json:"address,omitzero"` // the host's address it is open on; zero: all of them
	Host    uint16     `json:"host"`
	To      uint16     `json:"to"`
}

// Overlaps reports whether two ports need the same port of one address of the host.
func (p Port) Overlaps(o Port) bool {
	return p.UDP == o.UDP && p.Host == o.Host &&
		(p.Address == o.Address || !p.Address.IsValid() || !o.Address.IsValid())
}

// Resolver is the container's DNS server and default gateway: an address that exists only on its link.
var Resolver = netip.AddrFrom4([4]byte{169, 254, 1, 1})

// NarrowResolver is the DNS server of a Closed container, which resolves only the cluster's names: queries for other
// names could carry data out.
var NarrowResolver = netip.AddrFrom4([4]byte{169, 254, 1, 2})

// Nameserver returns the container's DNS server; invalid: there is none.
func (n *Network) Nameserver() (none netip.Addr) {
	switch {
	case n.Closed && n.Narrow != nil:
		return NarrowResolver
	case !n.Closed && n.DNS != nil:
		return Resolver
	}
	return none
}

// Check returns why the network cannot be made.
func (n *Network) Check() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeNetwork,
			format, args...)
	}
	switch {
	case n.Cluster.Bits() != 48 || !n.Cluster.Addr().Is6():
		return bad("the cluster's addresses are an IPv6 /48, not %s", n.Cluster)
	case n.App.Bits() != 96 || !n.Cluster.Contains(n.App.Addr()):
		return bad("the addresses of the app are a /96 of %s, not %s", n.Cluster, n.App)
	case !n.App.Contains(n.Address):
		return bad("the machine's address lies in %s, and %s does not", n.App, n.Address)
	case n.DNS != nil && !n.DNS.Addr().Is4():
		return bad("containers reach the cluster's DNS at an IPv4 address of the host, not at %s", n.DNS)
	case n.Narrow != nil && !n.Narrow.Addr().Is4():
		return bad("containers reach the cluster's DNS at an IPv4 address of the host, not at %s", n.Narrow)
	}
	for _, p := range n.Allow {
		if !n.Cluster.Contains(p.Addr()) || p.Bits() < n.Cluster.Bits() {
			return bad("other apps that may connect have addresses in %s, and %s is not", n.Cluster, p)
		}
	}
	for _, p := range n.Egress {
		if !p.IsValid() {
			return bad("a network that may be reached is not valid")
		}
	}
	for i, p := range n.Publish {
		if p.Host == 0 || p.To == 0 || slices.ContainsFunc(n.Publish[:i], p.Overlaps) {
			return bad("port %d of the host cannot lead to port %d of the machine: name each once, from 1 up", p.Host,
				p.To)
		}
		if a := p.Address; a.IsUnspecified() || a == netip.IPv6Loopback() || a.Zone() != "" || a.Is4In6() {
			return bad("a port of the host cannot be published at %s", a)
		}
	}
	return nil
}
