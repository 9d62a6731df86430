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

// Network is what containers are connected to.
type Network struct {
	Addresses *netplan.Addresses // of machines
	Realm     string             // see netplan.Network
	DNS       *netip.AddrPort    // the cluster's, on the host's loopback (IPv4); nil: none
	Narrow    *netip.AddrPort    // the same, which knows the cluster's names alone; nil: none
	AllowHost bool               // machines that ask for it share the host's network
	Lacks     error              // why there is none on this host; nil: there is

	// Between says how containers of other hosts are reached; nil: there are no others.
	Between func() cluster.Finding
}

// connectNetwork enters the network of a machine into what its container is to be.
func (r *Runtime) connectNetwork(s runtime.Spec, e program, in *frame.Container) error {
	n := r.network
	switch {
	case s.Network.Mode == machine.NetworkNone:
		return nil
	case n == nil: // loopback, and nothing else
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
	if n.DNS != nil { // a machine of its own app, then another app
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
			return fault.New(fault.Invalid, fault.CodeNetwork, "%q is no network to be reached, as 10.0.0.0/8 is", e)
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

// Connect returns the address of a machine, and what stands against its network.
func (r *Runtime) Connect(app, id string, c *machine.Config) (address string, no []machine.Clause) {
	want := machine.NetworkOf(c)
	lacks := func(had string) {
		no = append(no, machine.Clause{Code: placement.CodeNetwork, Wanted: string(want.Mode), Had: had})
	}
	n := r.network
	e, err := r.engineNamed(c.Runtime)
	if err != nil { // the requirement that goes with the wish says so
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
