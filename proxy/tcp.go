package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/proxy/hop"
	"github.com/soukhq/souk/proxy/proxyproto"
)

var noURL = &url.URL{} //nolint:gochecknoglobals // a constant

var errNoTLS = fault.New(fault.Precondition, codeNoTLS, //nolint:gochecknoglobals // a constant
	"a service wants its port over TLS, and this proxy has no certificates")

// isTransient reports whether an error of Accept is one that passes.
func isTransient(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
		syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// leadConn pipes one connection to a machine, and closes it.
func (d *portDoor) leadConn(ctx context.Context, client net.Conn) {
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	x := &exchange{p: d.p, door: &d.Door, began: time.Now(), id: ulid.Make().String(),
		key: key{app: d.App, port: d.Port}, r: &http.Request{Proto: "tcp", Host: d.outsidePort(), URL: noURL}}
	x.client, _, _ = net.SplitHostPort(client.RemoteAddr().String())
	defer d.p.recordExchange(x)
	if t, is := client.(*tls.Conn); is {
		_ = client.SetDeadline(time.Now().Add(headTime))
		if x.err = t.HandshakeContext(ctx); x.err != nil {
			x.err = fault.Wrap(x.err, fault.Invalid, codeHandshake, "a client's TLS handshake failed")
			return
		}
		_ = client.SetDeadline(time.Time{})
	}
	err := x.connectToOne(ctx, routing.Ask{Source: sourceOf(x.client)}, func(c net.Conn) {
		if d.proxy != 0 {
			head := proxyproto.Header(d.proxy, client.RemoteAddr(), client.LocalAddr())
			if _, x.err = c.Write(head); x.err != nil {
				return
			}
		}
		x.pipeBoth(client, c)
	})
	if err != nil {
		x.err, x.code = err, statusOf(fault.As(err))
	}
}

// connectToOne tries one machine after another until one accepts, and calls use with the connection. An error says that
// use was not called.
func (x *exchange) connectToOne(ctx context.Context, ask routing.Ask, use func(net.Conn)) error {
	until := x.holdUntil()
	g, err := x.p.poolOf(x.key).acquireMachine(ctx, until, ask)
	for err == nil {
		x.backend, x.held = g.backend, g.held
		if g.woke != nil {
			x.woke = g.woke
		}
		err = x.p.visitMachine(ctx, g.backend, use)
		k, corrected := errors.AsType[*correction](err)
		if !corrected {
			g.giveBack()
			return err
		}
		g, err = g.tryAnother(ctx, until, k)
	}
	return err
}

// visitMachine connects to a machine's port, here or at the member that has it. The connection counts as the machine's
// load until use returns.
func (p *Proxy) visitMachine(ctx context.Context, b *backend, use func(net.Conn)) error {
	if b.own {
		return p.owner.visitMachine(ctx, b.Target, true, use)
	}
	c, err := p.far.openTunnel(ctx, b.worker, b.Target, true)
	if err != nil {
		return err
	}
	defer c.Close()
	use(c)
	return nil
}

// pipeBoth copies between a client and a machine until both have closed.
func (x *exchange) pipeBoth(client, machine net.Conn) {
	x.code, x.first = http.StatusOK, time.Now()
	x.bytes, _ = hop.Pipe(hop.Half{Conn: client}, hop.Half{Conn: machine})
}
