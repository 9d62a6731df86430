package member

import (
	"net"
	"net/netip"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// kindApp is the kind of objects that are apps, shared by the catalogs.
const kindApp = "app"

// Names returns the data for this member's DNS server, without unreachable and removed workers. leads reports whether a
// local container can reach a worker's containers; nil: of no other worker. v4 is as in fleet.Names.
func (m *Member) Names(a *netplan.Addresses, leads func(*fleet.Snapshot, cluster.WorkerID) bool,
	v4 func(netip.Addr) netip.Addr) *fleet.Names {
	return &fleet.Names{Fleet: m.fleet, Host: m.hostOf, Addresses: a, Leads: leads, V4: v4,
		Known: func(app string) bool { _, known := m.cluster.Objects().Get(kindApp, app); return known }}
}

// hostOf returns the address of a worker's host: its attribute "address", else its member's wire address. It is invalid
// while the worker is unreachable.
func (m *Member) hostOf(s *fleet.Snapshot, id cluster.WorkerID) (none netip.Addr) {
	w, known := s.Worker(id)
	if !known || !w.Reachable() {
		return none
	}
	if a, ok := w.Record.Attributes[broker.AddressAttribute]; ok {
		if addr, err := netip.ParseAddr(a.String()); err == nil {
			return addr
		}
	}
	at := w.Addr
	if id == m.ID() {
		at = m.api
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return none
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return none // a host name: looking it up may take long
	}
	return addr
}
