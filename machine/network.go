package machine

import (
	"fmt"
	"net/netip"
	"slices"
)

// NetworkMode says which network a machine is in.
type NetworkMode string

// The modes. A machine of an image that says nothing has its own; one of the host's programs has the host's always.
const (
	NetworkOwn  NetworkMode = "own"  // a link and an address of its own
	NetworkNone NetworkMode = "none" // loopback alone
	NetworkHost NetworkMode = "host" // that of the worker's host, where the worker allows it
)

// Network says how a machine is connected.
type Network struct {
	Mode    NetworkMode `json:"mode,omitempty"`
	Publish []Publish   `json:"publish,omitempty"`
	From    []string    `json:"from,omitempty"`   // other apps whose machines may connect to it
	Egress  []string    `json:"egress,omitempty"` // networks that it may reach outside; empty: all
}

// Publish is a port of the worker's host that leads to one of the machine.
type Publish struct {
	Protocol string `json:"protocol,omitempty"` // tcp, which is "" too, or udp
	HostPort int    `json:"host_port"`
	Port     int    `json:"port"`
}

// EgressNone, as the only network of Network.Egress, says that a machine may reach nothing outside.
const EgressNone = "none"

// Bounds of a network.
const (
	MaxPublish = 64
	MaxFrom    = 64
	MaxEgress  = 64
)

// String is the port of the host, as "8080/tcp".
func (p Publish) String() string {
	if p.Protocol == "udp" {
		return fmt.Sprintf("%d/udp", p.HostPort)
	}
	return fmt.Sprintf("%d/tcp", p.HostPort)
}

// NetworkOf returns the network that a config asks for, its mode never "".
func NetworkOf(c *Config) Network {
	var n Network
	if c.Network != nil {
		n = *c.Network
	}
	switch {
	case n.Mode != "":
	case IsHostImage(c.Image):
		n.Mode = NetworkHost
	default:
		n.Mode = NetworkOwn
	}
	return n
}

func (c *Config) checkNetwork() error {
	n := c.Network
	if n == nil {
		return nil
	}
	modes := []NetworkMode{"", NetworkOwn, NetworkNone, NetworkHost}
	mode := NetworkOf(c).Mode
	switch {
	case !slices.Contains(modes, n.Mode):
		return bad("config.network.mode must be own, none or host, not %s", quote(string(n.Mode)))
	case IsHostImage(c.Image) && mode != NetworkHost:
		return unsupported("config.network.mode %q is for images: a program of the worker's host has the host's "+
			"network", mode)
	case mode != NetworkOwn && len(n.Publish)+len(n.From)+len(n.Egress) > 0:
		return bad("config.network: publish, from and egress are of a network of the machine's own, and this one's "+
			"mode is %s: what shares the host's network listens on its ports by itself", mode)
	case len(n.Publish) > MaxPublish:
		return bad("config.network.publish has %d ports and may have %d", len(n.Publish), MaxPublish)
	case len(n.From) > MaxFrom:
		return bad("config.network.from has %d apps and may have %d", len(n.From), MaxFrom)
	case len(n.Egress) > MaxEgress:
		return bad("config.network.egress has %d networks and may have %d", len(n.Egress), MaxEgress)
	}
	return first(n.checkPublish(), n.checkFrom(), n.checkEgress())
}

func (n *Network) checkPublish() error {
	for i, p := range n.Publish {
		at := fmt.Sprintf("config.network.publish[%d]", i)
		if !slices.Contains([]string{"", "tcp", "udp"}, p.Protocol) {
			return bad("%s.protocol must be tcp or udp, not %s", at, quote(p.Protocol))
		}
		if err := first(checkPort(at+".host_port", p.HostPort), checkPort(at+".port", p.Port)); err != nil {
			return err
		}
		if slices.ContainsFunc(n.Publish[:i], func(o Publish) bool { return o.String() == p.String() }) {
			return bad("%s.host_port %s is published twice: a port of the host leads to one of the machine", at, p)
		}
	}
	return nil
}

func (n *Network) checkFrom() error {
	for i, app := range n.From {
		if !ValidApp(app) {
			return bad("config.network.from[%d] must be the name of an app, not %s", i, quote(app))
		}
	}
	return nil
}

func (n *Network) checkEgress() error {
	for i, e := range n.Egress {
		if e == EgressNone && len(n.Egress) == 1 {
			continue
		}
		if p, err := netip.ParsePrefix(e); err != nil || p != p.Masked() {
			return bad("config.network.egress[%d] must be a network such as 10.0.0.0/8 or 192.0.2.7/32, or be the "+
				"only one and none, not %s", i, quote(e))
		}
	}
	return nil
}
