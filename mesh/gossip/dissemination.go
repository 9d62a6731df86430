package gossip

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/core/broadcast"
)

// dissemination sends our changes to all members and receives theirs, by way of package broadcast.
type dissemination struct {
	c       *Cluster
	inbox   chan []byte   // received packets
	resends chan struct{} // a packet may need resending
	dropped atomic.Int64  // received packets dropped because inbox was full

	mu  sync.Mutex // held for work in memory alone
	out *broadcast.Spreader
}

func newDissemination(c *Cluster) *dissemination {
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	o := broadcast.Options{Self: c.o.Self, Ways: c.o.Knobs.Push, Patience: c.o.Knobs.Patience, Size: spreadSize}
	return &dissemination{c: c, inbox: make(chan []byte, inboxSize), resends: make(chan struct{}, 1),
		out: broadcast.New(o, rng)}
}

// withSpreader updates the spreader's list of members, calls f with it, and returns the packets and acknowledgements to
// send.
func (d *dissemination) withSpreader(f func(*broadcast.Spreader)) ([]broadcast.Packet, []broadcast.Ack) {
	ring := d.c.members.currentRing()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.SetRing(ring)
	f(d.out)
	return d.out.Flush(time.Now())
}

// nextResend returns when the next packet must be resent.
func (d *dissemination) nextResend() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Next()
}

// spreadStats returns the counts, and the number of packets not acknowledged yet.
func (d *dissemination) spreadStats() (broadcast.Stats, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Stats(), d.out.InFlight()
}

// changeAndSend calls f with the spreader and sends the packets that result.
func (d *dissemination) changeAndSend(f func(*broadcast.Spreader)) {
	packets, acks := d.withSpreader(f)
	for _, p := range packets {
		if n := d.c.members.nodeOf(p.To); n != nil {
			_ = d.c.ml.SendBestEffort(n, p.Encode()) // lost packets are resent for lack of an acknowledgement
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

// publishBodies broadcasts bodies to all other members. Before the member is ready it does nothing.
func (d *dissemination) publishBodies(bodies ...[]byte) {
	select {
	case <-d.c.ready:
	default: // the members that we join will pull the records
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

// resendUnacked resends packets that were not acknowledged.
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
