package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/limit"
	"github.com/soukhq/souk/internal/strangers"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// Inside describes a connection from a machine of this host to another app: to an internal port of a service of the
// app, or of one of its groups.
type Inside struct {
	App, Group string
	Port       int
	From       string     // the app of the machine that asks
	Machine    string     // its id
	Client     netip.Addr // its address
}

// inside narrows a key to the machines behind an internal port that let the app from in. Its zero value does not
// narrow.
type inside struct {
	port  int
	group string // "": of all groups
	from  string
}

// Bounds of connections inside.
const (
	maxInside   = 16384 // concurrent ones; see mostInside
	insideShare = 8     // one machine has at most 1/8 of them
	maxPortsOf  = 64    // of an app or a group
	deniedLines = 5     // in the log at once, and one more each deniedEvery
	deniedEvery = 10 * time.Second
)

// PortsInside returns the ports by which other machines may ask for an app, or for one of its groups, sorted: the
// internal TCP ports of its services. An app without services has none.
func (p *Proxy) PortsInside(app, group string) (ports []uint16) {
	add := func(services []machine.Service) {
		for i := range services {
			s := &services[i]
			port := uint16(s.InternalPort)
			if s.Protocol != "udp" && int(port) == s.InternalPort && port != 0 && len(ports) < maxPortsOf &&
				!slices.Contains(ports, port) {
				ports = append(ports, port)
			}
		}
	}
	for m := range p.o.Fleet.Snapshot().MachinesOf(app) {
		if m.IsOf(group) {
			add(m.Services)
		}
	}
	for _, g := range p.keptOf(app).Groups {
		if group == "" || g.Name == group {
			add(g.Services)
		}
	}
	slices.Sort(ports)
	return ports
}

// ServeInside serves connections of machines of this host until ctx ends. asked says what a connection is for.
func (p *Proxy) ServeInside(ctx context.Context, asked func(net.Conn) (Inside, error), lns ...net.Listener) error {
	in := &insideDoor{p: p, asked: asked, log: strangers.Few(p.o.Log, deniedLines, deniedEvery)}
	in.setBounds(mostInside())
	defer in.served.Wait()
	all, ctx := errgroup.WithContext(ctx)
	for _, ln := range lns {
		all.Go(func() error { return in.acceptConns(ctx, ln) })
	}
	return all.Wait()
}

// acceptConns serves the connections of a listener until ctx ends.
func (d *insideDoor) acceptConns(ctx context.Context, ln net.Listener) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		c, err := ln.Accept()
		switch {
		case err == nil && !d.all.Enter():
			resetConn(c)
		case err == nil:
			d.served.Go(func() { defer d.all.Leave(); d.serveConn(ctx, c) })
		case ctx.Err() != nil:
			return nil
		case !isTransient(err):
			return fault.Wrap(err, fault.Unavailable, fault.CodeListen,
				"the proxy can accept no more connections of containers")
		default: // out of descriptors: wait for some to be closed
			_ = wait.For(ctx, 50*time.Millisecond)
		}
	}
}

// mostInside bounds the concurrent connections. Each takes two descriptors, and half of the process's descriptors are
// for other work.
func mostInside() int {
	const part = 4
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return strangers.Most()
	}
	return int(max(1, min(maxInside, limit.Cur/part)))
}

// insideDoor serves connections from this host's machines to other machines.
type insideDoor struct {
	p      *Proxy
	asked  func(net.Conn) (Inside, error)
	log    *slog.Logger
	served sync.WaitGroup
	all    limit.Group          // connections
	of     limit.Shares[string] // those of a machine, by whichever address it asks
}

// setBounds sets how many connections are served at once.
func (d *insideDoor) setBounds(most int) { d.all.Most, d.of.Each = most, max(1, most/insideShare) }

