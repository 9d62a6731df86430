package machine

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// NetworkMode is the network that a machine is in.
type NetworkMode string

// The modes. By default, a machine with an image has its own; a host program always has the host's.
const (
	NetworkOwn  NetworkMode = "own"  // a link and an address of its own
	NetworkNone NetworkMode = "none" // only loopback
	NetworkHost NetworkMode = "host" // that of the worker's host, if the worker allows it
)

// Network is how a machine is connected.
type Network struct {
	Mode    NetworkMode `json:"mode,omitempty"`
	Publish []Publish   `json:"publish,omitempty"`
	From    []string    `json:"from,omitempty"`   // other apps whose machines may connect to it
	Egress  []string    `json:"egress,omitempty"` // outside networks that it may reach; empty: all

	// SharePorts says, for a machine in its host's network, that other programs may share the ports of its services:
	// it sets SO_REUSEPORT, or gets its socket from outside.
	SharePorts bool `json:"share_ports,omitempty"`
}

// Publish forwards a port of the worker's host to one of the machine.
type Publish struct {
	Address  string `json:"address,omitempty"`  // of the host, an IP address; "", 0.0.0.0 and :: are all addresses
	Protocol string `json:"protocol,omitempty"` // tcp (also ""), or udp
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

// String returns the host port as "8080/tcp" or "127.0.0.1:8080/tcp".
func (p Publish) String() string {
	port := strconv.Itoa(p.HostPort)
	if at := p.At(); at.IsValid() {
		port = netip.AddrPortFrom(at, uint16(p.HostPort)).String()
	}
	return port + "/" + cmp.Or(p.Protocol, "tcp")
}

// At returns the host address at which the port is published; the zero Addr means all addresses.
func (p Publish) At() netip.Addr {
	at, err := netip.ParseAddr(p.Address)
	if err != nil || at.IsUnspecified() {
		return netip.Addr{}
	}
	return at
}

// Overlaps reports whether two publications conflict: the same port and protocol, at one address or with one of them
// at all.
func (p Publish) Overlaps(o Publish) bool {
	a, b := p.At(), o.At()
	return p.HostPort == o.HostPort && cmp.Or(p.Protocol, "tcp") == cmp.Or(o.Protocol, "tcp") &&
		(a == b || !a.IsValid() || !b.IsValid())
}

// Published returns the ports of the host that a config publishes; nil for none. They are not changed.
func (c *Config) Published() []Publish {
	if c == nil || c.Network == nil {
		return nil
	}
	return c.Network.Publish
}

// HostPorts returns the ports of its worker's host that a machine needs exclusively: those that its config publishes
// and, in the host's network, those of its services. They must not be changed.
func (c *Config) HostPorts() []Publish {
	list := c.Published()
	if c == nil || !c.OnHostPorts() {
		return list
	}
	list = slices.Clone(list)
	for i := range c.Services {
		s := &c.Services[i]
		p := Publish{HostPort: s.InternalPort, Port: s.InternalPort}
		if s.Protocol == "udp" {
			p.Protocol = s.Protocol
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// OnHostPorts reports whether a config's services use ports of the worker's host exclusively.
func (c *Config) OnHostPorts() bool {
	n := NetworkOf(c)
	return n.Mode == NetworkHost && !n.SharePorts
}

// NetworkOf returns the network that a config asks for; its mode is never "".
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

// Admits reports whether machines of app may connect to a machine of app own, whose network admits the apps in from.
func Admits(own string, from []string, app string) bool {
	return app == own || slices.Contains(from, app)
}

// From returns the other apps that a config admits; nil for none. They must not be changed.
func (c *Config) From() []string {
	if c == nil || c.Network == nil {
		return nil
	}
	return c.Network.From
}

// CheckFrom validates a list of admitted apps.
func CheckFrom(apps []string) error {
	if len(apps) > MaxFrom {
		return badConfig("config.network.from has %d apps and may have %d", len(apps), MaxFrom)
	}
	return (&Network{From: apps}).checkFrom()
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
		return badConfig("config.network.mode must be own, none or host, not %s", quote(string(n.Mode)))
	case IsHostImage(c.Image) && mode != NetworkHost:
		return unsupportedError("config.network.mode %q is for images: a program of the worker's host has the host's "+
			"network", mode)
	case mode != NetworkOwn && len(n.Publish)+len(n.From)+len(n.Egress) > 0:
		return badConfig(
			"config.network: publish, from and egress are of a network of the machine's own, and this one's "+
				"mode is %s: what shares the host's network listens on its ports by itself", mode)
	case mode != NetworkHost && n.SharePorts:
		return badConfig(
			"config.network.share_ports is for what shares the host's network, and this one's mode is %s: its "+
				"ports are its own", mode)
	case len(n.Publish) > MaxPublish:
		return badConfig("config.network.publish has %d ports and may have %d", len(n.Publish), MaxPublish)
	case len(n.Egress) > MaxEgress:
		return badConfig("config.network.egress has %d networks and may have %d", len(n.Egress), MaxEgress)
	}
	return firstError(n.checkPublish(), CheckFrom(n.From), n.checkEgress())
}

func (n *Network) checkPublish() error {
	for i, p := range n.Publish {
		at := fmt.Sprintf("config.network.publish[%d]", i)
		if !slices.Contains([]string{"", "tcp", "udp"}, p.Protocol) {
			return badConfig("%s.protocol must be tcp or udp, not %s", at, quote(p.Protocol))
		}
		if err := firstError(checkPort(at+".host_port", p.HostPort), checkPort(at+".port", p.Port)); err != nil {
			return err
		}
		if err := checkPublishAddress(at+".address", p.Address); err != nil {
			return err
		}
		if slices.ContainsFunc(n.Publish[:i], p.Overlaps) {
			return badConfig("%s.host_port %s is published twice: a port of the host leads to one of the machine", at,
				p)
		}
	}
	return nil
}

// checkPublishAddress refuses addresses that a host cannot have, and ::1: the kernel accepts packets to ::1 only on
// the loopback device, so rules cannot forward them to a container.
func checkPublishAddress(at, text string) error {
	if text == "" {
		return nil
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6():
		return badConfig(
			"%s must be an IP address of the worker's host, such as 127.0.0.1, or be left out for all of them, "+
				"not %s", at, quote(text))
	case a == netip.IPv6Loopback():
		return unsupportedError(
			"%s ::1 leads to no container: the kernel passes nothing on from the loopback of IPv6; "+
				"publish at 127.0.0.1", at)
	case a.IsMulticast() || a.IsLinkLocalUnicast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return badConfig("%s must be an address that the worker's host alone has, and %s is none", at, a)
	}
	return nil
}

func (n *Network) checkFrom() error {
	for i, app := range n.From {
		if !ValidApp(app) {
			return badConfig("config.network.from[%d] must be the name of an app, not %s", i, quote(app))
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
			return badConfig(
				"config.network.egress[%d] must be a network such as 10.0.0.0/8 or 192.0.2.7/32, or be the "+
					"only one and none, not %s", i, quote(e))
		}
	}
	return nil
}
