package fleet

import (
	"cmp"
	"iter"
	"slices"

	"github.com/soukhq/souk/machine"
)

// Outside is a name or port by which requests from outside reach an app: one of services[].hosts, or a port other than
// HTTP's own.
type Outside struct {
	Host string // "": a port
	Port int
	App  string
}

// outside counts the machines of an app that claim a name or port.
type outside struct {
	Outside
	machines int
}

func outsideBefore(a, b outside) bool {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.App, b.App)) < 0
}

// maxRange bounds how many ports of a service's port range are opened.
const maxRange = 256

// outsideOf lists the names and ports by which outside requests reach a machine, besides its app's own name, each once.
func outsideOf(m *Machine) (out []Outside) {
	add := func(o Outside) {
		if o.App = m.App; !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	for i := range m.Services {
		s := &m.Services[i]
		for _, h := range s.Hosts {
			add(Outside{Host: h})
		}
		for _, p := range s.Ports {
			first, last := portsOf(&p)
			if s.Protocol == "udp" || first <= 0 {
				continue
			}
			for port := first; port <= last && port < first+maxRange; port++ {
				if http := slices.Contains(p.Handlers, "http"); !http || port != 80 && port != 443 {
					add(Outside{Port: port})
				}
			}
		}
	}
	return out
}

func portsOf(p *machine.Port) (first, last int) {
	switch {
	case p.Port != nil:
		return *p.Port, *p.Port
	case p.StartPort != nil && p.EndPort != nil:
		return *p.StartPort, *p.EndPort
	}
	return 0, -1
}

// countMeans updates the counts of names and ports for a machine that has come (by 1) or gone (by -1).
func (f *Fleet) countMeans(m *Machine, by int) {
	if len(m.Services) == 0 {
		return
	}
	for _, o := range outsideOf(m) {
		old, _ := f.next.outside.Get(outside{Outside: o})
		if n := old.machines + by; n > 0 {
			f.next.outside.ReplaceOrInsert(outside{o, n})
		} else {
			f.next.outside.Delete(outside{Outside: o})
		}
		f.changed.outside = true
	}
}

// sameOutside reports whether two versions of a machine have the same names and ports.
func sameOutside(a, b *Machine) bool {
	if a.App != b.App || len(a.Services) != len(b.Services) {
		return false
	}
	return len(a.Services) == 0 || &a.Services[0] == &b.Services[0] || slices.Equal(outsideOf(a), outsideOf(b))
}

// InUse returns the first name or port of an app's services that another app already uses, with that app. A name or
// port that the app has itself is never in use, even when another app has it too.
func (s *Snapshot) InUse(app string, services []machine.Service) (by Outside, is bool) {
	wants := outsideOf(&Machine{App: app, Services: services})
	if answersToItsApp(services) {
		wants = append(wants, Outside{Host: app, App: app})
	}
	for _, want := range wants {
		if s.hasOutside(want) {
			continue
		}
		if named := (Outside{Host: want.Host, App: want.Host}); want.Host != "" && s.hasOutside(named) {
			return named, true
		}
		if other, claimed := s.firstClaimant(want.Host, want.Port); claimed {
			return Outside{want.Host, want.Port, other}, true
		}
	}
	return Outside{}, false
}

// hasOutside reports whether machines of o.App claim the name or port.
func (s *Snapshot) hasOutside(o Outside) bool {
	if _, claimed := s.outside.Get(outside{Outside: o}); claimed || o.Host != o.App {
		return claimed
	}
	for m := range s.MachinesOf(o.App) {
		if answersToItsApp(m.Services) {
			return true
		}
	}
	return false
}

// answersToItsApp reports whether one of the services is reached by the app's own name.
func answersToItsApp(services []machine.Service) bool {
	return slices.ContainsFunc(services, func(s machine.Service) bool { return len(s.Hosts) == 0 && s.IsHTTP() })
}

// firstClaimant returns the first app, by name, that claims a name or a port.
func (s *Snapshot) firstClaimant(host string, port int) (app string, claimed bool) {
	s.outside.AscendGreaterOrEqual(outside{Outside: Outside{Host: host, Port: port}}, func(o outside) bool {
		if o.Host == host && o.Port == port {
			app, claimed = o.App, true
		}
		return false
	})
	return app, claimed
}

// AppOfHost returns the app whose machines claim a host name. Several apps can claim one if they were made at the same
// time or on both sides of a partition; then the first by name gets it.
func (s *Snapshot) AppOfHost(host string) (app string, ok bool) {
	if host == "" {
		return "", false
	}
	return s.firstClaimant(host, 0)
}

// Outside iterates over the names and ports by which outside requests reach apps: ports first, then names. If several
// apps claim one, the first by name gets it.
func (s *Snapshot) Outside() iter.Seq[Outside] {
	return func(yield func(Outside) bool) {
		s.outside.Ascend(func(o outside) bool { return yield(o.Outside) })
	}
}