// resetConn closes a connection so that the other end sees that it was refused.
func resetConn(c net.Conn) {
	if t, is := c.(interface{ SetLinger(sec int) error }); is {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// serveConn leads one connection to a machine, and closes it.
func (d *insideDoor) serveConn(ctx context.Context, client net.Conn) {
	to, err := d.asked(client)
	if err != nil {
		d.log.Warn("a connection of a container is for nobody", "from", client.RemoteAddr().String(), "err", err)
		resetConn(client)
		return
	}
	if !d.of.Enter(to.Machine) {
		resetConn(client)
		return
	}
	defer d.of.Leave(to.Machine)
	defer context.AfterFunc(ctx, func() { client.Close() })()
	name := to.App
	if to.Group != "" {
		name = to.Group + "." + to.App
	}
	x := &exchange{p: d.p, door: &Door{p: d.p}, began: time.Now(), id: ulid.Make().String(), client: to.Client.String(),
		key: key{app: to.App, inside: inside{to.Port, to.Group, to.From}},
		r:   &http.Request{Proto: "tcp", Host: net.JoinHostPort(name+".souk", strconv.Itoa(to.Port)), URL: noURL}}
	defer d.p.recordExchange(x)
	err = x.p.admissionError(to)
	if err == nil {
		err = x.connectToOne(ctx, routing.Ask{Not: x.p.selfToAvoid(x.key, to.Machine)}, func(c net.Conn) {
			x.pipeBoth(client, c)
			client.Close()
		})
	}
	if x.err = err; err != nil {
		f := fault.As(err)
		x.code = statusOf(f)
		d.log.Warn("a connection of a machine to another is refused", "from", to.From, "machine", to.Machine,
			"to", x.r.Host, "why", f.Text)
		resetConn(client)
	}
}

// admissionError returns why a machine may not connect to an app; nil: a machine of that app lets it in, or one that is
// to be made will.
func (p *Proxy) admissionError(to Inside) error {
	switch x := p.Admission(to.App, to.Group, to.Port, to.From); {
	case x.Lets || x.Will:
		return nil
	case !x.Any:
		return fault.New(fault.NotFound, codeService,
			"app %s has no service with the internal port %d", to.App, to.Port)
	}
	return NotLetIn(to.App, to.From)
}

// Admission is whether machines of another app may connect to an app.
type Admission struct {
	Any  bool // the app has, or is to have, machines at that group and port
	Lets bool // an existing one lets them in
	Will bool // one that is to be made will let them in
}

// Admission is the single rule of which app may connect to which: whether machines of an app, or of one of its groups
// where group is not "", let those of another app in, at a port of a service where port is not 0.
func (p *Proxy) Admission(app, group string, port int, from string) (x Admission) {
	may := func(services []machine.Service, lets []string) bool {
		if port != 0 && (key{inside: inside{port: port}}).serviceIn(services) == nil {
			return false
		}
		x.Any = true
		return machine.Admits(app, lets, from)
	}
	for m := range p.o.Fleet.Snapshot().MachinesOf(app) {
		if m.IsOf(group) && may(m.Services, m.From) {
			x.Lets = true
			return x
		}
	}
	for _, g := range p.keptOf(app).Groups {
		if (group == "" || g.Name == group) && may(g.Services, g.From) {
			x.Will = true
			return x
		}
	}
	return x
}

// NotLetIn is the error that an app lets no machine of another in, and says what to do.
func NotLetIn(app, from string) error {
	return fault.New(fault.Denied, codeNetworkFrom, "app %s does not let machines of app %s in; to let them, set "+
		"network = { from = [%q] } in the group's section of its souk.toml, or --allow-from %s", app, from,
		from, from)
}

// selfToAvoid returns the id of a machine that asks for its own app where another machine can serve it, so that it does
// not get itself.
func (p *Proxy) selfToAvoid(k key, asks string) string {
	s, self := p.o.Fleet.Snapshot(), false
	for m := range s.MachinesOf(k.app) {
		if m.ID == asks {
			self = true
			break
		}
	}
	if !self {
		return ""
	}
	for m := range s.MachinesOf(k.app) {
		svc := k.serviceOf(m)
		if w, known := s.Worker(m.Worker); m.ID == asks || svc == nil || !known {
			continue
		} else if b := backendOf(m, svc, w.Reachable()); b.Able() {
			return asks
		}
	}
	return ""
}
