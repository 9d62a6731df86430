package fleet

import (
	"math/rand/v2"
	"net/netip"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/names"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// Names is what a DNS server answers from: started machines, and where they are.
type Names struct {
	Fleet *Fleet
	// Known reports whether there is an app, though it has no machines.
	Known func(app string) bool
	// Host returns the address of a worker's host, which those of its machines have that have none of their own; an
	// invalid one where it is not known, or the worker cannot be heard.
	Host      func(*Snapshot, cluster.WorkerID) netip.Addr
	Addresses *netplan.Addresses // of machines that have one of their own
	// Leads reports whether such addresses of another process's worker can be reached from here; nil: they cannot.
	Leads func(*Snapshot, cluster.WorkerID) bool
	// V4 returns the IPv4 address that a container of this host has beside its own, by which its neighbours there reach
	// it; nil: none is known.
	V4 func(own netip.Addr) netip.Addr
	// Entries returns where connections to an app, or to one of its groups, come in on this host, as names.View says;
	// nil: nowhere.
	Entries func(app, group string) (at names.Entry, known bool)
	// KeepsOut reports whether no machine of an app, or of a group, lets in the container that has an IPv4 address;
	// nil: who asks is not known.
	KeepsOut func(app, group string, asker netip.Addr) bool
}

var _ names.View = (*Names)(nil)

// Started lists machines of an app, or of a group, that take requests: all, or where there are more than most, as many
// of them drawn at random.
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
		} else if at = rand.IntN(seen); at < most { // each has the same chance to stay
			list[at] = v.nameOf(x, s, host)
		}
	}
	return list, known
}

// Named returns the started machine of an app that has an id or a name. Both are in lower case always, as DNS has them.
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

// Entry returns where connections to an app, or to a group, come in.
func (v *Names) Entry(app, group string) (at names.Entry, known bool) {
	if v.Entries == nil {
		return at, false
	}
	return v.Entries(app, group)
}

// Refuses reports whether no machine of an app, or of a group, lets the container in that asks.
func (v *Names) Refuses(app, group string, asker netip.Addr) bool {
	return v.KeepsOut != nil && v.KeepsOut(app, group, asker)
}

// takesRequests reports whether a machine is one that others want when they name its app.
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

// addressOf returns the address of a machine, given its host's, and whether the machine is told of. It is computed, so
// that nobody can tell another's. There is none where it would lead nowhere: it is known at its own host alone, unless
// there is a tunnel.
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
