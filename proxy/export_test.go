package proxy

import (
	"context"
	"time"

	"github.com/soukhq/souk/internal/strangers"
)

// Pools returns how many pools there are.
func (p *Proxy) Pools() (n int) {
	p.pools.forEach(func(key, *pool) { n++ })
	return n
}

// CloseSilent closes the connections that have been silent for too long.
func (p *Proxy) CloseSilent() { p.owner.closeSilent() }

// BoundIdle sets how many connections may have no request.
func (p *Proxy) BoundIdle(n int) { p.idle = strangers.New(n) }

// Load returns what a machine has to do.
func (p *Proxy) Load(id string) int {
	n, _ := p.owner.loadOf(id)
	return n
}

// Rest lets a machine rest now, if it has nothing to do.
func (p *Proxy) Rest(ctx context.Context, app, machine string) error {
	_, m, err := p.owner.findMachine(ctx, Target{App: app, Machine: machine})
	if err != nil || m.State != "started" {
		return err
	}
	return p.owner.restMachine(ctx, Target{App: app, Machine: machine}, false)
}

// Looks returns what looks at the fleet for idle machines and missing spares, once each time it is called.
func (p *Proxy) Looks() func() {
	seen := newWatch()
	spares := newWarmer(p, seen)
	return func() {
		spares.takeChanged(seen.findChanged(p.o.Fleet.Snapshot()))
		p.servicesToRest(seen)
		spares.refillSpares(time.Now())
	}
}

// EndHalted ends the requests that have waited, at a time, for long for a machine that is stopped by a signal.
func (p *Proxy) EndHalted(now time.Time) { p.owner.endHalted(context.Background(), now) }

// InsidePlaces counts connections of machines in and out, of which there may be so many.
func InsidePlaces(most int) (enter func(machine string) bool, leave func(machine string)) {
	var d insideDoor
	d.setBounds(most)
	enter = func(machine string) bool {
		if !d.all.Enter() {
			return false
		}
		if d.of.Enter(machine) {
			return true
		}
		d.all.Leave()
		return false
	}
	return enter, func(machine string) { d.of.Leave(machine); d.all.Leave() }
}
