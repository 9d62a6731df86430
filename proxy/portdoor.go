package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
)

// portDoor is how connections of a port are served.
type portDoor struct {
	Door
	handlers []string
	proxy    int    // PROXY protocol version sent to machines; 0: none
	web      *inlet // listener of the HTTP server; nil: connections are piped to machines
}

// openDoor prepares a door for connections.
func (d *portDoor) openDoor(a *ports) error {
	web := slices.Contains(d.handlers, "http")
	if slices.Contains(d.handlers, "tls") {
		if d.p.o.TLS == nil {
			return errNoTLS
		}
		d.TLS = d.p.o.TLS.Clone()
		if !web {
			d.TLS.NextProtos = nil
		}
	}
	if web {
		d.web = newInlet()
		a.served.Go(func() { d.serveWeb(a.ctx) })
	}
	return nil
}

// closeDoor stops accepting connections. Open ones go on.
func (d *portDoor) closeDoor() {
	if d.web != nil {
		d.web.Close()
	}
}

// takeConn serves a connection, and reports whether it does: a closed door does not.
func (d *portDoor) takeConn(ctx context.Context, c net.Conn) bool {
	if d.web != nil {
		return d.web.handOver(c)
	}
	if d.TLS != nil {
		c = tls.Server(c, d.TLS)
	}
	d.leadConn(ctx, c)
	return true
}

// serveWeb serves HTTP until the door is closed and its last connection has ended, or ctx ends. When a door closes,
// requests and upgraded connections go on; connections without a request are closed.
func (d *portDoor) serveWeb(ctx context.Context) {
	s := d.newServer(&d.Door)
	defer context.AfterFunc(ctx, d.closeDoor)()
	var ln net.Listener = d.web
	if d.TLS != nil {
		ln = tls.NewListener(ln, d.TLS)
	}
	if err := s.Serve(ln); !errors.Is(err, net.ErrClosed) {
		d.p.o.Log.Warn("a port of a service is not served any more", "app", d.App, "port", d.Port, "err", err)
	}
	d.sayFarewell()
	s.SetKeepAlivesEnabled(false)
	_ = d.conns.Wait(ctx)
	drain, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer done()
	if s.Shutdown(drain) != nil {
		s.Close()
	}
}

// inlet is a listener of connections that were accepted elsewhere.
type inlet struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInlet() *inlet { return &inlet{conns: make(chan net.Conn), closed: make(chan struct{})} }

// handOver passes a connection to Accept, and reports whether it was taken.
func (l *inlet) handOver(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
		return false
	}
}

// Accept returns the next connection.
func (l *inlet) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close makes Accept and handOver fail.
func (l *inlet) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is empty: each connection has its own address.
func (l *inlet) Addr() net.Addr { return &net.TCPAddr{} }
