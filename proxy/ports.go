package proxy

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/proxyproto"
)

// Timing of ports, which open and close as services come and go.
const (
	portsEvery = 100 * time.Millisecond // how often services are checked
	portsFirst = 100 * time.Millisecond // until a port that could not be opened is tried again; twice as long each time
	portsAgain = 5 * time.Second        // the longest such pause
	maxPorts   = 1024
)

// openPort is a port that services ask for. Its listener stays open as long as any does. A connection is served by the
// door that it came in at, even if another app has the port by then.
type openPort struct {
	ports *ports
	port  int
	door  atomic.Pointer[portDoor] // serves new connections
	ended atomic.Pointer[error]    // why Accept has failed for good; nil: it has not

	// used by the loop alone
	ln     net.Listener // nil: not open
	failed error        // why it is not open
	tried  time.Time
	wait   time.Duration // pause after tried
}

// ports holds the open ports.
type ports struct {
	p      *Proxy
	ctx    context.Context //nolint:containedctx // of connections, which outlast what the services say
	served sync.WaitGroup
	open   map[int]*openPort
	ended  chan struct{} // signals that a listener has failed
}

// openPorts keeps open the ports that services ask for, until ctx ends.
func (p *Proxy) openPorts(ctx context.Context) {
	if p.o.Listen == nil {
		<-ctx.Done()
		return
	}
	all := &ports{p: p, ctx: ctx, open: map[int]*openPort{}, ended: make(chan struct{}, 1)}
	defer all.served.Wait()
	defer func() {
		for _, x := range all.open {
			x.closeListener()
		}
	}()
	for {
		s := p.o.Fleet.Snapshot()
		again := all.followServices(portsOfApps(s.Outside()))
		select {
		case <-s.Past():
		case <-all.ended:
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(portsEvery):
		case <-ctx.Done():
			return
		}
	}
}

// portsOfApps maps each port that services ask for to its app.
func portsOfApps(outside iter.Seq[fleet.Outside]) map[int]string {
	wanted := map[int]string{}
	for o := range outside {
		if o.Host != "" {
			break
		}
		if _, first := wanted[o.Port]; !first && len(wanted) < maxPorts {
			wanted[o.Port] = o.App
		}
	}
	return wanted
}

// followServices opens and closes ports, and returns when to check again even without a change.
func (a *ports) followServices(wanted map[int]string) (again time.Duration) {
	for port, x := range a.open {
		if _, is := wanted[port]; !is {
			if app := x.door.Load().App; a.p.comesBack(app, port) {
				wanted[port] = app
				continue
			}
			x.closeListener()
			x.door.Load().closeDoor()
			delete(a.open, port)
		}
	}
	again = portsAgain
	for port, app := range wanted {
		x := a.open[port]
		if x == nil {
			x = &openPort{ports: a, port: port}
			a.open[port] = x
		}
		if x.followService(app, time.Now()); x.failed != nil {
			again = min(again, max(time.Until(x.tried.Add(x.wait)), time.Millisecond))
		}
	}
	a.tellDoors()
	return again
}

// tellDoors updates the ports that Doors reports.
func (a *ports) tellDoors() {
	list := make([]api.DoorPort, 0, len(a.open))
	for _, port := range slices.Sorted(maps.Keys(a.open)) {
		x := a.open[port]
		one := api.DoorPort{Port: port, App: x.door.Load().App, Shut: x.ln == nil}
		if x.ln != nil {
			one.At = x.ln.Addr().String()
		}
		list = append(list, one)
	}
	d := &a.p.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ports = list
}

// followService opens, changes or closes the port as the services ask.
func (x *openPort) followService(app string, now time.Time) {
	if why := x.ended.Swap(nil); why != nil {
		x.closeListener()
		x.noteFailure(*why, app, now)
	}
	handlers, version := x.ports.p.handlersOf(key{app: app, port: x.port})
	old := x.door.Load()
	changed := old == nil || old.App != app || old.proxy != version || !slices.Equal(old.handlers, handlers)
	if !changed && (x.ln != nil || now.Sub(x.tried) < x.wait) {
		return
	}
	d := &portDoor{Door: Door{p: x.ports.p, App: app, Port: x.port}, handlers: handlers, proxy: version}
	err := d.openDoor(x.ports)
	x.door.Store(d)
	if err == nil && x.ln == nil {
		err = x.startListening()
	}
	if err != nil {
		x.closeListener()
		x.noteFailure(err, app, now)
	} else {
		x.failed, x.wait = nil, 0
	}
	if old != nil {
		old.closeDoor()
	}
}

// noteFailure records why the port is not open, and logs each reason once.
func (x *openPort) noteFailure(err error, app string, now time.Time) {
	if x.failed == nil || x.failed.Error() != err.Error() {
		x.ports.p.o.Log.Warn("a port that a service asks for cannot be opened here", "app", app, "port", x.port, "err",
			err)
		x.wait = 0
	}
	x.failed, x.tried = err, now
	x.wait = min(max(2*x.wait, portsFirst), portsAgain)
}

func (x *openPort) startListening() error {
	p := x.ports.p
	ln, err := p.o.Listen(x.port)
	if err != nil {
		return err
	}
	x.ln = proxyproto.Listen(ln, p.o.ProxyProtocol, p.o.Log)
	accepting := x.ln
	x.ports.served.Go(func() { x.acceptConns(accepting) })
	return nil
}

// closeListener closes the port. Connections that are open go on.
func (x *openPort) closeListener() {
	if x.ln != nil {
		x.ln.Close()
		x.ln = nil
	}
}

// acceptConns accepts connections until the listener is closed or fails.
func (x *openPort) acceptConns(ln net.Listener) {
	ctx := x.ports.ctx
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			x.ports.served.Go(func() { x.serveConn(c) })
		case errors.Is(err, net.ErrClosed) || ctx.Err() != nil:
			return
		case !isTransient(err):
			x.ended.Store(&err)
			select {
			case x.ports.ended <- struct{}{}:
			default:
			}
			return
		default: // out of descriptors: wait for some to be closed
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// serveConn serves a connection by the current door.
func (x *openPort) serveConn(c net.Conn) {
	for {
		d := x.door.Load()
		if d.takeConn(x.ports.ctx, c) {
			return
		}
		if d == x.door.Load() { // the port is closed
			c.Close()
			return
		}
	}
}

// handlersOf returns the handlers for connections to a port of an app.
func (p *Proxy) handlersOf(k key) (handlers []string, proxyProtocol int) {
	for m := range p.o.Fleet.Snapshot().MachinesOf(k.app) {
		s := k.serviceIn(m.Services)
		if s == nil {
			continue
		}
		i := slices.IndexFunc(s.Ports, func(x machine.Port) bool { return portIn(&x, k.port) })
		if slices.Contains(s.Ports[i].Handlers, "proxy_proto") {
			proxyProtocol = 1
			if o := s.Ports[i].ProxyProtoOptions; o != nil && o.Version == "v2" {
				proxyProtocol = 2
			}
		}
		return s.Ports[i].Handlers, proxyProtocol
	}
	return nil, 0
}
