package proxy

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/limit"
	"github.com/soukhq/souk/machine"
)

// key names the machines behind one service: those of an app that answer to a host, or that have an outside port.
type key struct {
	app  string
	host string // one of services[].hosts; "": the app's own name
	port int    // the port of a port door; 0: HTTP by host
	inside
}

// serviceIn returns the service that a key means among a machine's; nil: none.
func (k key) serviceIn(services []machine.Service) *machine.Service {
	for i := range services {
		s := &services[i]
		switch {
		case k.inside.port != 0:
			if s.InternalPort == k.inside.port && s.Protocol != "udp" {
				return s
			}
		case k.port != 0:
			if hasPort(s, k.port) {
				return s
			}
		case !s.IsHTTP():
		case k.host == "" && len(s.Hosts) == 0 || k.host != "" && slices.Contains(s.Hosts, k.host):
			return s
		}
	}
	return nil
}

// serviceOf returns the service of a machine that a key means; nil: the key does not mean the machine.
func (k key) serviceOf(m *fleet.Machine) *machine.Service {
	if k.inside.port != 0 && (!m.IsOf(k.group) || !m.Admits(k.from)) {
		return nil
	}
	return k.serviceIn(m.Services)
}

func hasPort(s *machine.Service, port int) bool {
	return slices.ContainsFunc(s.Ports, func(p machine.Port) bool { return portIn(&p, port) })
}

// portIn reports whether p is port, or a range that contains it.
func portIn(p *machine.Port, port int) bool {
	if p.Port != nil {
		return *p.Port == port
	}
	return p.StartPort != nil && p.EndPort != nil && *p.StartPort <= port && port <= *p.EndPort
}

// backend is a machine behind a service.
type backend struct {
	Target
	worker cluster.WorkerID
	own    bool // of this process
	conn   string
	idle   time.Duration // longest pause within an answer
	h2     bool          // requests to it use HTTP/2

	answers *answers // what its config sets in answers; nil: nothing
}

// pool is a routing.Pool with its lock, its clock and the waiting requests.
type pool struct {
	p   *Proxy
	key key

	mu       sync.Mutex
	routes   *routing.Pool
	rng      *rand.Rand
	snapshot *fleet.Snapshot // the snapshot of the last refresh
	facts    []fact          // what snapshot says of this pool's machines: equal facts mean no change
	backends map[string]*backend
	waiting  map[routing.Ticket]chan verdict
	wakes    map[string]wake // each machine's newest
	ignored  []ignored       // rules of requests that no machine gets
	able     bool            // some machine is up and well, or may be woken
	named    string          // base name of machines made for the load
	used     time.Time
	held     map[string]Held
	keptAt   time.Time // when Options.Kept was last called
	due      time.Time // refresh then even without a new snapshot; zero: no need
}

// fact is a machine and its worker in a snapshot. Both are immutable: a change makes a new pointer.
type fact struct {
	machine *fleet.Machine
	worker  *fleet.Worker // nil: unknown
}

// verdict is the router's decision on a request, with the chosen machine, which may leave the pool a moment later.
type verdict struct {
	routing.Out
	backend *backend // with routing.Send
}

// wake is a successful wake.
type wake struct {
	Phases
	at time.Time
}

// grant is a machine's place for a request.
type grant struct {
	pool    *pool
	ticket  routing.Ticket
	backend *backend
	held    time.Duration
	woke    *Phases // the wake that the request waited for; nil: the machine was up
}

// Bounds of requests that wait for a machine. Each takes a goroutine, a file descriptor and some 40 KB of memory.
const (
	maxHeldApp    = routing.MaxHeld // of one app
	maxHeldMember = 4 * maxHeldApp  // of all
)

// pools holds the pools in use.
type pools struct {
	mu     sync.RWMutex
	byKey  map[key]*pool
	byHost map[string]key // keys of byKey that name a host of services[].hosts
	ticket atomic.Uint64
	// places bounds the waiting requests by app: an app whose machines do not come up takes no other app's places.
	places limit.Shares[string]

	waitMu sync.Mutex
	wait   map[*pool]bool // pools at which requests wait
	come   chan struct{}  // signals that a pool was added to wait
}

// addWaiting adds a pool to those at which requests wait.
func (p *pools) addWaiting(x *pool) {
	p.waitMu.Lock()
	p.wait[x] = true
	p.waitMu.Unlock()
	select {
	case p.come <- struct{}{}:
	default:
	}
}

// removeWaiting drops a pool without waiters from those at which requests wait. The caller holds the pool's lock.
func (p *pools) removeWaiting(x *pool) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	delete(p.wait, x)
}

// listWaiting returns the pools at which requests may wait.
func (p *pools) listWaiting() []*pool {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	return slices.Collect(maps.Keys(p.wait))
}

// poolOf returns the pool of a key, and makes it on first use.
func (p *Proxy) poolOf(k key) *pool {
	p.pools.mu.RLock()
	x := p.pools.byKey[k]
	p.pools.mu.RUnlock()
	if x != nil {
		return x
	}
	p.pools.mu.Lock()
	defer p.pools.mu.Unlock()
	if x = p.pools.byKey[k]; x == nil {
		x = &pool{p: p, key: k, routes: routing.NewPool(), rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
			waiting: map[routing.Ticket]chan verdict{}, wakes: map[string]wake{}}
		p.pools.byKey[k] = x
		if k.host != "" {
			p.pools.byHost[k.host] = k
		}
	}
	return x
}

