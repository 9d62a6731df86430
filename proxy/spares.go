package proxy

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/machine"
)

// mostSpares bounds how many spares one member makes and suspends at once.
const mostSpares = 4

// ripenAgain is the pause before a spare is started again to be suspended, after a failure.
var ripenAgain = backoff.Doubling{Base: time.Second, Most: 5 * time.Minute}

// warmApp is an app with services that keep spares.
type warmApp struct {
	app      string
	machines []fleet.Seen // sorted by name; empty: it keeps no spares any more
	changed  bool         // machines changed since the last lookAt
	due      time.Time
	services map[string]*warmService // by groupOf
	ripening map[string]*ripening    // by machine
}

// isBusy reports whether a spare of the app is being made or suspended.
func (a *warmApp) isBusy() bool {
	for _, s := range a.services {
		if s.making {
			return true
		}
	}
	for _, r := range a.ripening {
		if r.busy {
			return true
		}
	}
	return false
}

// warmService is a service that keeps spares.
type warmService struct {
	policy routing.Policy
	named  string
	list   []routing.Standing
	spares routing.Spares
	making bool
	counts [3]int // its part of the gauges: asleep, coming, missing
}

// ripening is a spare of this process that is started once to be suspended.
type ripening struct {
	busy     bool
	failures int
	at       time.Time // not tried again before
}

// warmer makes and suspends spares. It belongs to one goroutine; the work that it begins reports to results.
type warmer struct {
	p       *Proxy
	results chan warmResult
	under   int       // spares being made or suspended
	quiet   time.Time // until then the fleet may be incomplete
	seen    *watch
	apps    map[string]*warmApp
	counts  [3]int // sum over all services
}

// warmResult is the outcome of making or suspending a spare.
type warmResult struct {
	app, service string
	machine      string // the spare to suspend; "": one was made
	err          error
}

func newWarmer(p *Proxy, seen *watch) *warmer {
	x := &warmer{p: p, results: make(chan warmResult, mostSpares), seen: seen, apps: map[string]*warmApp{}}
	if p.o.Far != nil {
		x.quiet = time.Now().Add(routing.SettleFor)
	}
	return x
}

// takeChanged marks the apps whose machines have changed.
func (x *warmer) takeChanged(changed []string) {
	for _, app := range changed {
		a := x.apps[app]
		if a == nil {
			a = &warmApp{app: app, services: map[string]*warmService{}}
			x.apps[app] = a
		}
		a.machines, a.changed = x.seen.walk.Of(app), true
	}
}

// refillSpares starts the work that the spares need now.
func (x *warmer) refillSpares(now time.Time) {
	for app, a := range x.apps {
		if a.changed || !a.due.IsZero() && !now.Before(a.due) {
			x.lookAt(now, a)
		}
		if len(a.machines) == 0 && !a.isBusy() {
			delete(x.apps, app)
		}
	}
	for i, state := range []string{"asleep", "coming", "missing"} {
		x.p.metrics.warm.WithLabelValues(state).Set(float64(x.counts[i]))
	}
}

// lookAt checks one app's spares.
func (x *warmer) lookAt(now time.Time, a *warmApp) {
	a.changed, a.due = false, time.Time{}
	a.groupMachines()
	for group, s := range a.services {
		r := s.spares.Step(now, &s.policy, s.list)
		own := x.actsFor(a, r)
		x.countSpares(s, r, own)
		if len(s.list) == 0 {
			if !s.making {
				delete(a.services, group)
			}
			continue
		}
		a.lookAgainAt(r.Again)
		if own && r.Like != "" {
			x.makeSpare(now, a, group, s, r.Like)
		}
	}
	x.ripenSpares(now, a)
}

// lookAgainAt schedules a check of an app at the given time or before; zero: none.
func (a *warmApp) lookAgainAt(at time.Time) {
	if !at.IsZero() && (a.due.IsZero() || at.Before(a.due)) {
		a.due = at
	}
}

// groupMachines groups an app's machines by the services that keep spares. A service's first machine gives its policy.
func (a *warmApp) groupMachines() {
	for _, s := range a.services {
		s.policy, s.list = routing.Policy{}, s.list[:0]
	}
	for _, m := range a.machines {
		for i := range m.Services {
			svc := &m.Services[i]
			group := groupOf(svc)
			s := a.services[group]
			if s == nil {
				s = &warmService{spares: routing.Spares{Of: a.app}}
				a.services[group] = s
			}
			if len(s.list) == 0 {
				s.policy, s.named = routing.PolicyOf(svc), nameOf(a.app, svc)
			}
			s.list = append(s.list, routing.Standing{Backend: backendOf(m.Machine, svc, m.Heard),
				Leaving: m.State == machine.Destroying, Made: routing.IsNameOf(s.named, m.Name),
				Slept: m.State == machine.Stopped || m.State == machine.Suspended})
		}
	}
}

