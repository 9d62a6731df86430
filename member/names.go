package member

import (
	"net"
	"net/netip"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/gossip"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/names"
)

// kindApp is the kind of objects that are apps, shared by the catalogs.
const kindApp = "app"

// Names is what this member's DNS server answers from. Of workers that cannot be heard, or that were removed, nothing is told.
func (m *Member) Names() names.View { return nameView{m} }

type nameView struct{ m *Member }

// Started lists the started machines of an app.
func (v nameView) Started(app string) ([]names.Machine, bool) {
	_, known := v.m.cluster.Objects().Get(kindApp, app)
	hosts := map[cluster.WorkerID]netip.Addr{}
	var out []names.Machine
	for _, x := range v.m.cluster.Machines(app) {
		known = true
		if x.App != app || x.State != string(machine.Started) {
			continue
		}
		host, seen := hosts[x.Worker]
		if !seen {
			host = v.m.hostOf(x.Worker)
			hosts[x.Worker] = host
		}
		if host.IsValid() {
			out = append(out, names.Machine{ID: x.ID, Name: x.Name, Worker: string(x.Worker), Region: string(x.Region), Addr: host, Port: x.Port})
		}
	}
	return out, known && app != ""
}

// hostOf gives the address of a worker's host: its attribute "address", else where its member is called. None while the worker
// cannot be heard.
func (m *Member) hostOf(id cluster.WorkerID) (none netip.Addr) {
	x, _ := m.cluster.Member(id)
	if (x.State != gossip.Alive && x.State != gossip.Suspect) || x.API == "" || m.removedFor(id) {
		return none
	}
	w, _ := m.cluster.Record(id)
	if a, ok := w.Attributes[gateway.AddressAttribute]; ok {
		if addr, err := netip.ParseAddr(a.String()); err == nil {
			return addr
		}
	}
	host, _, err := net.SplitHostPort(x.API)
	if err != nil {
		return none
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return none // a host's name: it is not looked up, for that may take long
	}
	return addr
}

// portOf gives the port of a machine's first service; 0 when it has none.
func portOf(x *machine.Machine) uint16 {
	if x.Config == nil || len(x.Config.Services) == 0 {
		return 0
	}
	if p := x.Config.Services[0].InternalPort; p > 0 && p < 1<<16 {
		return uint16(p)
	}
	return 0
}
