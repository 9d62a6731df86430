package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/limit"
	"github.com/soukhq/souk/internal/strangers"
)

// Options make a proxy. Fleet is needed.
type Options struct {
	Fleet   *fleet.Fleet
	Region  cluster.Region // of the entry
	Workers []Worker       // this process's: it owns their machines
	Far     Far            // reaches other members; nil: there are none
	// Report is called with the load of a machine of Workers whenever that changes. It must not wait. May be nil.
	Report func(machine string, load int)
	// Make copies a machine under a new name, for services that allow it, and returns its id; "" if the name is taken:
	// another entry made it. A warm one is not started. nil: none is made.
	Make func(ctx context.Context, a Another) (id string, err error)
	// Kept returns what souk keeps running of an app as a service. nil: nothing.
	Kept func(app string) Kept
	// Domains are the domains below which each app has a name: with "localhost" app shop is shop.localhost.
	Domains []string
	// Trusted are the addresses of proxies in front that may name their clients (X-Forwarded-For and the like).
	Trusted []netip.Prefix
	// ProxyProtocol are the addresses of TCP proxies in front whose connections begin with a PROXY protocol header, at
	// each door.
	ProxyProtocol []netip.Prefix
	// Listen opens a port that a service asks for; TLS is the config of ports that end TLS here. nil: only HTTP is
	// served, by name.
	Listen func(port int) (net.Listener, error)
	TLS    *tls.Config
	// Front wraps the handler of doors for HTTP in the clear, to answer requests that are for no app; may be nil.
	Front func(http.Handler) http.Handler
	Hold  time.Duration // how long a request waits for a machine at most; 0: 60 s
	// HeldApp and HeldAll bound how many requests wait for machines of one app, and of all; 0: 2,048 and 8,192.
	HeldApp, HeldAll int
	Access           io.Writer    // access log, one line of JSON per request; nil: none
	Sample           float64      // share of successful requests that Access logs; 0: all
	Log              *slog.Logger // nil: nothing is logged
}

// Another says which machine to make.
type Another struct {
	App, Like, Name string
	Warm            bool // do not start it: it is woken later
}

// Bounds of requests.
const (
	defaultHold = 60 * time.Second
	idleTime    = 5 * time.Minute  // for an answer's head, and between two pieces, unless the config sets another
	silentTime  = time.Hour        // without a byte either way on an upgraded connection
	maxHead     = 64 << 10         // bytes of a request's head
	headTime    = 10 * time.Second // for the head to arrive
	keepTime    = 75 * time.Second // how long an idle client connection is kept
	poolTime    = time.Minute      // a pool that nobody used for so long is dropped
)

// Proxy is the proxy of one member. Its methods may be called from many goroutines.
type Proxy struct {
	o       Options
	name    string // random, unique among all members' proxies
	began   time.Time
	ctx     context.Context //nolint:containedctx // of wakes, which outlast the requests that began them
	end     context.CancelFunc
	owner   *owner
	far     *farOwners
	pools   pools
	doors   doors
	shown   shownCerts
	metrics *metrics
	access  *accessLog
	recent  recent
	strays  strays
	members limit.Group       // requests of other members that are under way here
	idle    *strangers.Places // of connections at which no request is under way
}

// New makes a proxy. It serves nothing yet: see Serve and Run.
func New(o Options) *Proxy {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Hold = cmp.Or(o.Hold, defaultHold)
	p := &Proxy{o: o, name: strconv.FormatUint(rand.Uint64(), 36), began: time.Now(),
		owner: newOwner(o.Workers, o.Report), idle: strangers.New(strangers.Most())}
	p.metrics = newMetrics(p.hasMachines)
	p.pools.places.Each = cmp.Or(o.HeldApp, maxHeldApp)
	p.pools.places.All = min(cmp.Or(o.HeldAll, maxHeldMember), strangers.Most())
	p.ctx, p.end = context.WithCancel(context.Background())
	p.pools.byHost = map[string]key{}
	p.pools.byKey, p.pools.wait, p.pools.come = map[key]*pool{}, map[*pool]bool{}, make(chan struct{}, 1)
	p.far = &farOwners{p: p, reach: o.Far, returns: map[cluster.WorkerID]time.Time{}}
	p.far.conns.Believed = true
	p.far.dials.conns, p.far.dials.lines.Each = &p.far.conns, farDials
	p.access = newAccessLog(o.Access, o.Sample)
	return p
}

// Run does the background work until ctx ends: it sends waiting requests on when the fleet changes, and stops idle
// machines. It then goes on while the doors serve their last requests, and returns when they have ended.
func (p *Proxy) Run(ctx context.Context) error {
	carry, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g, beside errgroup.Group
	beside.Go(func() error { p.followPools(carry); return nil })
	beside.Go(func() error { p.dropUnused(carry); return nil })
	g.Go(func() error { p.restIdle(ctx); return nil })
	g.Go(func() error { p.openPorts(ctx); return nil })
	g.Go(func() error { p.endMembers(ctx); return nil })
	err := g.Wait()
	_ = p.doors.open.Wait(context.Background())
	end()
	err = errors.Join(err, beside.Wait())
	p.end()
	p.owner.conns.Close()
	p.far.conns.Close()
	p.access.close()
	return err
}

// The pace at which waiting requests are reconsidered: when the fleet has changed, but at most each followEvery, and
// without a change each tickEvery, since a full machine may have a place again.
const (
	followEvery = 2 * time.Millisecond
	tickEvery   = 50 * time.Millisecond
)

// followPools refreshes the pools at which requests wait.
func (p *Proxy) followPools(ctx context.Context) {
	for {
		past := p.o.Fleet.Snapshot().Past()
		now := time.Now()
		waiting := p.pools.listWaiting()
		for _, x := range waiting {
			x.mu.Lock()
			if x.routes.Held() > 0 {
				x.refreshBackends(now)
				x.carryOut(x.routes.Tick(now, x.rng))
			} else {
				p.pools.removeWaiting(x)
			}
			x.mu.Unlock()
		}
		tick := (<-chan time.Time)(nil)
		if len(waiting) > 0 {
			tick = time.After(tickEvery)
		} else {
			past = nil
		}
		select {
		case <-past:
		case <-tick:
		case <-p.pools.come:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return
		}
	}
}

// dropUnused drops unused pools, gates and connections.
func (p *Proxy) dropUnused(ctx context.Context) {
	every := time.NewTicker(10 * time.Second)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		p.owner.conns.Sweep()
		p.far.conns.Sweep()
		p.owner.closeSilent()
		p.owner.h2.dropUnused()
		p.far.h2.dropUnused()
		now := time.Now()
		p.pools.dropUseless(func(x *pool) bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			return now.Sub(x.used) > poolTime && x.routes.Held() == 0 && x.routes.Load() == 0
		})
		s := p.o.Fleet.Snapshot()
		p.owner.forgetGates(func(id string) bool { _, known := s.Machine(id); return known })
	}
}

func (p *pools) forEach(f func(key, *pool)) {
	p.mu.RLock()
	list := make(map[key]*pool, len(p.byKey))
	for k, x := range p.byKey {
		list[k] = x
	}
	p.mu.RUnlock()
	for k, x := range list {
		f(k, x)
	}
}

// dropUseless drops the pools that useless reports. A request that found such a pool before can still use it.
func (p *pools) dropUseless(useless func(*pool) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, x := range p.byKey {
		if useless(x) {
			delete(p.byKey, k)
			if p.byHost[k.host] == k {
				delete(p.byHost, k.host)
			}
		}
	}
}
