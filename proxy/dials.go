package proxy

import (
	"context"
	"sync"

	"github.com/soukhq/souk/proxy/hop"
)

// dials bounds the connections that are made at once to one end. Each costs both ends more than a request over one that
// is there, so of a burst most wait for a moment, and find one that another request has come back on.
type dials struct {
	conns *hop.Conns
	most  int // that are made at once to one end

	mu sync.Mutex
	by map[string]*line
}

// line is who makes connections to one end now, and who waits for that.
type line struct {
	places chan struct{}
	n      int // of both
}

// Bounds of connections that are made at once.
const (
	farDials = 8  // to one member: each is a handshake, milliseconds of both ends
	ownDials = 32 // to one port of a machine of this host
)

// connect returns a connection of a key: a new one, or one that has become free meanwhile.
func (d *dials) connect(ctx context.Context, key string, dial func() (*hop.Conn, error)) (*hop.Conn, error) {
	l := d.enter(key)
	defer d.leave(key, l)
	select {
	case l.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.places }()
	if c := d.conns.Get(key, true); c != nil {
		return c, nil
	}
	return dial()
}

func (d *dials) enter(key string) *line {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.by[key]
	if l == nil {
		if d.by == nil {
			d.by = map[string]*line{}
		}
		l = &line{places: make(chan struct{}, d.most)}
		d.by[key] = l
	}
	l.n++
	return l
}

func (d *dials) leave(key string, l *line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.n--; l.n == 0 {
		delete(d.by, key)
	}
}
