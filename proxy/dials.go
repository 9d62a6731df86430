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

// dials sends requests over kept connections, and bounds those that are made at once to one end. Each costs both ends
// more than a request over one that is there, so of a burst most wait for a moment, and find one that another request
// has come back on.
type dials struct {
	conns *hop.Conns
	lines limit.Lines[string] // of those that make connections, by the end
}

// end is what a request is sent to.
type end interface {
	// dial makes a new connection.
	dialMachine(ctx context.Context) (net.Conn, error)
	// goesOver says which connection the request goes over now.
	goesOver(c net.Conn)
}

// Bounds of connections that are made at once.
const (
	farDials = 8  // to one member: each is a handshake, milliseconds of both ends
	ownDials = 32 // to one port of a machine of this host
)

// maxStale bounds the kept connections that one request finds closed.
const maxStale = 3

// sendRequest sends a request over a kept connection of a key, or a new one where there is none, or the kept one turned
// out to be closed before anything was done with the request.
func (d *dials) sendRequest(ctx context.Context, w http.ResponseWriter, r *hop.Request, key string,
	to end) (res hop.Result, err error) {
	for tries := 0; ; tries++ {
		var c *hop.Conn
		if tries == 0 { // else it is a new one's turn: the others may be as old
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
