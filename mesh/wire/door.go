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

// What a stranger has: whoever shows no certificate, or one that is not let in. To join takes one question of two
// kilobytes.
const (
	strangerTime    = time.Minute
	strangerAsks    = 64
	strangerBytes   = 128 << 10 // whatever they are: questions, resets, pings
	strangerStreams = 16        // at once
)

// door sorts who connects: members to one server, strangers to another that gives them little. Until somebody has
// shown a certificate, the connection has one of some places. Nobody is refused one: whoever comes takes that of who
// came first. Members' addresses have places apart, so that a flood from elsewhere takes nothing from them.
type door struct {
	s                *Server
	ln               net.Listener
	conf             *tls.Config
	halls            [2]hall
	members, unknown inlet
	proxies          inlet // connections of members' proxies
	inside           *gate // members' connections, by member
	proxied          *gate // their proxies', by member
}

// hall is the places of one kind of addresses, by what was shown so far.
type hall struct {
	silent   *strangers.Places // nothing
	greeting *strangers.Places // the first bytes of TLS
	unknown  *strangers.Places // no certificate
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

// greetTime is how long those who have connected when a door is closed have to show who they are: a member takes its
// connection for made before that is read here, and may have asked already.
const greetTime = 500 * time.Millisecond

// acceptGuests lets in until ctx ends or the listener fails.
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
		if isTransient(err) { // out of descriptors: wait for some to be closed
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			return err
		}
		if d.inside.isFull() { // closed before it could ask anything
			conn.Close()
			continue
		}
		g := &guest{Conn: conn, hall: d.hallOf(conn)}
		g.moveTo(g.hall.silent)
		greetings.Go(func() { d.greetGuest(inside, g) })
	}
}

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

func (d *door) hallOf(c net.Conn) *hall {
	if d.s.o.MemberAt(strangers.HostOf(c)) {
		return &d.halls[1]
	}
	return &d.halls[0]
}

// greetGuest hears who connects, and hands them to the server that is for them.
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
	if err != nil { // the server that is for strangers tells why
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

// guest is a connection that came. It has a place until it is known, and is cut off when it sends more than a stranger
// may.
type guest struct {
	net.Conn
	hall  *hall
	heard int // bytes; of who reads
	known atomic.Bool
	asks  atomic.Int32

	mu    sync.Mutex
	place *strangers.Places
	end   *time.Timer // of a stranger
	left  func()      // called when it is closed; nil: nothing is
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

// moveTo gives a stranger another place; nil: none.
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

// stayStranger says that it is a stranger's for good.
func (g *guest) stayStranger() {
	g.moveTo(g.hall.unknown)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gone {
		g.end = time.AfterFunc(strangerTime, func() { g.Close() })
	}
}

// isKnown says that it is a member's.
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

// Close makes room for another.
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

// inlet is a listener whose connections are handed to it.
type inlet struct {
	of     net.Listener
	come   chan net.Conn
	closed chan struct{}
	once   *sync.Once
}

func newInlet(of net.Listener) inlet {
	return inlet{of, make(chan net.Conn), make(chan struct{}), new(sync.Once)}
}

// handOver gives a connection to whoever accepts, or closes it.
func (l inlet) handOver(ctx context.Context, c *tls.Conn) {
	select {
	case l.come <- c:
	case <-ctx.Done():
		c.NetConn().Close()
	case <-l.closed:
		c.NetConn().Close()
	}
}

// Accept returns the next connection that was handed in.
func (l inlet) Accept() (net.Conn, error) {
	select {
	case c := <-l.come:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close has nothing handed in any more.
func (l inlet) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the address of the listener behind.
func (l inlet) Addr() net.Addr { return l.of.Addr() }

type guestKey struct{}

// strangersHandler answers strangers, so many questions on each connection.
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

// nobodyAt is where members are when nobody says.
func nobodyAt(netip.Addr) bool { return false }
