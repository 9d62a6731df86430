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

// withSpreader calls f with the spreader, which knows the members as they are now, and returns what is to be sent then.
func (d *dissemination) withSpreader(f func(*broadcast.Spreader)) ([]broadcast.Packet, []broadcast.Ack) {
	ring := d.c.members.currentRing()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.SetRing(ring)
	f(d.out)
	return d.out.Flush(time.Now())
}

// nextResend returns when something must be sent again.
func (d *dissemination) nextResend() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Next()
}

// spreadStats returns the counts, and how many packets are not acknowledged.
func (d *dissemination) spreadStats() (broadcast.Stats, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Stats(), d.out.InFlight()
}

// changeAndSend changes the tree and sends what follows.
func (d *dissemination) changeAndSend(f func(*broadcast.Spreader)) {
	packets, acks := d.withSpreader(f)
	for _, p := range packets {
		if n := d.c.members.nodeOf(p.To); n != nil {
			_ = d.c.ml.SendBestEffort(n, p.Encode()) // it is sent again when nobody acknowledges it
		}
	}
	for _, a := range acks {
		if n := d.c.members.nodeOf(a.To); n != nil {
			_ = d.c.ml.SendBestEffort(n, a.Encode())
		}
	}
	if len(packets) > 0 {
		wakeLoop(d.resends)
	}
}

// publishBodies tells all others, as soon as there can be others.
func (d *dissemination) publishBodies(bodies ...[]byte) {
	select {
	case <-d.c.ready:
	default: // whoever we join will pull it
		return
	}
	if len(bodies) == 0 || d.c.members.count.Load() < 2 {
		return
	}
	d.changeAndSend(func(s *broadcast.Spreader) {
		for _, b := range bodies {
			s.Publish(b)
		}
	})
}

// resendUnacked sends again what nobody acknowledged.
func (d *dissemination) resendUnacked(ctx context.Context, l *loop) {
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.resends:
		case <-due.C:
			l.runGuarded(func() { d.changeAndSend(func(*broadcast.Spreader) {}) }, d.c.o)
		}
		if next, ok := d.nextResend(); ok {
			due.Reset(max(time.Until(next), time.Millisecond))
		}
	}
}
