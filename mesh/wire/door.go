package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/soukhq/souk/internal/strangers"
)

// Limits for a stranger: a caller without a certificate, or with one that is not accepted. A join takes one request of
// two kilobytes.
const (
	strangerTime    = time.Minute
	strangerAsks    = 64
	strangerBytes   = 128 << 10 // in total: requests, resets, pings
	strangerStreams = 16        // at once
)

// door sorts incoming connections: members go to one server, strangers to another with tight limits. Until a caller has
// presented a certificate, its connection holds one of a limited number of places. No connection is refused a place: a
// new one displaces the oldest. Members' addresses have their own places, so that a flood of strangers does not
// displace them.
type door struct {
	s                *Server
	ln               net.Listener
	conf             *tls.Config
	halls            [2]hall
	members, unknown inlet
	proxies          inlet // connections of other members' proxies
	inside           *gate // counts members' connections, by member
	proxied          *gate // counts connections of members' proxies, by member
}

// hall is the places of one class of addresses, by progress.
type hall struct {
	silent   *strangers.Places // no byte received
	greeting *strangers.Places // the first bytes of TLS received
	unknown  *strangers.Places // handshake done without a certificate
}

func newHall() hall {
	most := strangers.Most()
	return hall{strangers.New(max(1, most/8)), strangers.New(max(1, most/16)), strangers.New(max(1, most/16))}
}

func newDoor(s *Server, ln net.Listener) *door {
	speaks := []string{"h2"}
	if s.o.Proxy != nil {
		speaks = append(speaks, proxyProtocol)
	}
	return &door{s: s, ln: ln, conf: s.o.Identity.ServerTLS(s.o.Now, s.o.Signer != nil, speaks...),
		halls: [2]hall{newHall(), newHall()}, inside: newGate(s.o.Limits.Connections),
		proxied: newGate(s.o.Limits.Proxied),
		members: newInlet(ln), unknown: newInlet(ln), proxies: newInlet(ln)}
}

// greetTime is how long connections made before the door closed have to finish their handshake: the client may consider
// its connection open, and have sent a request, before the handshake is read here.
const greetTime = 500 * time.Millisecond

// acceptGuests accepts connections until ctx ends or the listener fails.
func (d *door) acceptGuests(ctx context.Context) error {
	inside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var greetings sync.WaitGroup
	defer func() {
		defer time.AfterFunc(greetTime, cancel).Stop()
		greetings.Wait()
		cancel()
	}()
	stop := context.AfterFunc(ctx, func() { d.ln.Close() })
	defer stop()
	for {
		conn, err := d.ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if isTransient(err) { // out of file descriptors: wait until some are closed
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			return err
		}
		if d.inside.isFull() { // closed before it can send a request
			conn.Close()
			continue
		}
		g := &guest{Conn: conn, hall: d.hallOf(conn)}
		g.moveTo(g.hall.silent)
		greetings.Go(func() { d.greetGuest(inside, g) })
	}
}

