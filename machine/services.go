package machine

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// Bounds of a service's settings, besides its ports.
const (
	MaxHosts         = 16      // names of a service
	MaxServicesBytes = 8 << 10 // of a machine's services as JSON without their checks, which every member keeps
	MaxAutostopAfter = 24 * time.Hour
	MaxCreated       = 1000 // machines of a service, including those made for requests
	MaxIgnored       = 16   // rules for requests that neither start a machine nor keep it running
	MaxIgnoredText   = 256  // bytes of a rule's path, and of its user agent
)

// CheckServices validates the services of a config, or of a machine that another member reports.
func CheckServices(list []Service) error {
	if len(list) > MaxServices {
		return badConfig("config.services has %d services and may have %d", len(list), MaxServices)
	}
	for i, s := range list {
		if err := s.check(fmt.Sprintf("config.services[%d]", i)); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return nil
	}
	raw, err := json.Marshal(Routed(list))
	if err != nil {
		return badConfig("config.services cannot be written as JSON: %v", err)
	}
	if len(raw) > MaxServicesBytes {
		return badConfig(
			"config.services have %d bytes as JSON without their checks and may have %d, for every member of a "+
				"cluster keeps them: leave out what is not needed", len(raw), MaxServicesBytes)
	}
	return nil
}

// checkOwn validates souk's own fields of a service.
func (s Service) checkOwn(at string) error {
	if len(s.Hosts) > MaxHosts {
		return badConfig("%s.hosts has %d names and may have %d", at, len(s.Hosts), MaxHosts)
	}
	for i, h := range s.Hosts {
		if !ValidHost(h) {
			return badConfig("%s.hosts[%d] must be a DNS name in lower case such as \"shop\" or \"www.example.com\", "+
				"without a port and a dot at its end, not %s", at, i, quote(h))
		}
	}
	if most := s.MaxMachinesRunning; most != nil {
		least := 0
		if s.MinMachinesRunning != nil {
			least = *s.MinMachinesRunning
		}
		if *most < max(1, least) {
			return badConfig("%s.max_machines_running must be at least %d, not %d", at, max(1, least), *most)
		}
	}
	if n := s.CreateUpTo; n != nil && (*n < 1 || *n > MaxCreated) {
		return badConfig("%s.create_up_to must be 1 to %d machines, not %d", at, MaxCreated, *n)
	}
	if err := s.checkWarm(at); err != nil {
		return err
	}
	if d := s.AutostopAfter; d != nil && (d.Duration < time.Second || d.Duration > MaxAutostopAfter) {
		return badConfig("%s.autostop_after must be 1s to 24h, not %v", at, d.Duration)
	}
	if d := s.IdleStream; d != nil && (d.Duration < time.Second || d.Duration > MaxAutostopAfter) {
		return badConfig("%s.idle_stream must be 1s to 24h, not %v", at, d.Duration)
	}
	if len(s.Ignore) > MaxIgnored {
		return badConfig("%s.ignore has %d rules and may have %d", at, len(s.Ignore), MaxIgnored)
	}
	if len(s.Ignore) > 0 && !s.IsHTTP() {
		return badConfig("%s.ignore is of a service over HTTP: give one of its ports the handler http, or leave it out",
			at)
	}
	for i, x := range s.Ignore {
		if err := x.check(fmt.Sprintf("%s.ignore[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

// checkWarm validates the number of spares.
func (s *Service) checkWarm(at string) error {
	switch {
	case s.Warm == nil:
		return nil
	case *s.Warm < 1 || *s.Warm > MaxCreated:
		return badConfig("%s.warm must be 1 to %d spares, not %d; leave it out and none is kept", at, MaxCreated,
			*s.Warm)
	case s.CreateUpTo == nil:
		return badConfig("%s.warm keeps %d spares, and nothing bounds how many machines are made for that: give "+
			"create_up_to, at least %d", at, *s.Warm, *s.Warm+1)
	case *s.Warm >= *s.CreateUpTo:
		return badConfig("%s.warm must be less than create_up_to, %d, which counts all machines of the service; not %d",
			at,
			*s.CreateUpTo, *s.Warm)
	case s.Autostart != nil && !*s.Autostart:
		return noWake(at + ".autostart is false")
	}
	return nil
}

func noWake(why string) error {
	return badConfig("%s, so no request could wake a spare: leave out warm, or let requests start machines", why)
}

// check validates a rule for ignored requests.
func (x *Ignored) check(at string) error {
	switch {
	case x.Path == "" && x.UserAgent == "" && x.Source == "":
		return badConfig("%s must say which requests it means by path, user_agent or source", at)
	case x.Path != "" && (x.Path[0] != '/' || strings.Contains(strings.TrimSuffix(x.Path, "*"), "*")):
		return badConfig("%s.path must begin with / and may have * at its end alone, not %s", at, quote(x.Path))
	case len(x.Path) > MaxIgnoredText || len(x.UserAgent) > MaxIgnoredText:
		return badConfig("%s.path and user_agent may have %d bytes each", at, MaxIgnoredText)
	case x.Source != "" && !x.Network().IsValid():
		return badConfig("%s.source must be an address, or a network such as \"192.0.2.0/24\", not %s", at,
			quote(x.Source))
	case x.Status != 0 && (x.Status < 200 || x.Status > 599):
		return badConfig("%s.status must be 200 to 599, not %d", at, x.Status)
	}
	return nil
}

// Network returns the addresses that a rule matches; an invalid Prefix: the rule has none, or no valid one.
func (x *Ignored) Network() netip.Prefix {
	if p, err := netip.ParsePrefix(x.Source); err == nil {
		return p.Masked()
	}
	a, err := netip.ParseAddr(x.Source)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
}

// ValidHost reports whether s is a name for requests: one or several DNS labels in lower case. A text that ends in a
// number is an address.
func ValidHost(s string) bool {
	if len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !ValidLabel(l) {
			return false
		}
	}
	return !hasOnly(labels[len(labels)-1], func(c byte) bool { return c >= '0' && c <= '9' })
}

// Routed returns the parts of services that a proxy needs: all but their checks. If they have none, it returns the
// same list, so it is read only; nil without services.
func Routed(list []Service) []Service {
	if len(list) == 0 {
		return nil
	}
	for i := range list {
		if list[i].Checks == nil {
			continue
		}
		out := make([]Service, len(list))
		copy(out, list)
		for j := range out {
			out[j].Checks = nil
		}
		return out
	}
	return list
}

// IsHTTP reports whether a service speaks HTTP.
func (s *Service) IsHTTP() bool {
	return s != nil && slices.ContainsFunc(s.Ports, func(p Port) bool { return slices.Contains(p.Handlers, "http") })
}

// RoutedServices returns the services of a config as a proxy needs them: see Routed. With the deprecated NoAutostart,
// no service starts its machine for a request.
func (c *Config) RoutedServices() []Service {
	list := Routed(c.Services)
	if c.NoAutostart == nil || !*c.NoAutostart || len(list) == 0 {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Autostart = new(false)
	}
	return list
}

// Wakes reports whether requests may wake the machine: a proxy starts it for one of its services.
func (c *Config) Wakes() bool {
	if c.NoAutostart != nil && *c.NoAutostart {
		return false
	}
	for i := range c.Services {
		if a := c.Services[i].Autostart; a == nil || *a {
			return true
		}
	}
	return false
}

// OwnAddress returns the machine's own address. Only own addresses are IPv6. false: it has its host's address, or
// none.
func (m *Machine) OwnAddress() (netip.Addr, bool) {
	a, err := netip.ParseAddr(m.PrivateIP)
	return a, err == nil && a.Is6() && !a.Is4In6() && a.IsPrivate()
}

// Reach returns the addresses of a port of the machine, as seen from its worker's host, the likeliest first: its own,
// or loopback if it is in the host's network, and never another: a program that listens on the host's loopback is no
// container's. A container also has an IPv4 address, which only its host knows: package runtime/reach dials both. A
// machine without a network has none: Precondition.
func (m *Machine) Reach(port int) ([]netip.AddrPort, error) {
	if port < 1 || port > 65535 {
		return nil, fault.New(fault.Invalid, CodePort, "a port is 1 to 65535, not %d", port)
	}
	own, has := m.OwnAddress()
	switch mode := NetworkOf(m.Config).Mode; {
	case mode == NetworkHost:
		return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)),
			netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port))}, nil
	case mode != NetworkOwn || !has:
		return nil, fault.New(fault.Precondition, codeNoAddress,
			"machine %s has no network in which it could be reached: its ports, checks and services need "+
				"config.network.mode own or host", m.ID)
	}
	return []netip.AddrPort{netip.AddrPortFrom(own, uint16(port))}, nil
}

// CurrentStart identifies a machine's present start, so that observations of an earlier start do not apply to it.
func (m *Machine) CurrentStart() string {
	for _, e := range m.Events {
		if e.Type == "start" || e.Type == "restart" || e.Type == "launch" || e.Type == "update" {
			return m.InstanceID + "/" + e.ID
		}
	}
	return m.InstanceID
}

// checkCreated refuses services that have copies made although a machine has a volume, which only one can have. It
// also refuses spares that no request may start.
func (c *Config) checkCreated() error {
	for i, s := range c.Services {
		if s.CreateUpTo != nil && len(c.Mounts) > 0 {
			return badConfig("config.services[%d].create_up_to goes without mounts: a volume is one machine's", i)
		}
		if s.Warm != nil && c.NoAutostart != nil && *c.NoAutostart {
			return noWake("config.disable_machine_autostart is true")
		}
	}
	return nil
}
