package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/pki"
)

// proxyProtocol is what the proxies of members speak on connections of their own, and nobody else: HTTP/1.1, a request
// at a time, since there the kernel keeps one slow reader from holding up the others.
const proxyProtocol = "http/1.1"

// proxyServer returns the server of what other members' proxies send. Who they are is asked again for each request, so
// what was removed from the cluster is let in no more.
func (s *Server) proxyServer(ctx context.Context, conf *tls.Config) *http.Server {
	x := s.httpServer(ctx, conf)
	x.HTTP2, x.Protocols = nil, new(http.Protocols)
	x.Protocols.SetHTTP1(true)
	x.IdleTimeout = 2 * time.Minute
	x.Handler = http.HandlerFunc(s.serveProxy)
	return x
}

func (s *Server) serveProxy(w http.ResponseWriter, r *http.Request) {
	by, err := s.peer(r.TLS)
	if err == nil && !by.Has(pki.Gateway) {
		err = fault.New(fault.Denied, "role", "%s has the roles %v, and this is for the role %s", by.ID, by.Roles,
			pki.Gateway)
	}
	if err != nil {
		s.fail(w, r, by, err)
		return
	}
	if r.Method == http.MethodConnect { // it lasts, so it is judged again as long as it does
		ctx, end := s.whileMember(r, by)
		defer end()
		r = r.WithContext(ctx)
	}
	s.o.Proxy.ServeHTTP(w, r)
}

// DialProxy connects to the proxy of a member, which is called at addr. Errors are Unavailable: nothing was asked.
func (c *Client) DialProxy(ctx context.Context, id, addr string) (net.Conn, error) {
	if addr == "" {
		return nil, fault.New(fault.Unavailable, "unreachable", "the address of member %s is not known", id)
	}
	conf := c.identity.ClientTLS(c.now, id, "", proxyProtocol)
	conn, err := dialTLS(ctx, c.dial, addr, conf)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "unreachable", "member %s cannot be reached at %s", id, addr)
	}
	there := conn.ConnectionState()
	switch {
	case c.denies(&there):
		err = errors.New("who is there was removed from the cluster")
	case there.NegotiatedProtocol != proxyProtocol:
		err = errors.New("it has no proxy; it is of an older souk")
	default:
		return conn, nil
	}
	conn.Close()
	return nil, fault.Wrap(err, fault.Unavailable, "unreachable", "member %s cannot be reached at %s", id, addr)
}