// isTransient reports whether an error of Accept is temporary.
func isTransient(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
		syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (d *door) hallOf(c net.Conn) *hall {
	if d.s.o.MemberAt(strangers.HostOf(c)) {
		return &d.halls[1]
	}
	return &d.halls[0]
}

// greetGuest does the handshake of a connection, and hands it to the server for its class of callers.
func (d *door) greetGuest(ctx context.Context, g *guest) {
	conn := tls.Server(g, d.conf)
	_ = g.SetDeadline(time.Now().Add(d.s.headTime))
	if err := conn.HandshakeContext(ctx); err != nil {
		d.s.o.Log.Debug("a handshake failed", "from", g.RemoteAddr(), "error", err)
		g.Close()
		return
	}
	_ = g.SetDeadline(time.Time{})
	cs := conn.ConnectionState()
	by, err := d.s.peerOf(&cs)
	isProxy := cs.NegotiatedProtocol == proxyProtocol
	if err != nil && isProxy || err == nil && isProxy && !d.proxied.enterCaller(by.ID) {
		g.Close()
		return
	}
	if isProxy {
		g.isKnown(func() { d.proxied.leaveCaller(by.ID) })
		d.proxies.handOver(ctx, conn)
		return
	}
	if err != nil { // the strangers' server answers with the reason
		g.stayStranger()
		d.unknown.handOver(ctx, conn)
		return
	}
	if !d.inside.enterCaller(by.ID) {
		g.Close()
		return
	}
	g.isKnown(func() { d.inside.leaveCaller(by.ID) })
	d.members.handOver(ctx, conn)
}

// guest is an incoming connection. It holds a place until its member is known, and is closed if it sends more than a
// stranger may.
type guest struct {
	net.Conn
	hall  *hall
	heard int // bytes; only the reader uses it
	known atomic.Bool
	asks  atomic.Int32

	mu    sync.Mutex
	place *strangers.Places
	end   *time.Timer // closes a stranger's connection
	left  func()      // called on close; nil: nothing to call
	gone  bool
}

func (g *guest) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.known.Load() {
		return n, err
	}
	if g.heard == 0 && n > 0 {
		g.moveTo(g.hall.greeting)
	}
	if g.heard += n; g.heard > strangerBytes {
		g.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// moveTo moves a stranger to another place; nil: none.
func (g *guest) moveTo(to *strangers.Places) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return
	}
	if g.place != nil {
		g.place.Leave(g.Conn)
	}
	if g.place = to; to != nil {
		to.Enter(g.Conn)
	}
}

// stayStranger marks the connection as a stranger's for good.
func (g *guest) stayStranger() {
	g.moveTo(g.hall.unknown)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gone {
		g.end = time.AfterFunc(strangerTime, func() { g.Close() })
	}
}

// isKnown marks the connection as a member's. left is called when it closes.
func (g *guest) isKnown(left func()) {
	g.known.Store(true)
	g.moveTo(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		left()
		return
	}
	g.left = left
}

// Close closes the connection and frees its place.
func (g *guest) Close() error {
	g.moveTo(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gone {
		g.gone = true
		if g.end != nil {
			g.end.Stop()
		}
		if g.left != nil {
			g.left()
		}
	}
	return g.Conn.Close()
}

// inlet is a listener that accepts connections passed to handOver.
type inlet struct {
	of     net.Listener
	come   chan net.Conn
	closed chan struct{}
	once   *sync.Once
}

func newInlet(of net.Listener) inlet {
	return inlet{of, make(chan net.Conn), make(chan struct{}), new(sync.Once)}
}

// handOver passes a connection to Accept, or closes it if ctx ends or the inlet is closed.
func (l inlet) handOver(ctx context.Context, c *tls.Conn) {
	select {
	case l.come <- c:
	case <-ctx.Done():
		c.NetConn().Close()
	case <-l.closed:
		c.NetConn().Close()
	}
}

// Accept returns the next connection passed to handOver.
func (l inlet) Accept() (net.Conn, error) {
	select {
	case c := <-l.come:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting connections.
func (l inlet) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the address of the underlying listener.
func (l inlet) Addr() net.Addr { return l.of.Addr() }

type guestKey struct{}

// strangersHandler answers strangers, at most strangerAsks requests on each connection.
func (s *Server) strangersHandler() (http.Handler, func(context.Context, net.Conn) context.Context) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if g, ok := r.Context().Value(guestKey{}).(*guest); ok && g.asks.Add(1) > strangerAsks {
			g.Close()
			return
		}
		s.ServeHTTP(w, r)
	}
	come := func(ctx context.Context, c net.Conn) context.Context {
		if t, ok := c.(*tls.Conn); ok {
			ctx = context.WithValue(ctx, guestKey{}, t.NetConn())
		}
		return ctx
	}
	return http.HandlerFunc(handler), come
}

// nobodyAt is the default of Options.MemberAt.
func nobodyAt(netip.Addr) bool { return false }
