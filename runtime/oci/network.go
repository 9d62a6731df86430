package oci

import (
	"net/netip"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci/hostnet/netplan"
)

// Network is what containers are connected to.
type Network struct {
	Cluster netip.Prefix    // the cluster's private addresses, as cluster.Network has them
	DNS     *netip.AddrPort // the cluster's, on the host's loopback (IPv4); nil: none

	apps sync.Map // name -> netip.Prefix, since that takes a millisecond to find out
}

// of is the network of a machine: its app's machines may connect to it, and whoever asks at a port it publishes.
func (n *Network) of(s runtime.Spec) *netplan.Network {
	p, known := n.apps.Load(s.App)
	if !known {
		p, _ = n.apps.LoadOrStore(s.App, cluster.AppNetwork(n.Cluster, s.App))
	}
	app := p.(netip.Prefix)
	out := &netplan.Network{Cluster: n.Cluster, App: app, Address: cluster.MachineAddress(app, s.Machine), DNS: n.DNS}
	for _, p := range s.Publish {
		out.Publish = append(out.Publish, netplan.Port{UDP: p.UDP, Host: p.Host, To: p.To})
	}
	return out
}
