package oci

import (
	"net/netip"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// Network is the configuration of containers' networks.
type Network struct {
	Addresses *netplan.Addresses // of the machines
	Realm     string             // see netplan.Network
	DNS       *netip.AddrPort    // the cluster's DNS server, on the host's loopback (IPv4); nil: none
	Narrow    *netip.AddrPort    // like DNS, but for the cluster's names only; nil: none
	AllowHost bool               // machines may share the host's network
	Lacks     error              // why this host cannot provide networks; nil: it can

	// Between reports how containers of other hosts are reached; nil: there are no other hosts.
	Between func() cluster.Finding
}

// connectNetwork enters a machine's network into its container's description.
func (r *Runtime) connectNetwork(s runtime.Spec, e program, in *frame.Container) error {
	n := r.network
	switch {
	case s.Network.Mode == machine.NetworkNone:
		return nil
	case n == nil: // loopback only
		return nil
	case s.Network.Mode == machine.NetworkHost:
		if !n.AllowHost {
			return fault.New(fault.Denied, fault.CodeNetwork, "%s", hostDenied)
		}
		if e.unshared != nil {
			return e.unshared
		}
		in.HostNet = true
		return nil
	case n.Lacks != nil:
		return n.Lacks
	case e.unconnected != nil:
		return e.unconnected
	}
	app := n.Addresses.App(s.App)
	out := &netplan.Network{Cluster: n.Addresses.Of, App: app, Address: cluster.MachineAddress(app, s.Machine),
		Realm: n.Realm, DNS: n.DNS, Narrow: n.Narrow, Publish: planPorts(s.Network.Publish)}
	if n.DNS != nil { // first look for a machine of the same app, then for another app
		out.Search = []string{s.App + ".souk", "souk"}
	}
	for _, other := range s.Network.From {
		out.Allow = append(out.Allow, n.Addresses.App(other))
	}
	for _, e := range s.Network.Egress {
		out.Closed = true
		if e == machine.EgressNone {
			continue
		}
		p, err := netip.ParsePrefix(e)
		if err != nil {
			return fault.New(fault.Invalid, fault.CodeNetwork, "%q is not a network in CIDR form, such as 10.0.0.0/8",
				e)
		}
		out.Egress = append(out.Egress, p)
	}
	in.Network = out
	return nil
}

const hostDenied = "the worker lets no machine share its host's network: start its souk with --allow-host-network, " +
	"or give the machine a network of its own"

func planPorts(list []machine.Publish) (out []netplan.Port) {
	for _, p := range list {
		out = append(out, netplan.Port{UDP: p.Protocol == "udp", Address: p.At(), Host: uint16(p.HostPort),
			To: uint16(p.Port)})
	}
	return out
}

var _ runtime.Connector = (*Runtime)(nil)

// Connect returns a machine's address, and what prevents its network.
func (r *Runtime) Connect(app, id string, c *machine.Config) (address string, no []machine.Clause) {
	want := machine.NetworkOf(c)
	lacks := func(had string) {
		no = append(no, machine.Clause{Code: placement.CodeNetwork, Wanted: string(want.Mode), Had: had})
	}
	n := r.network
	e, err := r.engineNamed(c.Runtime)
	if err != nil { // the engine's own requirement reports it
		return "", nil
	}
	switch {
	case machine.IsHostImage(c.Image) || want.Mode == machine.NetworkNone:
		return "", nil
	case n == nil:
		if c.Network != nil {
			lacks("none: containers here have loopback alone")
		}
		return "", no
	case want.Mode == machine.NetworkHost:
		if !n.AllowHost {
			lacks(hostDenied)
		} else if e.unshared != nil {
			lacks(fault.As(e.unshared).Text)
		}
		return "", no
	case n.Lacks != nil:
		lacks("none: " + fault.As(n.Lacks).Text)
		return "", no
	case e.unconnected != nil:
		lacks("none: " + fault.As(e.unconnected).Text)
		return "", no
	}
	at, list := n.Addresses.Machine(app, id), planPorts(want.Publish)
	taken, err := hostnet.PortsInUse(list, at)
	if err != nil {
		lacks("an error of the host's rules: " + err.Error())
	}
	for i, p := range list {
		if why := taken[p]; why != "" {
			wanted := want.Publish[i].String() + " free"
			no = append(no, machine.Clause{Code: placement.CodePort, Wanted: wanted, Had: why})
		}
	}
	return at.String(), no
}
