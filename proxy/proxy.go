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
	Workers []Worker       // of this process: it is the owner of their machines
	Far     Far            // reaches other members; nil: there are none
	// Report is told how much a machine of Workers has to do, whenever that changes. It must not wait. nil: nobody is.
	Report func(machine string, load int)
	// Make makes another machine of an app like one that is there, under a name, for services that allow it, and
	// returns its id; "" where the name is taken: somebody else made it. A warm one is not started. nil: none is made.
	Make func(ctx context.Context, a Another) (id string, err error)
	// Kept says what is kept of an app as a service. nil: nothing is.
	Kept func(app string) Kept
	// Domains are those below which each app has its name, as "localhost": app shop is shop.localhost.
	Domains []string
	// Trusted are who may say for whom they ask (X-Forwarded-For and the like): other proxies in front.
	Trusted []netip.Prefix
	// ProxyProtocol are those whose connections begin with a header of the PROXY protocol, at each door: proxies in
	// front that pass on bytes.
	ProxyProtocol []netip.Prefix
	// Listen opens a port that some app's service asks for, and TLS is what those have that end TLS here. nil: only
	// HTTP is served, by name.
	Listen func(port int) (net.Listener, error)
	TLS    *tls.Config
	// Front stands before the doors for HTTP in the clear, for what asks them and means no app; nil: nothing does.
	Front func(http.Handler) http.Handler
	Hold  time.Duration // how long a request waits for a machine at most; 0: 60 s
	// HeldApp and HeldAll bound how many requests wait for machines of one app, and of all; 0: 2,048 and 8,192.
	HeldApp, HeldAll int
	Access           io.Writer    // gets a line of JSON for each request; nil: none is written
	Sample           float64      // which share of requests Access gets, those that fail always; 0: all
	Log              *slog.Logger // nil: nothing is logged
}

// Another says which machine is made.
type Another struct {
	App, Like, Name string
	Warm            bool // it is to be woken later
}

// Bounds of requests.
const (
	defaultHold = 60 * time.Second
	idleTime    = 5 * time.Minute  // for the head of an answer, and between two pieces, unless the config says another
	silentTime  = time.Hour        // without a byte either way on a connection that became another protocol's
	maxHead     = 64 << 10         // bytes of a request's head
	headTime    = 10 * time.Second // for it to arrive
	keepTime    = 75 * time.Second // a client's connection without a request
	poolTime    = time.Minute      // a pool that nobody used for so long is dropped
)

// Proxy is one member's. Its methods may be called from many goroutines.
type Proxy struct {
	o       Options
	name    string // among the proxies of all members, drawn
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

// Run does what has to be done beside requests until ctx ends: those that wait are sent on when the fleet changes, and
// machines that have nothing to do are let rest. It returns when the doors have ended too, whose requests it goes on to
// serve meanwhile.
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

// The pace at which those are looked at who wait: as soon as the fleet has changed, but not more often than
// followEvery, and where nothing changes each tickEvery, since a machine that had no place for a request is asked again.
const (
	followEvery = 2 * time.Millisecond
	tickEvery   = 50 * time.Millisecond
)

// followPools brings those pools up to date at which requests wait.
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

// dropUnused drops what is not in use any more.
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

// dropUseless drops the pools that are of no use. One that was found before it was dropped works on, and is forgotten.
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
