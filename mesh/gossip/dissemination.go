package gossip

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/core/broadcast"
)

// dissemination brings changes to all members and takes in those of others: it drives package broadcast.
type dissemination struct {
	c       *Cluster
	inbox   chan []byte   // packets that came
	resends chan struct{} // something may have to be sent again
	dropped atomic.Int64  // packets that came while too many waited

	mu  sync.Mutex // held for work in memory alone
	out *broadcast.Spreader
}

func newDissemination(c *Cluster) *dissemination {
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	o := broadcast.Options{Self: c.o.Self, Ways: c.o.Knobs.Push, Patience: c.o.Knobs.Patience, Size: spreadSize}
	return &dissemination{c: c, inbox: make(chan []byte, inboxSize), resends: make(chan struct{}, 1),
		out: broadcast.New(o, rng)}
}

// with calls f with the spreader, which knows the members as they are now, and returns what is to be sent then.
func (d *dissemination) with(f func(*broadcast.Spreader)) ([]broadcast.Packet, []broadcast.Ack) {
	ring := d.c.members.currentRing()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.SetRing(ring)
	f(d.out)
	return d.out.Flush(time.Now())
}

// next returns when something must be sent again.
func (d *dissemination) next() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Next()
}

// stats returns the counts, and how many packets are not acknowledged.
func (d *dissemination) stats() (broadcast.Stats, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Stats(), d.out.InFlight()
}

// spread changes the tree and sends what follows.
func (d *dissemination) spread(f func(*broadcast.Spreader)) {
	packets, acks := d.with(f)
	for _, p := range packets {
		if n := d.c.members.node(p.To); n != nil {
			_ = d.c.ml.SendBestEffort(n, p.Encode()) // it is sent again when nobody acknowledges it
		}
	}
	for _, a := range acks {
		if n := d.c.members.node(a.To); n != nil {
			_ = d.c.ml.SendBestEffort(n, a.Encode())
		}
	}
	if len(packets) > 0 {
		poke(d.resends)
	}
}

// publish tells all others, as soon as there can be others.
func (d *dissemination) publish(bodies ...[]byte) {
	select {
	case <-d.c.ready:
	default: // whoever we join will pull it
		return
	}
	if len(bodies) == 0 || d.c.members.count.Load() < 2 {
		return
	}
	d.spread(func(s *broadcast.Spreader) {
		for _, b := range bodies {
			s.Publish(b)
		}
	})
}

// resend sends again what nobody acknowledged.
func (d *dissemination) resend(ctx context.Context, l *loop) {
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.resends:
		case <-due.C:
			l.do(func() { d.spread(func(*broadcast.Spreader) {}) }, d.c.o)
		}
		if next, ok := d.next(); ok {
			due.Reset(max(time.Until(next), time.Millisecond))
		}
	}
}
