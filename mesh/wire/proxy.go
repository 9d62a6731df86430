package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// proxyProtocol is the protocol between members' proxies, on connections of their own: HTTP/1.1, one request at a time,
// so that the kernel's flow control keeps a slow reader from delaying other requests.
const proxyProtocol = "http/1.1"

// Proxied serves the requests of other members' proxies.
type Proxied interface {
	http.Handler
	// Goodbye returns a complete HTTP answer for requests that this member no longer accepts. When the server ends, it
	// is sent unasked over every idle connection: a request on its way then has an answer, which says that it was not
	// carried out.
	Goodbye() []byte
}

// kept are the idle connections of other members' proxies.
type kept struct {
	goodbye []byte

	mu     sync.Mutex
	conns  map[net.Conn]bool
	ending bool
}

// farewell is how long a connection stays open after its goodbye: closing it while data arrives would reset it, and the
// goodbye could be lost.
const farewell = 300 * time.Millisecond

// noteState tracks a connection's state.
func (k *kept) noteState(c net.Conn, s http.ConnState) {
	k.mu.Lock()
	is := s == http.StateNew || s == http.StateIdle
	if is {
		k.conns[c] = true
	} else {
		delete(k.conns, c)
	}
	ending := k.ending
	k.mu.Unlock()
	if is && ending {
		k.sayGoodbye(c)
	}
}

func (k *kept) sayGoodbye(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(farewell))
	_, _ = c.Write(k.goodbye)
	if t, is := c.(*tls.Conn); is {
		_ = t.CloseWrite()
	}
}

// endAll sends goodbyes, and returns when the peers have had time to read them.
func (k *kept) endAll() {
	k.mu.Lock()
	k.ending = true
	list := slices.Collect(maps.Keys(k.conns))
	k.mu.Unlock()
	if len(list) == 0 {
		return
	}
	for _, c := range list {
		k.sayGoodbye(c)
	}
	<-time.After(farewell)
}

// proxyServer returns the server for other members' proxies. It checks the caller's certificate again for each request,
// so that a removed member is refused.
func (s *Server) proxyServer(ctx context.Context, conf *tls.Config) (*http.Server, *kept) {
	x, k := s.httpServer(ctx, conf), &kept{conns: map[net.Conn]bool{}}
	if s.o.Proxy != nil {
		k.goodbye = s.o.Proxy.Goodbye()
	}
	x.ConnState = k.noteState
	x.HTTP2, x.Protocols = nil, new(http.Protocols)
	x.Protocols.SetHTTP1(true)
	x.IdleTimeout = 2 * time.Minute
	x.Handler = http.HandlerFunc(s.serveProxy)
	return x, k
}

func (s *Server) serveProxy(w http.ResponseWriter, r *http.Request) {
	by, err := s.peerOf(r.TLS)
	if err == nil && !by.Has(pki.Gateway) {
		err = fault.New(fault.Denied, fault.CodeRole,
			"%s has the roles %v, but this request needs the role %s", by.ID, by.Roles,
			pki.Gateway)
	}
	if err != nil {
		s.answerError(w, r, by, err)
		return
	}
	if r.Method == http.MethodConnect { // a CONNECT lasts, so the caller is checked again while it does
		ctx, end := s.whileMember(r, by)
		defer end()
		r = r.WithContext(ctx)
	}
	s.o.Proxy.ServeHTTP(w, r)
}

// DialProxy connects to the proxy of a member at addr. Errors are Unavailable: no request was sent.
func (c *Client) DialProxy(ctx context.Context, id, addr string) (net.Conn, error) {
	if addr == "" {
		return nil, fault.New(fault.Unavailable, fault.CodeUnreachable, "the address of member %s is not known", id)
	}
	conf := c.identity.ClientTLS(c.now, id, "", proxyProtocol)
	conn, err := dialTLS(ctx, c.dial, addr, conf)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"member %s cannot be reached at %s", id, addr)
	}
	there := conn.ConnectionState()
	switch {
	case c.isDenied(&there):
		err = errors.New("who is there was removed from the cluster")
	case there.NegotiatedProtocol != proxyProtocol:
		err = errors.New("it has no proxy")
	default:
		return conn, nil
	}
	conn.Close()
	return nil, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable, "member %s cannot be reached at %s", id, addr)
}
