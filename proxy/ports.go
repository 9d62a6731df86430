package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/machine"
)

// Doors of single ports open and close as services come and go.
const (
	portsEvery = 100 * time.Millisecond // between two looks
	portsAgain = 5 * time.Second        // until a port that could not be opened is tried again
	maxPorts   = 1024
)

// portDoor is an open port.
type portDoor struct {
	Door
	handlers []string
	proxy    int // version of the PROXY protocol that machines get; 0: none
	end      context.CancelFunc
	failed   time.Time // when it could not be opened
}

// openPorts keeps the ports open that services ask for, until ctx ends.
func (p *Proxy) openPorts(ctx context.Context) {
	if p.o.Listen == nil {
		<-ctx.Done()
		return
	}
	var g errgroup.Group
	defer func() { _ = g.Wait() }() // they return none
	for {
		s := p.o.Fleet.Snapshot()
		wanted := map[int]string{}
		for o := range s.Outside() {
			if o.Host != "" {
				break
			}
			if _, first := wanted[o.Port]; !first && len(wanted) < maxPorts {
				wanted[o.Port] = o.App
			}
		}
		p.closePorts(wanted)
		for port, app := range wanted {
			p.openPort(ctx, &g, port, app)
		}
		select {
		case <-s.Past():
		case <-time.After(portsAgain):
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

func (p *Proxy) closePorts(wanted map[int]string) {
	p.doors.mu.Lock()
	defer p.doors.mu.Unlock()
	for port, d := range p.doors.open {
		if wanted[port] != d.App {
			if d.end != nil {
				d.end()
			}
			delete(p.doors.open, port)
		}
	}
}

func (p *Proxy) openPort(ctx context.Context, g *errgroup.Group, port int, app string) {
	p.doors.mu.Lock()
	defer p.doors.mu.Unlock()
	old := p.doors.open[port]
	if old != nil && (old.failed.IsZero() || time.Since(old.failed) < portsAgain) {
		return
	}
	d := &portDoor{Door: Door{p: p, App: app, Port: port}}
	d.handlers, d.proxy = p.handlersOf(key{app: app, port: port})
	if p.doors.open == nil {
		p.doors.open = map[int]*portDoor{}
	}
	p.doors.open[port] = d
	ln, err := p.o.Listen(port)
	if err != nil {
		if d.failed = time.Now(); old == nil {
			p.o.Log.Warn("a port that a service asks for cannot be opened here", "app", app, "port", port, "err", err)
		}
		return
	}
	d.addr = ln.Addr()
	ctx, d.end = context.WithCancel(ctx)
	g.Go(func() error {
		if err := d.serve(ctx, ln); err != nil && ctx.Err() == nil {
			p.o.Log.Warn("a port of a service is not served any more", "app", app, "port", port, "err", err)
		}
		return nil
	})
}

// handlersOf returns what is done to the connections of a port of an app.
func (p *Proxy) handlersOf(k key) (handlers []string, proxyProtocol int) {
	for m := range p.o.Fleet.Snapshot().MachinesOf(k.app) {
		s := k.match(m.Services)
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

// serve serves a port until ctx ends.
func (d *portDoor) serve(ctx context.Context, ln net.Listener) error {
	if slices.Contains(d.handlers, "tls") {
		if d.p.o.TLS == nil {
			ln.Close()
			return errNoTLS
		}
		d.TLS = d.p.o.TLS.Clone()
		if !slices.Contains(d.handlers, "http") {
			d.TLS.NextProtos = nil
		}
		ln = tls.NewListener(ln, d.TLS)
	}
	if slices.Contains(d.handlers, "http") {
		return d.serveUntil(ctx, d.server(&d.Door), ln)
	}
	return d.serveTCP(ctx, ln)
}

// serveTCP leads connections to machines until ctx ends. Those that are open then are closed.
func (d *portDoor) serveTCP(ctx context.Context, ln net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if !passes(err) {
				return err
			}
			select { // out of descriptors: wait for some to be closed
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		conns.Go(func() { d.lead(ctx, c) })
	}
}
