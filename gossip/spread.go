package gossip

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/soukhq/souk/broadcast"
	"github.com/soukhq/souk/registry"
)

// tree is this member's part in broadcasts, under a lock of its own that is held for work in memory alone.
type tree struct {
	members *membership

	mu  sync.Mutex
	out *broadcast.Spreader
}

func newTree(o Options, members *membership) *tree {
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return &tree{members: members, out: broadcast.New(broadcast.Options{Self: o.Self, Ways: o.Knobs.Push, Patience: o.Knobs.Patience, Size: spreadSize}, rng)}
}

// with calls f with the spreader, which knows the members as they are now, and returns what is to be sent then.
func (t *tree) with(f func(*broadcast.Spreader)) ([]broadcast.Packet, []broadcast.Ack) {
	ring := t.members.currentRing()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out.SetRing(ring)
	f(t.out)
	return t.out.Flush(time.Now())
}

// next returns when something must be sent again.
func (t *tree) next() (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Next()
}

// stats returns the counts, and how many packets are not acknowledged.
func (t *tree) stats() (broadcast.Stats, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Stats(), t.out.InFlight()
}

// spread changes the tree and sends what follows.
func (c *Cluster) spread(f func(*broadcast.Spreader)) {
	packets, acks := c.tree.with(f)
	for _, p := range packets {
		if n := c.members.node(p.To); n != nil {
			_ = c.ml.SendBestEffort(n, p.Encode()) // it is sent again when nobody acknowledges it
		}
	}
	for _, a := range acks {
		if n := c.members.node(a.To); n != nil {
			_ = c.ml.SendBestEffort(n, a.Encode())
		}
	}
	if len(packets) > 0 {
		poke(c.toResend)
	}
}

// publish tells all others, as soon as there can be others.
func (c *Cluster) publish(bodies ...[]byte) {
	select {
	case <-c.ready:
	default: // whoever we join will pull it
		return
	}
	if len(bodies) == 0 || c.members.count.Load() < 2 {
		return
	}
	c.spread(func(s *broadcast.Spreader) {
		for _, b := range bodies {
			s.Publish(b)
		}
	})
	for _, b := range bodies {
		c.flood(b, floodFirst, true)
	}
}

// flood sends a message as members did before there was a tree: to some by chance, who do the same. It is how members of
// the version before hear of a change (old: only they are sent it), and how what they say goes on.
func (c *Cluster) flood(body []byte, to int, old bool) {
	for _, n := range c.members.some(to, old) {
		_ = c.ml.SendBestEffort(n, body)
	}
}

// resend sends again what nobody acknowledged.
func (c *Cluster) resend(ctx context.Context, l *loop) {
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.toResend:
		case <-due.C:
			l.do(func() { c.spread(func(*broadcast.Spreader) {}) }, c.o)
		}
		if next, ok := c.tree.next(); ok {
			due.Reset(max(time.Until(next), time.Millisecond))
		}
	}
}

// arrival is a message that came.
type arrival struct {
	broadcast.Message
	delta registry.Delta
	old   bool // of a member of the version before: it expects that it is flooded
	good  bool // it is to be passed on
	news  bool
}

// takeIn merges broadcasts, and passes them on.
func (c *Cluster) takeIn(ctx context.Context, l *loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case raw := <-c.inbox:
			l.do(func() { c.take(raw) }, c.o)
		}
	}
}

// take merges a broadcast and all that wait behind it, and passes on what is good, in as few packets as hold it. What it
// decodes and verifies it does before it takes the registry's lock.
func (c *Cluster) take(raw []byte) {
	arrivals := c.receive(raw)
	for i := range arrivals {
		c.judge(&arrivals[i])
	}
	c.mu.Lock()
	news := false
	for i := range arrivals {
		a := &arrivals[i]
		if !a.good || a.delta.Empty() {
			continue
		}
		changed, err := c.reg.Merge(time.Now(), "", a.delta)
		if err != nil {
			c.o.Log.Debug("a broadcast is refused", "err", err)
		}
		a.good, a.news = err == nil || changed > 0, changed > 0
		if news = news || a.news; a.news {
			c.keep(a.delta.Objects)
		}
	}
	if news || c.reg.Root() != c.roots.now.Load() { // a run may say only that something is complete
		c.changed()
	} else if c.reg.Contested() > 0 {
		poke(c.toContest)
	}
	gaps := c.reg.HasGaps()
	c.mu.Unlock()
	c.passOn(arrivals)
	if gaps {
		poke(c.toSync)
	}
}

// receive decodes a packet and all that wait behind it, acknowledges them, and returns what is to be judged.
func (c *Cluster) receive(raw []byte) (out []arrival) {
	c.spread(func(s *broadcast.Spreader) {
		for taken := 1; raw != nil; taken++ {
			out = append(out, c.open(s, raw)...)
			raw = nil
			if taken < takeMost {
				select {
				case raw = <-c.inbox:
				default:
				}
			}
		}
	})
	return out
}

func (c *Cluster) open(s *broadcast.Spreader, raw []byte) (out []arrival) {
	if !broadcast.Mine(raw) {
		return []arrival{{Message: broadcast.NewMessage(broadcast.Arc{}, raw), old: true}}
	}
	packet, ack, err := broadcast.Decode(raw)
	switch {
	case err != nil:
		c.o.Log.Debug("a packet is refused", "err", err)
	case ack != nil:
		s.Acked(time.Now(), *ack)
	default:
		for _, m := range s.Receive(*packet) {
			out = append(out, arrival{Message: m, good: s.Known(m)})
		}
	}
	return out
}

// judge decodes and verifies a message, if it was not judged before.
func (c *Cluster) judge(a *arrival) {
	if a.good {
		return
	}
	d, err := decodeBroadcast(a.Body)
	if err == nil {
		d, err = registry.Verified(c.o.Verify, d)
	}
	if err != nil {
		c.o.Log.Debug("a broadcast is refused", "err", err)
		return
	}
	a.delta, a.good = d, true
}

// passOn relays what came over the tree, and floods the news that did not.
func (c *Cluster) passOn(arrivals []arrival) {
	c.spread(func(s *broadcast.Spreader) {
		for _, a := range arrivals {
			if a.good && !a.old {
				s.Relay(a.Message)
			}
		}
	})
	for _, a := range arrivals {
		if a.news && a.old {
			c.flood(a.Body, max(floodFirst/len(arrivals), 1), false)
		}
	}
}

// decodeBroadcast reads what publish sent: a run, or a delta.
func decodeBroadcast(raw []byte) (registry.Delta, error) {
	if run, err := registry.DecodeRun(raw); err == nil {
		return registry.Delta{Runs: []registry.Run{run}}, nil
	}
	return registry.DecodeDelta(raw)
}
