package releases

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// Bounds of holding a plan's room.
const (
	holdTime  = 10 * time.Second // for the workers' answers, in each try
	holdTries = 3                // each plans again with the refusing workers' newer records
)

// hold asks workers to hold room for the machines that a release makes first. If a worker has lost its room, the
// release does not fit and nothing is held. Room that appears only once older machines are gone is not held. nil:
// nothing is held.
func (a *Releases) hold(ctx context.Context, t *trial) *release.Booking {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	booking := &release.Booking{Token: rand.Text(), Until: time.Now().Add(market.MaxHoldTTL).UTC(),
		At: map[string]cluster.WorkerID{}}
	slots := slices.DeleteFunc(t.first(), func(slot release.Slot) bool {
		return t.lateVolumes(slot.Group) // its volumes, made first, use some of that room
	})
	held, errs := make([]bool, len(slots)), make([]error, len(slots))
	var all sync.WaitGroup
	for i, slot := range slots {
		all.Go(func() {
			held[i], errs[i] = a.Broker.HoldTrial(ctx, t.made[slot], booking.SlotToken(slot), market.MaxHoldTTL)
		})
	}
	all.Wait()
	gone := false
	for i, slot := range slots {
		if held[i] {
			booking.At[slot.String()] = t.made[slot].Worker
		}
		if no, is := fault.Detail[market.Refusal](errs[i]); is && len(no.Verdict.Failing) > 0 {
			t.groups[slot.Group].refused(fault.As(errs[i]).Error())
			gone = true
		}
	}
	if gone {
		a.giveBack(ctx, booking)
	}
	if gone || len(booking.At) == 0 {
		return nil
	}
	return booking
}

// first lists the slots that the first step makes machines for, in the order in which a steward makes them, at most as
// many as a steward orders at once.
func (t *trial) first() (out []release.Slot) {
	for i := range t.plan.First {
		slot := t.plan.First[i].Slot()
		if t.made[slot] != nil && !slices.Contains(out, slot) && len(out) < release.MaxBooked {
			out = append(out, slot)
		}
	}
	return out
}

// lateVolumes reports whether a group mounts volumes that do not exist yet.
func (t *trial) lateVolumes(group string) bool {
	for _, v := range t.unmade {
		if v.group == group {
			return true
		}
	}
	return false
}

// giveBack releases holds at reachable workers; the others expire.
func (a *Releases) giveBack(ctx context.Context, booking *release.Booking) {
	for slot, worker := range booking.At {
		_ = a.Broker.Release(ctx, worker, booking.Token+"/"+slot)
	}
}
