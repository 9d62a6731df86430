package fleet

import (
	"math/rand/v2"
	"net/netip"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/names"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// Names is the data of a DNS server: started machines and their addresses.
type Names struct {
	Fleet *Fleet
	// Known reports whether an app exists, even without machines.
	Known func(app string) bool
	// Host returns the address of a worker's host, used by machines without an address of their own; invalid if it is
	// unknown or the worker is unreachable.
	Host      func(*Snapshot, cluster.WorkerID) netip.Addr
	Addresses *netplan.Addresses // of machines with an address of their own
	// Leads reports whether such addresses at another process's worker are reachable from here; nil: none are.
	Leads func(*Snapshot, cluster.WorkerID) bool
	// V4 returns the IPv4 address of a container of this host, by which its neighbours on the host reach it; nil: none
	// is known.
	V4 func(own netip.Addr) netip.Addr
	// Entries returns this host's address for connections to an app or one of its groups, as in names.View; nil: none.
	Entries func(app, group string) (at names.Entry, known bool)
	// KeepsOut reports whether no machine of an app or group lets in the container with an IPv4 address; nil: askers
	// are unknown.
	KeepsOut func(app, group string, asker netip.Addr) bool
}

var _ names.View = (*Names)(nil)

// Started lists machines of an app or group that take requests: all, or if there are more than most, a random sample of
// most.
func (v *Names) Started(app, group string, most int) (list []names.Machine, known bool) {
	if app == "" {
		return nil, false
	}
	known = group == "" && v.Known(app)
	s := v.Fleet.Snapshot()
	hosts := map[cluster.WorkerID]netip.Addr{}
	seen := 0
	for x := range s.MachinesOf(app) {
		if group != "" && (x.Replica == nil || x.Replica.Group != group) {
			continue
		}
		known = true
		if !takesRequests(x) {
			continue
		}
		host, looked := hosts[x.Worker]
		if !looked {
			host = v.Host(s, x.Worker)
			hosts[x.Worker] = host
		}
		if host, _ = v.addressOf(x, s, host); !host.IsValid() {
			continue
		}
		seen++
		if at := len(list); at < most {
			list = append(list, v.nameOf(x, s, host))
		} else if at = rand.IntN(seen); at < most { // reservoir sampling: equal chances for all
			list[at] = v.nameOf(x, s, host)
		}
	}
	return list, known
}

// Named returns the started machine of an app that has an id or a name. Both are always in lower case, as in DNS.
func (v *Names) Named(app, label string) (names.Machine, bool) {
	s := v.Fleet.Snapshot()
	x, found := s.Machine(label)
	if !found || x.App != app {
		x, found = s.Named(app, label)
	}
	if !found || x.State != machine.Started {
		return names.Machine{}, false
	}
	host, told := v.addressOf(x, s, v.Host(s, x.Worker))
	return v.nameOf(x, s, host), told
}

// Entry returns this host's address for connections to an app or group.
func (v *Names) Entry(app, group string) (at names.Entry, known bool) {
	if v.Entries == nil {
		return at, false
	}
	return v.Entries(app, group)
}

// Refuses reports whether no machine of an app or group lets the asking container in.
func (v *Names) Refuses(app, group string, asker netip.Addr) bool {
	return v.KeepsOut != nil && v.KeepsOut(app, group, asker)
}

// takesRequests reports whether the name of its app should lead to a machine.
func takesRequests(x *Machine) bool {
	return x.State == machine.Started && !x.Failing && !x.Cordoned && (x.Replica == nil || x.Replica.Run == "")
}

func (v *Names) nameOf(x *Machine, s *Snapshot, host netip.Addr) names.Machine {
	out := names.Machine{ID: x.ID, Name: x.Name, Worker: string(x.Worker), Region: string(x.Region), Addr: host,
		Port: x.Port()}
	if w, known := s.Worker(x.Worker); known && w.Own && x.Apart && v.V4 != nil {
		out.V4 = v.V4(host)
	}
	return out
}

// addressOf returns the address of a machine, given its host's; told says whether DNS answers include the machine. A
// machine's own address is computed from its id, so a worker cannot claim another's. It is left out if it is
// unreachable from here: it works on its own host only, unless there is a tunnel.
func (v *Names) addressOf(x *Machine, s *Snapshot, host netip.Addr) (at netip.Addr, told bool) {
	if !x.Apart {
		return host, host.IsValid()
	}
	w, known := s.Worker(x.Worker)
	if !known || !w.Reachable() {
		return at, false
	}
	if !w.Own && (v.Leads == nil || !v.Leads(s, x.Worker)) {
		return at, true
	}
	return v.Addresses.Machine(x.App, x.ID), true
}
