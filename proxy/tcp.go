package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/proxy/hop"
	"github.com/soukhq/souk/proxy/proxyproto"
)

var errNoTLS = fault.New(fault.Precondition, "no_tls", //nolint:gochecknoglobals // a constant
	"a service wants its port over TLS, and this proxy has no certificates")

// passes reports whether an error of Accept is one that passes.
func passes(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
		syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// lead leads one connection to a machine, and closes it.
func (d *portDoor) lead(ctx context.Context, client net.Conn) {
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	x := &exchange{p: d.p, door: &d.Door, began: time.Now(), id: ulid.Make().String(),
		key: key{app: d.App, port: d.Port}, r: &http.Request{Proto: "tcp", Host: d.outside(), URL: noURL}}
	x.client, _, _ = net.SplitHostPort(client.RemoteAddr().String())
	defer d.p.record(x)
	if t, is := client.(*tls.Conn); is {
		_ = client.SetDeadline(time.Now().Add(headTime))
		if x.err = t.HandshakeContext(ctx); x.err != nil {
			x.err = fault.Wrap(x.err, fault.Invalid, "handshake", "a client's TLS handshake failed")
			return
		}
		_ = client.SetDeadline(time.Time{})
	}
	g, c, err := x.connect(ctx, routing.Ask{Source: sourceOf(x.client)})
	if x.err = err; err != nil {
		x.code = statusOf(fault.As(err))
		return
	}
	defer g.done()
	defer c.Close()
	if d.proxy != 0 {
		if _, x.err = c.Write(proxyproto.Header(d.proxy, client.RemoteAddr(), client.LocalAddr())); x.err != nil {
			return
		}
	}
	x.code, x.first = http.StatusOK, time.Now()
	x.bytes, _ = hop.Pipe(hop.Half{Conn: client}, hop.Half{Conn: c})
}

// connect connects to one machine after another until one takes the connection.
func (x *exchange) connect(ctx context.Context, ask routing.Ask) (*grant, net.Conn, error) {
	until := x.holdUntil()
	g, err := x.p.pool(x.key).acquire(ctx, until, ask)
	for err == nil {
		x.backend, x.held = g.backend, g.held
		if g.woke != nil {
			x.woke = g.woke
		}
		var c net.Conn
		if c, err = x.p.dial(ctx, g.backend); err == nil {
			return g, c, nil
		}
		k, corrected := errors.AsType[*correction](err)
		if !corrected {
			g.done()
			return nil, nil, err
		}
		g, err = g.again(ctx, until, k)
	}
	return nil, nil, err
}

// dial connects to a machine's port, here or at the member that has it. The connection counts as the machine's load
// until it is closed.
func (p *Proxy) dial(ctx context.Context, b *backend) (net.Conn, error) {
	if !b.own {
		return p.far.tunnel(ctx, b.worker, b.Target, true)
	}
	m, v, err := p.owner.enter(ctx, b.Target)
	if err != nil {
		return nil, err
	}
	c, err := p.owner.dial(ctx, m, b.Port)
	if err != nil {
		p.owner.leave(v)
		return nil, err
	}
	p.owner.over(v, func() net.Conn { return c })
	p.owner.upgraded(v)
	return &counted{Conn: c, left: func() { p.owner.leave(v) }}, nil
}
