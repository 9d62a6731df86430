package fleet

import (
	"cmp"
	"iter"
	"slices"

	"github.com/soukhq/souk/machine"
)

// Outside is a name or a port by which requests from outside mean an app: one of services[].hosts, or a port that is
// not one of HTTP's own.
type Outside struct {
	Host string // "": a port
	Port int
	App  string
}

// outside is how many machines of an app have a name or a port.
type outside struct {
	Outside
	machines int
}

func outsideBefore(a, b outside) bool {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.App, b.App)) < 0
}

// maxRange bounds how many ports of a range of a service are listened at.
const maxRange = 256

// outsideOf lists by what requests from outside mean a machine, beside its app's own name, each once.
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

// count brings up to date what a machine that has come (by 1) or gone (by -1) is meant by.
func (f *Fleet) count(m *Machine, by int) {
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

// sameOutside reports whether two forms of one machine are meant by the same.
func sameOutside(a, b *Machine) bool {
	if a.App != b.App || len(a.Services) != len(b.Services) {
		return false
	}
	return len(a.Services) == 0 || &a.Services[0] == &b.Services[0] || slices.Equal(outsideOf(a), outsideOf(b))
}

// AppOfHost returns the app whose machines claim a host name. Several apps may claim one for a while after a partition;
// then the first by name gets it.
func (s *Snapshot) AppOfHost(host string) (app string, ok bool) {
	if host == "" {
		return "", false
	}
	s.outside.AscendGreaterOrEqual(outside{Outside: Outside{Host: host}}, func(o outside) bool {
		if o.Host == host {
			app, ok = o.App, true
		}
		return false
	})
	return app, ok
}

// Outside iterates over the names and ports by which requests from outside mean apps: ports first, then names. Of one
// that several apps have, the first by name counts.
func (s *Snapshot) Outside() iter.Seq[Outside] {
	return func(yield func(Outside) bool) {
		s.outside.Ascend(func(o outside) bool { return yield(o.Outside) })
	}
}
