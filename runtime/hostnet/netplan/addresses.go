package netplan

import (
	"net/netip"
	"sync"

	"github.com/soukhq/souk/cluster"
)

// Addresses computes addresses in a network. An app's prefix takes a millisecond to compute, so prefixes are cached.
type Addresses struct {
	Of netip.Prefix // see cluster.Network

	mu   sync.Mutex
	apps map[string]netip.Prefix // cached; at most maxApps
}

const maxApps = 4096

// App returns the prefix of an app's machines.
func (a *Addresses) App(app string) netip.Prefix {
	a.mu.Lock()
	p, known := a.apps[app]
	a.mu.Unlock()
	if known {
		return p
	}
	p = cluster.AppNetwork(a.Of, app)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.apps == nil || len(a.apps) >= maxApps {
		a.apps = map[string]netip.Prefix{}
	}
	a.apps[app] = p
	return p
}

// Machine returns the address of a machine.
func (a *Addresses) Machine(app, id string) netip.Addr { return cluster.MachineAddress(a.App(app), id) }
