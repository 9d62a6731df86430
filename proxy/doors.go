package proxy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/internal/limit"
	"github.com/soukhq/souk/internal/strangers"
	"github.com/soukhq/souk/proxy/proxyproto"
)

// Door is where requests come in: a listener for HTTP, for HTTP over TLS, or for one port of one app.
type Door struct {
	p      *Proxy
	conns  limit.Group // connections that are open
	ending atomic.Bool // no new requests; clients are asked to close their connections

	addr net.Addr
	TLS  *tls.Config // nil: in the clear
	App  string      // the app it serves; "": HTTP, for whichever app the request names
	Port int         // of the app's service; with App
}

// outsidePort returns the port that clients use to reach a door.
func (d *Door) outsidePort() string {
	if d.Port != 0 {
		return strconv.Itoa(d.Port)
	}
	if a, ok := d.addr.(*net.TCPAddr); ok {
		return strconv.Itoa(a.Port)
	}
	return ""
}

// doors are the open doors.
type doors struct {
	open limit.Group // those for HTTP

	mu   sync.Mutex
	tls  *Door // the first for HTTP over TLS; nil: there is none
	http *Door

	ports []api.DoorPort // as last reported by the goroutine that opens ports
}

func (d *doors) hasTLS() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.tls != nil }

func (d *doors) portTLS() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tls != nil {
		if a, ok := d.tls.addr.(*net.TCPAddr); ok {
			return a.Port
		}
	}
	return 443
}

// ServeHTTPAt serves HTTP at ln until ctx ends: in the clear, HTTP/1.1 and HTTP/2 with prior knowledge, or with conf
// over TLS. Requests under way then have drainTime to end.
func (p *Proxy) ServeHTTPAt(ctx context.Context, ln net.Listener, conf *tls.Config) error {
	p.doors.open.Enter()
	defer p.doors.open.Leave()
	if conf != nil {
		conf = p.shown.rememberShown(conf)
	}
	d := &Door{p: p, addr: ln.Addr(), TLS: conf}
	p.doors.mu.Lock()
	if conf != nil && p.doors.tls == nil {
		p.doors.tls = d
	}
	if conf == nil && p.doors.http == nil {
		p.doors.http = d
	}
	p.doors.mu.Unlock()
	var h http.Handler = d
	if conf == nil && p.o.Front != nil {
		h = p.o.Front(d)
	}
	s := d.newServer(h)
	ln = proxyproto.Listen(ln, p.o.ProxyProtocol, p.o.Log)
	if conf != nil {
		s.TLSConfig = conf
		ln = tls.NewListener(ln, conf)
	}
	return d.serveUntil(ctx, s, ln)
}

// The end of a door. A client that keeps its connection may be writing to it at any moment, so its next answer says
// that the connection closes, before connections without a request are closed.
const (
	farewell  = 300 * time.Millisecond // for clients to ask once more
	drainTime = 5 * time.Second        // for requests under way
)

// newServer returns the HTTP server of a door.
func (d *Door) newServer(h http.Handler) *http.Server {
	p := d.p
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	// A connection without a request counts as a stranger. Their number is bounded, in all and for each address.
	state := func(c net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			d.conns.Enter()
			p.idle.Enter(c)
		case http.StateIdle:
			p.idle.Leave(c)
			p.idle.Enter(c)
		case http.StateClosed, http.StateHijacked:
			d.conns.Leave()
			p.idle.Leave(c)
		default:
			p.idle.Leave(c)
		}
	}
	return &http.Server{ConnState: state,
		Handler: h, Protocols: protocols, MaxHeaderBytes: maxHead, ReadHeaderTimeout: headTime, IdleTimeout: keepTime,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 250, SendPingTimeout: 30 * time.Second,
			PingTimeout: 10 * time.Second, WriteByteTimeout: time.Minute},
		ErrorLog: slog.NewLogLogger(strangers.Few(p.o.Log, 20, time.Second).Handler(), slog.LevelDebug),
	}
}

// serveUntil serves until ctx ends, and then until the requests under way are answered.
func (d *Door) serveUntil(ctx context.Context, s *http.Server, ln net.Listener) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		_ = ln.Close() // an error does not matter: the server closes the rest
		d.sayFarewell()
		drain, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer done()
		if s.Shutdown(drain) != nil {
			s.Close()
		}
	}()
	err := s.Serve(ln)
	if ctx.Err() != nil {
		<-ended
		return nil
	}
	return err
}

// sayFarewell asks clients to leave with their next answer, and returns when they have, or after farewell.
func (d *Door) sayFarewell() {
	d.ending.Store(true)
	late, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = d.conns.Wait(late) // the server closes late ones
}

// bidFarewell tells a request's client that its connection closes after the answer, if the door is ending.
func (d *Door) bidFarewell(w http.ResponseWriter, r *http.Request) {
	if d.ending.Load() && r.Header.Get("Upgrade") == "" {
		w.Header().Set("Connection", "close")
	}
}
