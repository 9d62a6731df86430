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
	p.owner.drain(ctx, Target{App: app, Machine: id}, most)
}

func (o *owner) drain(ctx context.Context, t Target, most time.Duration) {
	_, m, err := o.find(ctx, t)
	if err != nil {
		return // it is not here, so nothing is sent to it
	}
	o.mu.Lock()
	g := o.gate(t.Machine)
	g.leaving, g.left = true, lastUp(m)
	unnamed := g.left == ""
	o.mu.Unlock()
	defer o.conns.Drop(t.Machine)
	if unnamed { // its start is no longer among its events, so the next one could not be told from it later
		defer func() { o.mu.Lock(); g.leaving = false; o.mu.Unlock() }()
	}
	late := time.NewTimer(most)
	defer late.Stop()
	for o.awaited(t.Machine) > 0 {
		select {
		case <-time.After(lookAgain):
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// awaited counts the requests that a machine has.
func (o *owner) awaited(id string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for v := range o.gate(id).visits {
		if !v.raw && (v.stream == 0 || v.silent() < v.stream) {
			n++
		}
	}
	return n
}
