package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// h2Clients send requests to machines over HTTP/2 in the clear, which gRPC needs: net/http's own clients, one for each
// machine, since one connection carries all its requests.
type h2Clients struct {
	mu   sync.Mutex
	byID map[string]*h2Client
}

type h2Client struct {
	*http.Transport
	used time.Time
	conn atomic.Pointer[net.Conn] // the newest connection
}

// newestConn returns the connection that requests go over; nil: there is none yet.
func (c *h2Client) newestConn() net.Conn {
	if p := c.conn.Load(); p != nil {
		return *p
	}
	return nil
}

// h2Idle is how long an unused connection is kept: its owner counts it as load.
const h2Idle = keptTime

// streamBuffer is how much of an answer is buffered while its client does not read.
const streamBuffer = 64 << 10

// clientFor returns the client of a machine's port. dial connects to it.
func (h *h2Clients) clientFor(b *backend, dial func(context.Context) (net.Conn, error)) *h2Client {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.byID[b.conn]
	if c == nil {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		c = &h2Client{}
		c.Transport = &http.Transport{Protocols: protocols, DisableCompression: true,
			MaxResponseHeaderBytes: maxHead, IdleConnTimeout: h2Idle,
			HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: streamBuffer},
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := dial(ctx)
				if err == nil {
					c.conn.Store(&conn)
				}
				return conn, err
			}}
		if h.byID == nil {
			h.byID = map[string]*h2Client{}
		}
		h.byID[b.conn] = c
	}
	c.used = time.Now()
	return c
}

// dropUnused drops clients that nobody has used for a while.
func (h *h2Clients) dropUnused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, c := range h.byID {
		if time.Since(c.used) > poolTime {
			c.CloseIdleConnections()
			delete(h.byID, id)
		}
	}
}