// actsFor reports whether this member acts for a service.
func (x *warmer) actsFor(a *warmApp, r routing.Refill) bool {
	return slices.ContainsFunc(a.machines, func(m fleet.Seen) bool { return m.Own && m.Worker == r.At })
}

// countSpares brings the gauges up to date.
func (x *warmer) countSpares(s *warmService, r routing.Refill, own bool) {
	var now [3]int
	if own && s.policy.Warm > 0 {
		now = [3]int{r.Asleep, r.Coming, r.Lacks}
	}
	for i := range now {
		x.counts[i] += now[i] - s.counts[i]
	}
	s.counts = now
}

// makeSpare makes a spare, a copy of the machine like.
func (x *warmer) makeSpare(now time.Time, a *warmApp, group string, s *warmService, like string) {
	if x.p.o.Make == nil {
		return
	}
	if x.under >= mostSpares || now.Before(x.quiet) || x.hasUnreported() {
		a.lookAgainAt(now.Add(lookEvery))
		return
	}
	x.under++
	s.making = true
	s.spares.Making()
	another := Another{App: a.app, Like: like, Name: freeName(x.p.o.Fleet.Snapshot(), a.app, s.named), Warm: true}
	go func() {
		id, err := x.p.makeAnother(another)
		x.p.metrics.spares.WithLabelValues(warmText(id, err)).Inc()
		if err != nil && x.p.ctx.Err() == nil {
			x.p.o.Log.Warn("a spare could not be made", "app", another.App, "name", another.Name, "err", err)
		}
		x.results <- warmResult{app: a.app, service: group, err: err}
	}()
}

// warmText returns the counter's label for how making a spare ended.
func warmText(id string, err error) string {
	switch {
	case err != nil:
		return cmp.Or(string(fault.CodeOf(err)), string(fault.KindOf(err)))
	case id == "":
		return "name_taken"
	}
	return "ok"
}

// hasUnreported reports whether a reachable worker has not reported its machines yet: they may include spares.
func (x *warmer) hasUnreported() bool {
	s := x.seen.walk.Snapshot()
	if len(s.MustAsk()) == 0 {
		return false
	}
	for w := range s.Workers() {
		if !w.Own && !w.Reported && w.Reachable() {
			return true
		}
	}
	return false
}

// takeResult handles a finished job. If a spare was made, its app is checked once the new machine shows up.
func (x *warmer) takeResult(now time.Time, r warmResult) {
	x.under--
	a := x.apps[r.app]
	after := time.Duration(0)
	if e := fault.As(r.err); e != nil {
		after = e.RetryAfter
	}
	if r.machine != "" {
		y := a.ripening[r.machine]
		if y.busy = false; r.err == nil {
			y.failures = 0
			y.at = now.Add(routing.SettleFor) // until gossip has spread its state
		} else {
			y.at = now.Add(max(after, ripenAgain.After(y.failures)))
			y.failures++
		}
		a.lookAgainAt(y.at)
		return
	}
	s := a.services[r.service]
	s.making = false
	s.spares.Made(now, r.err, after)
	x.takeChanged(x.seen.findChanged(x.p.o.Fleet.Snapshot()))
	x.lookAt(now, a)
}

// ripenSpares suspends this process's spares that never ran, for services whose machines rest suspended.
func (x *warmer) ripenSpares(now time.Time, a *warmApp) {
	maps.DeleteFunc(a.ripening, func(id string, r *ripening) bool {
		return !r.busy && !slices.ContainsFunc(a.machines, func(m fleet.Seen) bool { return m.ID == id })
	})
	for _, m := range a.machines {
		if !m.Own || m.State != machine.Created || m.Cordoned {
			continue
		}
		for i := range m.Services {
			s := a.services[groupOf(&m.Services[i])]
			if s.policy.Warm > 0 && s.policy.Autostop == routing.IsSuspended && routing.IsNameOf(s.named, m.Name) {
				x.ripenOne(now, a, Target{a.app, m.ID, m.Services[i].InternalPort})
				break
			}
		}
	}
}

func (x *warmer) ripenOne(now time.Time, a *warmApp, t Target) {
	r := a.ripening[t.Machine]
	if r == nil {
		r = &ripening{}
		if a.ripening == nil {
			a.ripening = map[string]*ripening{}
		}
		a.ripening[t.Machine] = r
	}
	switch {
	case r.busy:
	case now.Before(r.at):
		a.lookAgainAt(r.at)
	case x.under >= mostSpares:
		a.lookAgainAt(now.Add(lookEvery))
	default:
		r.busy = true
		x.under++
		go func() {
			ctx, cancel := context.WithTimeout(x.p.ctx, makeTime)
			defer cancel()
			err := x.p.owner.ripenSpare(ctx, t)
			x.p.metrics.countRest(err)
			if err != nil && ctx.Err() == nil {
				x.p.o.Log.Warn("a spare could not be started and suspended", "machine", t.Machine, "err", err)
			}
			x.results <- warmResult{app: a.app, machine: t.Machine, err: err}
		}()
	}
}
