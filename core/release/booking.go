package release

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Booking is the room that workers hold for the first machines of a release since its plan. A worker gives it to the
// machine that is granted with the slot's token.
type Booking struct {
	Token string                      `json:"token"`
	Until time.Time                   `json:"until"`
	At    map[string]cluster.WorkerID `json:"at"` // by slot, such as "web/0"; at most MaxBooked
}

// MaxBooked bounds the machines with held room: a steward orders no more of one service at once.
const MaxBooked = 64

// SlotToken returns the token of a hold for one slot.
func (b *Booking) SlotToken(s Slot) string { return b.Token + "/" + s.String() }

// HeldFor returns the worker that holds room for a slot, and the token of the hold; "" if none does at now.
func (b *Booking) HeldFor(now time.Time, s Slot) (worker cluster.WorkerID, token string) {
	if b == nil || !now.Before(b.Until) || b.At[s.String()] == "" {
		return "", ""
	}
	return b.At[s.String()], b.SlotToken(s)
}

func (b *Booking) check() error {
	if b == nil {
		return nil
	}
	ok := b.Token != "" && len(b.Token) <= maxText && len(b.At) <= MaxBooked
	for slot, worker := range b.At {
		ok = ok && len(slot) <= maxText && len(worker) <= maxText
	}
	if !ok {
		return fault.New(fault.Invalid, codeBooking, "\"held\" needs a token and names at most %d machines: send "+
			"what the plan answered in \"held\", or leave it out", MaxBooked)
	}
	return nil
}