// refreshBackends brings a pool up to date. The caller holds its lock.
func (x *pool) refreshBackends(now time.Time) {
	s := x.p.o.Fleet.Snapshot()
	late := !x.due.IsZero() && !now.Before(x.due)
	if x.backends != nil && !x.able && x.askKept(now) {
		late = true
	}
	if s == x.snapshot && !late {
		return
	}
	x.snapshot = s
	facts := make([]fact, 0, len(x.facts))
	for m := range s.MachinesOf(x.key.app) {
		if x.key.serviceOf(m) != nil {
			w, _ := s.Worker(m.Worker)
			facts = append(facts, fact{m, w})
		}
	}
	if x.backends != nil && slices.Equal(facts, x.facts) && !late {
		return
	}
	list := make([]routing.Backend, 0, len(facts))
	var policy routing.Policy
	backends := make(map[string]*backend, len(facts))
	x.ignored, x.able, x.due = nil, false, time.Time{}
	for i, f := range facts {
		m, w, known := f.machine, f.worker, f.worker != nil
		svc := x.key.serviceIn(m.Services)
		if i == 0 {
			policy, x.ignored, x.named = routing.PolicyOf(svc), ignoredOf(svc), nameOf(x.key.app, svc)
			if x.p.o.Make == nil {
				policy.CreateUpTo = 0
			}
		}
		b := &backend{Target: Target{x.key.app, m.ID, svc.InternalPort}, worker: m.Worker, own: known && w.Own,
			conn: connKey(m.ID, svc.InternalPort)}
		b.h2, b.idle = optionsOf(svc)
		b.answers = answersOf(svc)
		backends[m.ID] = b
		one := backendOf(m, svc, known && w.Reachable() || x.awaitsSuccessor(now, m.Worker))
		one.Where = x.p.whereIs(m, b)
		x.able = x.able || one.Able()
		list = append(list, one)
	}
	if !x.able {
		x.askKept(now)
		x.markHeld(list)
	}
	x.facts, x.backends = facts, backends
	maps.DeleteFunc(x.wakes, func(id string, _ wake) bool { return backends[id] == nil })
	x.carryOut(x.routes.View(now, x.rng, policy, list))
}

// awaitsSuccessor reports whether a leaving member's next process is awaited, and schedules a refresh for when that
// ends. The caller holds the lock.
func (x *pool) awaitsSuccessor(now time.Time, id cluster.WorkerID) bool {
	by := x.p.far.returnsBy(id)
	if !now.Before(by) {
		return false
	}
	if x.due.IsZero() || by.Before(x.due) {
		x.due = by
	}
	return true
}

// backendOf returns the routing.Backend of a machine behind a service, without its location.
func backendOf(m *fleet.Machine, s *machine.Service, heard bool) routing.Backend {
	return routing.Backend{Machine: m.ID, Worker: m.Worker, Region: m.Region, Power: routing.PowerOf(m.State),
		Unheard: !heard, Failing: m.Failing, Cordoned: m.Cordoned, Load: m.Load,
		Autostart: s.Autostart == nil || *s.Autostart, Moved: m.Updated,
		Unproven: m.State == machine.Started && !m.Ready || m.State == machine.Restarting}
}

func (p *Proxy) whereIs(m *fleet.Machine, b *backend) routing.Where {
	switch {
	case b.own:
		return routing.Here
	case m.Region == p.o.Region:
		return routing.InRegion
	}
	return routing.Elsewhere
}

// optionsOf returns a service's options for requests to its machines.
func optionsOf(s *machine.Service) (h2 bool, idle time.Duration) {
	idle = idleTime
	for _, p := range s.Ports {
		if o := p.HTTPOptions; o != nil {
			h2 = h2 || o.H2Backend != nil && *o.H2Backend
			if o.IdleTimeout != nil && *o.IdleTimeout > 0 {
				idle = time.Duration(*o.IdleTimeout) * time.Second
			}
		}
	}
	return h2, idle
}

// carryOut carries out the router's decisions: it hands them to waiting requests, and wakes machines. The caller holds
// the lock.
func (x *pool) carryOut(outs []routing.Out) {
	for _, o := range outs {
		switch o.Do {
		case routing.Wake:
			go x.wakeMachine(x.backends[o.Machine])
		case routing.Create:
			go x.makeMachine(o.Machine, x.freeName())
		case routing.Send, routing.Refuse:
			if ch := x.waiting[o.Ticket]; ch != nil {
				delete(x.waiting, o.Ticket)
				ch <- verdict{o, x.backends[o.Machine]}
			}
		}
	}
}

