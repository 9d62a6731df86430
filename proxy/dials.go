package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/soukhq/souk/internal/limit"
	"github.com/soukhq/souk/internal/silence"
	"github.com/soukhq/souk/proxy/hop"
)

// dials sends requests over kept connections, and bounds how many new ones are made at once to one end. A new
// connection costs both ends more than a request over a kept one, so in a burst most requests wait for a moment, and
// reuse a connection that another request has given back.
type dials struct {
	conns *hop.Conns
	lines limit.Lines[string] // requests that make connections, by end
}

// end is where a request is sent: a machine's port or another member.
type end interface {
	// dial makes a new connection.
	dialMachine(ctx context.Context) (net.Conn, error)
	// goesOver records which connection the request now uses.
	goesOver(c net.Conn)
}

// Bounds of concurrent dials.
const (
	farDials = 8  // to one member: each needs a TLS handshake, milliseconds at both ends
	ownDials = 32 // to one port of a machine of this host
)

// maxStale bounds the kept connections that one request finds closed.
const maxStale = 3

// sendRequest sends a request over a kept connection of a key. It dials if there is none, or if the kept one was closed
// before anything was done with the request.
func (d *dials) sendRequest(ctx context.Context, w http.ResponseWriter, r *hop.Request, key string,
	to end) (res hop.Result, err error) {
	for tries := 0; ; tries++ {
		var c *hop.Conn
		if tries == 0 { // after a failure dial: the other kept ones may be as old
			if r.IsRepeatable() {
				c = d.conns.GetToAsk(key, r.Whose)
			} else {
				c = d.conns.GetFor(key, r.Whose, true)
			}
		}
		if c == nil {
			if c, err = d.takeConn(ctx, key, to); err != nil {
				return hop.Result{}, err
			}
		}
		to.goesOver(c.Conn)
		used := c.Used()
		res, err = hop.Exchange(w, r, c)
		if res.Reusable {
			d.conns.Put(c)
		} else {
			d.conns.Discard(c)
		}
		if err == nil || !res.Unsent || !used || r.Context().Err() != nil || tries > maxStale ||
			errors.Is(err, silence.Err) {
			return res, err
		}
	}
}

// takeConn returns a connection of a key: a new one, or one that has become free meanwhile.
func (d *dials) takeConn(ctx context.Context, key string, to end) (*hop.Conn, error) {
	if err := d.lines.Enter(ctx, key); err != nil {
		return nil, err
	}
	defer d.lines.Leave(key)
	if c := d.conns.Get(key, true); c != nil {
		return c, nil
	}
	c, err := to.dialMachine(ctx)
	if err != nil {
		return nil, err
	}
	return hop.NewConn(key, c), nil
}
