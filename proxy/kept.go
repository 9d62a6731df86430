package proxy

import (
	"maps"
	"strings"
	"time"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Kept is what souk keeps running of an app as a service, whether or not its machines exist now.
type Kept struct {
	Groups []KeptGroup     // groups with services that should have machines now
	Held   map[string]Held // machines that are held down, by id
}

// KeptGroup is one group of a service.
type KeptGroup struct {
	Name     string
	Services []machine.Service
	From     []string // other apps that its machines let in
}

// Held says why a machine is held down, and when it is tried again.
type Held struct {
	Why   string // one sentence, without a full stop
	Until time.Time
}

// keptEvery bounds how often Options.Kept is called for a service that has no machine for requests.
const keptEvery = 50 * time.Millisecond

// keptOf returns Options.Kept of an app.
func (p *Proxy) keptOf(app string) Kept {
	if p.o.Kept == nil {
		return Kept{}
	}
	return p.o.Kept(app)
}

// hasGroupFor reports whether a group that is to have machines answers to a key.
func (k *Kept) hasGroupFor(key key) bool {
	for _, g := range k.Groups {
		if key.inside.port != 0 && (key.group != "" && key.group != g.Name ||
			!machine.Admits(key.app, g.From, key.from)) {
			continue
		}
		if key.serviceIn(g.Services) != nil {
			return true
		}
	}
	return false
}

// comesBack reports whether an app should have machines at a port, though none exists now.
func (p *Proxy) comesBack(app string, port int) bool {
	kept := p.keptOf(app)
	return kept.hasGroupFor(key{app: app, port: port})
}

// keyKept returns the key of a name that no existing machine has: of a kept app whose machines are about to come. It
// knows names of services[].hosts that were asked for in the last minute.
func (p *Proxy) keyKept(name string) (key, bool) {
	labels := []string{name}
	for _, domain := range p.o.Domains {
		if label, below := strings.CutSuffix(name, "."+domain); below && label != "" {
			if k, kept := (key{app: label}), p.keptOf(label); kept.hasGroupFor(k) {
				return k, true
			}
			labels = append(labels, label)
		}
	}
	for _, host := range labels {
		p.pools.mu.RLock()
		k, known := p.pools.byHost[host]
		p.pools.mu.RUnlock()
		if known {
			if kept := p.keptOf(k.app); kept.hasGroupFor(k) {
				return k, true
			}
		}
	}
	return key{}, false
}

// askKept reads what is kept of a service that has no machine for requests, and reports whether the set of held
// machines has changed. The caller holds the lock.
func (x *pool) askKept(now time.Time) bool {
	if now.Sub(x.keptAt) < keptEvery {
		return false
	}
	x.keptAt = now
	kept := x.p.keptOf(x.key.app)
	x.routes.Expect(kept.hasGroupFor(x.key))
	if maps.Equal(kept.Held, x.held) {
		return false
	}
	x.held = kept.Held
	return true
}

// markHeld marks the machines that are held. The caller holds the lock.
func (x *pool) markHeld(list []routing.Backend) {
	for i := range list {
		if h, held := x.held[list[i].Machine]; held && list[i].Power == routing.Asleep {
			list[i].Held = &fault.Error{Kind: fault.Unavailable, Code: codeHeldDown, Text: h.Why}
			list[i].HeldTill = h.Until
		}
	}
}
