package proxy

import (
	"context"
	"time"
)

// Drain stops sending requests to a machine of this process until its next start. It returns when the requests under
// way are answered, after most, or when ctx ends. Other members that send one meanwhile get a correction, so they need
// not know of the drain. Drain does not wait for connections that are no requests, nor for upgraded ones: they need not
// end by themselves, and the program can close them when it gets its signal.
func (p *Proxy) Drain(ctx context.Context, app, id string, most time.Duration) {
	p.owner.drainMachine(ctx, Target{App: app, Machine: id}, most)
}

func (o *owner) drainMachine(ctx context.Context, t Target, most time.Duration) {
	_, m, err := o.findMachine(ctx, t)
	if err != nil {
		return // the machine is not here, so no request reaches it
	}
	o.mu.Lock()
	g := o.gateOf(t.Machine)
	g.leaving, g.left = true, lastUp(m)
	unnamed := g.left == ""
	o.mu.Unlock()
	defer o.conns.Drop(t.Machine)
	if unnamed { // the start has left the events, so a later start would look the same
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

// awaitedRequests counts the requests that a machine has. Count again when fewer is closed, and after again: by then a
// silent stream may have reached its limit and counts no more.
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