// acquireMachine returns a machine for a request. It may wait for one, no longer than until; an error says why there is
// none.
func (x *pool) acquireMachine(ctx context.Context, until time.Time, ask routing.Ask) (*grant, error) {
	ask.Ticket = routing.Ticket(x.p.pools.ticket.Add(1))
	return x.awaitTicket(ctx, until, ask.Ticket, func(now time.Time) []routing.Out {
		x.refreshBackends(now)
		return x.routes.Arrive(now, x.rng, ask)
	})
}

// awaitTicket steps the router, and waits for its decision on a ticket.
func (x *pool) awaitTicket(ctx context.Context, until time.Time, t routing.Ticket, step func(time.Time) []routing.Out,
) (*grant, error) {
	now := time.Now()
	x.mu.Lock()
	x.used = now
	outs := step(now)
	if len(outs) == 1 && outs[0].Ticket == t && outs[0].Do == routing.Send { // the usual case
		g := &grant{pool: x, ticket: t, backend: x.backends[outs[0].Machine]}
		x.mu.Unlock()
		return g, nil
	}
	ch := make(chan verdict, 1)
	x.waiting[t] = ch
	x.carryOut(outs)
	held := x.waiting[t] != nil
	if held && !x.p.pools.places.Enter(x.key.app) {
		delete(x.waiting, t)
		x.routes.Left(t)
		x.mu.Unlock()
		return nil, refusalOf(x.key, &routing.Out{Reason: routing.Full, After: time.Second})
	}
	x.p.pools.addWaiting(x)
	x.mu.Unlock()
	if held {
		defer x.p.pools.places.Leave(x.key.app)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case o := <-ch:
		return x.grantOf(o, t, now)
	case <-ctx.Done():
	}
	x.mu.Lock()
	delete(x.waiting, t)
	x.routes.Left(t)
	select {
	case o := <-ch: // decided at the last moment
		x.mu.Unlock()
		return x.grantOf(o, t, now)
	default:
	}
	x.mu.Unlock()
	return nil, heldTooLong(ctx, x.key.app, time.Since(now))
}

func (x *pool) grantOf(o verdict, t routing.Ticket, since time.Time) (*grant, error) {
	if o.Do == routing.Refuse {
		return nil, refusalOf(x.key, &o.Out)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	g := &grant{pool: x, ticket: t, backend: o.backend, held: time.Since(since)}
	if k, woken := x.wakes[o.Machine]; woken && k.at.After(since) {
		g.woke = &k.Phases
	}
	return g, nil
}

// giveBack returns the machine's place to the pool.
func (g *grant) giveBack() {
	x := g.pool
	now := time.Now()
	x.mu.Lock()
	x.carryOut(x.routes.Done(now, x.rng, g.ticket))
	x.mu.Unlock()
}

// tryAnother gives back a machine that did not take the request, and returns another.
func (g *grant) tryAnother(ctx context.Context, until time.Time, c *correction) (*grant, error) {
	x := g.pool
	next, err := x.awaitTicket(ctx, until, g.ticket, func(now time.Time) []routing.Out {
		x.refreshBackends(now)
		return x.routes.Corrected(now, x.rng, g.ticket, c.kind, c.err)
	})
	if next != nil {
		next.held += g.held
	}
	return next, err
}

// wakeMachine asks a machine's owner to wake it.
func (x *pool) wakeMachine(b *backend) {
	ctx, cancel := context.WithTimeout(x.p.ctx, wakeTime)
	defer cancel()
	phases, err := x.p.wakeAt(ctx, b)
	x.p.metrics.countWake(phases, err)
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		x.wakes[b.Machine] = wake{phases, now}
	}
	x.refreshBackends(now)
	x.carryOut(x.routes.Woken(now, x.rng, b.Machine, err))
}

// makeTime bounds the making of a machine, whose image may have to be fetched.
const makeTime = 2 * time.Minute

// makeAnother makes another machine, and returns its id; "": another entry has made it.
func (p *Proxy) makeAnother(a Another) (id string, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, makeTime)
	defer cancel()
	return p.o.Make(ctx, a)
}

// makeMachine makes another machine for the load, a copy of the machine like.
func (x *pool) makeMachine(like, name string) {
	id, err := x.p.makeAnother(Another{App: x.key.app, Like: like, Name: name})
	x.p.metrics.countMade(err)
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refreshBackends(now)
	x.carryOut(x.routes.Made(now, x.rng, id, err))
}

// freeName returns the name of the next machine that is made for the load. It is called with the lock.
func (x *pool) freeName() string { return freeName(x.snapshot, x.key.app, x.named) }

// freeName returns the name of the next machine that is made for a service of an app.
func freeName(s *fleet.Snapshot, app, service string) string {
	return routing.NameOf(service, func(name string) bool { _, taken := s.Named(app, name); return taken })
}

// nameOf returns the base name of machines made for a service: one of the service's host names, or the app.
func nameOf(app string, s *machine.Service) string {
	if len(s.Hosts) > 0 {
		return s.Hosts[0]
	}
	return app
}

// wakeAt wakes a machine here or at the member that has it.
func (p *Proxy) wakeAt(ctx context.Context, b *backend) (Phases, error) {
	if b.own {
		return p.owner.wakeMachine(ctx, b.Target)
	}
	return p.far.wakeMachine(ctx, b.worker, b.Target)
}
