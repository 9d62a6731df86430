package gossip

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/broadcast"
	"github.com/soukhq/souk/core/registry"
)

// arrival is a message that came.
type arrival struct {
	broadcast.Message
	delta registry.Delta
	good  bool // it is to be passed on
}

// takeIn merges broadcasts, and passes them on.
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

// receiveBroadcast merges a broadcast and all that wait behind it, and passes on what is good, in as few packets as
// hold it. What it decodes and verifies it does before it takes the registry's lock.
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
	if news || d.c.reg.Root() != d.c.roots.now.Load() { // an update may say only that something is complete
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

// receivePacket decodes a packet and all that wait behind it, acknowledges them, and returns what is to be judged.
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

// judgeArrival decodes and verifies a message, if it was not judged before.
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

// passOn relays what is good over the tree.
func (d *dissemination) passOn(arrivals []arrival) {
	d.changeAndSend(func(s *broadcast.Spreader) {
		for _, a := range arrivals {
			if a.good {
				s.Relay(a.Message)
			}
		}
	})
}

// decodeBroadcast reads what publish sent: an update, or a delta.
func decodeBroadcast(raw []byte) (registry.Delta, error) {
	if run, err := registry.DecodeUpdate(raw); err == nil {
		return registry.Delta{Updates: []registry.Update{run}}, nil
	}
	return registry.DecodeDelta(raw)
}
