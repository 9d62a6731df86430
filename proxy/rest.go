package proxy

import (
	"context"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/routing"
)

// restEvery bounds how often it is looked for machines that have nothing to do.
const restEvery = time.Second

// restIdle stops and suspends machines of this process's workers that have had nothing to do for as long as their
// services say, until ctx ends.
func (p *Proxy) restIdle(ctx context.Context) {
	idle := routing.NewIdle()
	every := time.NewTicker(restEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		services, targets := p.restless()
		rests, _ := idle.Step(time.Now(), services)
		for _, r := range rests {
			go p.letRest(ctx, targets[r.Machine], r)
		}
	}
}

func (p *Proxy) letRest(ctx context.Context, t Target, r routing.Rest) {
	err := p.owner.rest(ctx, t, r.Suspend)
	p.metrics.rested(err)
	if err != nil && fault.CodeOf(err) != "lease_held" && ctx.Err() == nil { // a deploy has it: looked at again
		p.o.Log.Warn("a machine with nothing to do could not be stopped", "machine", r.Machine, "err", err)
	}
}

// restless returns the services that have a machine of this process which is up and may rest, and those machines.
func (p *Proxy) restless() (list []routing.Service, targets map[string]Target) {
	s := p.o.Fleet.Snapshot()
	targets = map[string]Target{}
	apps := map[string]bool{}
	for m := range s.AllMachines() {
		if m.State != machine.Started || apps[m.App] || !rests(m) {
			continue
		}
		if w, known := s.Worker(m.Worker); known && w.Own {
			apps[m.App] = true
		}
	}
	for app := range apps {
		list = p.servicesOf(s, app, targets, list)
	}
	return list, targets
}

// rests reports whether some service of a machine has it rest.
func rests(m *fleet.Machine) bool {
	for i := range m.Services {
		if a := m.Services[i].Autostop; a != nil && *a != "off" {
			return true
		}
	}
	return false
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
