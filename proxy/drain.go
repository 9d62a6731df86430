package proxy

import (
	"context"
	"time"
)

// Drain has a machine of this process get no more requests until its next start, and returns when those that it has are
// answered, after most or when ctx ends. Who sends it one meanwhile is corrected, so nobody has to have heard that it is
// being stopped. Connections that are no requests, upgraded ones too, are not waited for: they have no end of their own,
// and the program may care for them when it gets its signal.
func (p *Proxy) Drain(ctx context.Context, app, id string, most time.Duration) {
	p.owner.drainMachine(ctx, Target{App: app, Machine: id}, most)
}

func (o *owner) drainMachine(ctx context.Context, t Target, most time.Duration) {
	_, m, err := o.findMachine(ctx, t)
	if err != nil {
		return // it is not here, so nothing is sent to it
	}
	o.mu.Lock()
	g := o.gateOf(t.Machine)
	g.leaving, g.left = true, lastUp(m)
	unnamed := g.left == ""
	o.mu.Unlock()
	defer o.conns.Drop(t.Machine)
	if unnamed { // its start is no longer among its events, so the next one could not be told from it later
		defer func() { o.mu.Lock(); g.leaving = false; o.mu.Unlock() }()
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		n, again, fewer := o.awaitedRequests(t.Machine)
		if n == 0 {
			return
		}
		select {
		case <-fewer:
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// awaitedRequests counts the requests that a machine has. They may be fewer when the channel is closed, and after a
// time, in which one of them can have been silent for as long as its stream may be.
func (o *owner) awaitedRequests(id string) (n int, again time.Duration, fewer <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g, again := o.gateOf(id), time.Hour
	for v := range g.visits {
		left := again
		if v.stream > 0 {
			left = v.stream - v.silentFor()
		}
		if !v.raw && left > 0 {
			n++
			again = min(again, left)
		}
	}
	if g.fewer == nil {
		g.fewer = make(chan struct{})
	}
	return n, again, g.fewer
}
