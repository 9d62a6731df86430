package proxy

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// lookEvery is how often the proxy looks for idle machines and missing spares.
const lookEvery = time.Second

// restIdle stops or suspends machines of this process's workers once they were idle for as long as their services say,
// and makes spares, until ctx ends.
func (p *Proxy) restIdle(ctx context.Context) {
	idle, seen := routing.NewIdle(), newWatch()
	spares := newWarmer(p, seen)
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case r := <-spares.results:
			spares.takeResult(time.Now(), r)
			continue
		case <-ctx.Done():
			return
		}
		now := time.Now()
		spares.takeChanged(seen.findChanged(p.o.Fleet.Snapshot()))
		services, targets := p.servicesToRest(seen)
		rests, _ := idle.Step(now, services)
		for _, r := range rests {
			go p.letRest(ctx, targets[r.Machine], r)
		}
		spares.refillSpares(now)
		p.owner.endHalted(ctx, now)
	}
}

func (p *Proxy) letRest(ctx context.Context, t Target, r routing.Rest) {
	err := p.owner.restMachine(ctx, t, r.Suspend)
	p.metrics.countRest(err)
	if err != nil && fault.CodeOf(err) != lifecycle.CodeLeaseHeld &&
		ctx.Err() == nil { // a deploy has the machine: try again later
		p.o.Log.Warn("a machine with nothing to do could not be stopped", "machine", r.Machine, "err", err)
	}
}

// servicesToRest returns the services with a machine of this process that is up and may rest, and those machines.
func (p *Proxy) servicesToRest(seen *watch) (list []routing.Service, targets map[string]Target) {
	targets = map[string]Target{}
	for _, app := range seen.restless {
		list = p.servicesOf(seen.walk.Snapshot(), app, targets, list)
	}
	return list, targets
}

// servicesOf adds the services of an app: machines with the same inside port belong together.
func (p *Proxy) servicesOf(s *fleet.Snapshot, app string, targets map[string]Target,
	list []routing.Service) []routing.Service {
	byPort := map[string]int{}
	for m := range s.MachinesOf(app) {
		w, known := s.Worker(m.Worker)
		own := known && w.Own
		for i := range m.Services {
			svc := &m.Services[i]
			group := groupOf(svc)
			at, seen := byPort[group]
			if !seen {
				at = len(list)
				byPort[group] = at
				list = append(list, routing.Service{Policy: routing.PolicyOf(svc)})
			}
			x := routing.Member{Machine: m.ID, Region: m.Region, Own: own, Load: m.Load,
				Up: m.State == machine.Started && !m.Cordoned && known && w.Reachable()}
			if own {
				t := Target{app, m.ID, svc.InternalPort}
				x.Busy = x.Up && p.owner.comesUp(p.ctx, t, m.Updated)
				x.Load, x.Since = p.owner.loadOf(m.ID)
				if x.Since.Before(m.Updated) {
					x.Since = m.Updated
				}
				targets[m.ID] = t
			}
			list[at].Machines = append(list[at].Machines, x)
		}
	}
	return list
}

// groupOf names the machines that a service shares its load with.
func groupOf(s *machine.Service) string {
	name := connKey("", s.InternalPort)
	for _, h := range s.Hosts {
		name += "|" + h
	}
	return name
}
