package member

import (
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/names"
)

// kindApp is the kind of objects that are apps, shared by the catalogs.
const kindApp = "app"

// Names returns what this member's DNS server answers from. Of workers that cannot be heard, or that were removed,
// nothing is told.
func (m *Member) Names() names.View { return nameView{m} }

type nameView struct{ m *Member }

// Started lists started machines of an app: all, or where there are more than most, as many of them drawn at random.
func (v nameView) Started(app string, most int) (list []names.Machine, known bool) {
	if app == "" {
		return nil, false
	}
	_, known = v.m.cluster.Objects().Get(kindApp, app)
	s := v.m.fleet.Snapshot()
	hosts := map[cluster.WorkerID]netip.Addr{}
	seen := 0
	for x := range s.MachinesOf(app) {
		known = true
		if x.State != machine.Started {
			continue
		}
		host, looked := hosts[x.Worker]
		if !looked {
			host = v.m.hostOf(s, x.Worker)
			hosts[x.Worker] = host
		}
		if !host.IsValid() {
			continue
		}
		seen++
		if at := len(list); at < most {
			list = append(list, nameOf(x, host))
		} else if at = rand.IntN(seen); at < most { // each has the same chance to stay
			list[at] = nameOf(x, host)
		}
	}
	return list, known
}

// Named returns the started machine of an app that has an id or a name. Both are in lower case always, as DNS has them.
func (v nameView) Named(app, label string) (names.Machine, bool) {
	s := v.m.fleet.Snapshot()
	x, found := s.Machine(label)
	if !found || x.App != app {
		x, found = s.Named(app, label)
	}
	if !found || x.State != machine.Started {
		return names.Machine{}, false
	}
	host := v.m.hostOf(s, x.Worker)
	return nameOf(x, host), host.IsValid()
}

func nameOf(x *fleet.Machine, host netip.Addr) names.Machine {
	return names.Machine{ID: x.ID, Name: x.Name, Worker: string(x.Worker), Region: string(x.Region), Addr: host,
		Port: x.Port}
}

// hostOf returns the address of a worker's host: its attribute "address", else where its member is called. There is
// none while the worker cannot be heard.
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
		return none // a host's name: it is not looked up, for that may take long
	}
	return addr
}
