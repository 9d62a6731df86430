package gossip

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/broadcast"
	"github.com/soukhq/souk/core/registry"
)

// arrival is a received message.
type arrival struct {
	broadcast.Message
	delta registry.Delta
	good  bool // verified, or verified before: it may be relayed
}

// takeIn merges received broadcasts and relays them.
func (d *dissemination) takeIn(ctx context.Context, l *loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case raw := <-d.inbox:
			l.runGuarded(func() { d.receiveBroadcast(raw) }, d.c.o)
		}
	}
}

// receiveBroadcast merges a broadcast and those queued behind it, and relays the good ones, in as few packets as
// possible. It decodes and verifies before it takes the registry's lock.
func (d *dissemination) receiveBroadcast(raw []byte) {
	arrivals := d.receivePacket(raw)
	for i := range arrivals {
		d.judgeArrival(&arrivals[i])
	}
	d.c.mu.Lock()
	news := false
	for i := range arrivals {
		a := &arrivals[i]
		if !a.good || a.delta.Empty() {
			continue
		}
		changed, err := d.c.reg.Merge(time.Now(), "", a.delta)
		if d.c.refusals.countRefusal(err); err != nil {
			d.c.o.Log.Debug("a broadcast is refused", "err", err)
		}
		a.good = err == nil || changed > 0
		if changed > 0 {
			news = true
			d.c.keepObjects(a.delta.Objects)
		}
	}
	// an update without new records may still show that we have all of them
	if news || d.c.reg.Root() != d.c.roots.now.Load() {
		d.c.afterChange()
	} else if d.c.reg.Contested() > 0 {
		wakeLoop(d.c.announcer.contests)
	}
	gaps := d.c.reg.HasGaps()
	d.c.mu.Unlock()
	d.passOn(arrivals)
	if gaps {
		wakeLoop(d.c.antiEntropy.wake)
	}
}

// receivePacket decodes a packet and those queued behind it, acknowledges them, and returns the messages to judge.
func (d *dissemination) receivePacket(raw []byte) (out []arrival) {
	d.changeAndSend(func(s *broadcast.Spreader) {
		for taken := 1; raw != nil; taken++ {
			out = append(out, d.openPacket(s, raw)...)
			raw = nil
			if taken < takeMost {
				select {
				case raw = <-d.inbox:
				default:
				}
			}
		}
	})
	return out
}

func (d *dissemination) openPacket(s *broadcast.Spreader, raw []byte) (out []arrival) {
	packet, ack, err := broadcast.Decode(raw)
	switch {
	case err != nil:
		d.c.o.Log.Debug("a packet is refused", "err", err)
	case ack != nil:
		s.Acked(time.Now(), *ack)
	default:
		for _, m := range s.Receive(*packet) {
			out = append(out, arrival{Message: m, good: s.Known(m)})
		}
	}
	return out
}

// judgeArrival decodes and verifies a message, unless it was verified before.
func (d *dissemination) judgeArrival(a *arrival) {
	if a.good {
		return
	}
	delta, err := decodeBroadcast(a.Body)
	if err == nil {
		delta, err = d.c.verifyDelta(delta)
	}
	if err != nil {
		d.c.o.Log.Debug("a broadcast is refused", "err", err)
		return
	}
	a.delta, a.good = delta, true
}

// passOn relays the good messages over the tree.
func (d *dissemination) passOn(arrivals []arrival) {
	d.changeAndSend(func(s *broadcast.Spreader) {
		for _, a := range arrivals {
			if a.good {
				s.Relay(a.Message)
			}
		}
	})
}

// decodeBroadcast decodes what publishBodies sent: an update, or a delta.
func decodeBroadcast(raw []byte) (registry.Delta, error) {
	if run, err := registry.DecodeUpdate(raw); err == nil {
		return registry.Delta{Updates: []registry.Update{run}}, nil
	}
	return registry.DecodeDelta(raw)
}
