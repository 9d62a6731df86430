package market

import (
	"fmt"
	"maps"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	codeHold   fault.Code = "hold"   // a hold lacks its token or time, or its token is in use
	codeLedger fault.Code = "ledger" // the ledger does not know the machine
)

// Bounds of a seller's holds: without them a hostile buyer could hold a worker empty.
const (
	MaxHolds     = 1024
	MaxHoldsEach = MaxHolds / 2 // of one caller
	MaxHoldTTL   = 60 * time.Second

	// maxUnused bounds what one caller may leave unused of what it holds: the whole worker for so long, or half of it
	// for twice as long. The share forgiven is taken off in each second, so that much a caller may hold for ever.
	maxUnused = 2 * time.Minute
	forgiven  = 0.25
)

// hold is capacity that is kept for a machine.
type hold struct {
	by      string // the caller
	machine string // "": whichever the token is said for
	amount  amount
	share   float64 // of the worker's capacity, in the dimension of which it has most
	since   time.Time
	expires time.Time
}

// unusedFor returns how long the hold has kept the whole worker at now, or what comes to the same.
func (h *hold) unusedFor(now time.Time) time.Duration {
	if now.After(h.expires) {
		now = h.expires
	}
	return time.Duration(h.share * float64(now.Sub(h.since)))
}

// unused is what a caller has held and not used, and nothing of it has been forgiven since at.
type unused struct {
	held time.Duration // of the whole worker
	at   time.Time
}

// leftAt returns what is not forgiven at now.
func (u unused) leftAt(now time.Time) time.Duration {
	return max(0, u.held-time.Duration(forgiven*float64(now.Sub(u.at))))
}

// holds are the holds of one seller, and how its callers have used those that are over.
type holds struct {
	byToken map[string]hold
	unused  map[string]unused // by caller
	expired uint64
}

func newHolds() holds { return holds{byToken: map[string]hold{}, unused: map[string]unused{}} }

// heldBy counts the holds of a caller.
func (s *holds) heldBy(by string) (n int) {
	for _, h := range s.byToken {
		if h.by == by {
			n++
		}
	}
	return n
}

// refuseHold returns why a new hold is beyond the bounds, and when to ask again; "" where it is not.
func (s *holds) refuseHold(now time.Time, h *hold) (why string, wait time.Duration) {
	if n, all := s.heldBy(h.by), len(s.byToken); n >= MaxHoldsEach || all >= MaxHolds {
		return fmt.Sprintf("the worker has %d holds already, %d of them by %s; it keeps %d, and %d of one caller: "+
			"try again when some have ended", all, n, h.by, MaxHolds, MaxHoldsEach), time.Second
	}
	held := s.unused[h.by].leftAt(now)
	for _, other := range s.byToken {
		if other.by == h.by {
			held += other.unusedFor(now)
		}
	}
	over := held + h.unusedFor(h.expires) - maxUnused
	if over <= 0 {
		return "", 0
	}
	wait = max(time.Second, time.Duration(float64(over)/forgiven).Round(time.Second))
	return fmt.Sprintf("%s has held much of the worker for long and not used it; it may hold as much again in %v", h.by,
		wait), wait
}

// takeHold takes a hold out; redeemed says that a machine was granted in it.
func (s *holds) takeHold(now time.Time, token string, redeemed bool) (h hold, known bool) {
	h, known = s.byToken[token]
	delete(s.byToken, token)
	if known && !redeemed {
		s.unused[h.by] = unused{s.unused[h.by].leftAt(now) + h.unusedFor(now), now}
	}
	return h, known
}

// sweepForgiven forgets callers to whom all is forgiven.
func (s *holds) sweepForgiven(now time.Time) {
	if len(s.unused) > MaxHolds {
		maps.DeleteFunc(s.unused, func(_ string, u unused) bool { return u.leftAt(now) == 0 })
	}
}

// Hold reserves capacity for a request under a token until now+ttl, when it ends by itself. The same token again renews
// it. A request that names no machine reserves it for whichever machine the token is granted with.
//
// by is the caller, whoever it asks for. One that holds much for long, and has no machine granted in it, is refused for
// a while: what is held is refused to all others.
func (s *Seller) Hold(now time.Time, by string, r placement.Request, token string, ttl time.Duration) (time.Time,
	error) {
	s.expireHolds(now)
	if token == "" || ttl <= 0 || ttl > MaxHoldTTL {
		return time.Time{}, fault.New(fault.Invalid, codeHold, "a hold needs a token and a time of at most %v; got %v",
			MaxHoldTTL, ttl)
	}
	if old, ok := s.holds.byToken[token]; ok {
		if old.machine != r.Machine {
			return time.Time{},
				fault.New(fault.Conflict, codeHold, "the token is in use for another machine; choose another")
		}
		s.endHold(now, token, "")
	}
	h := hold{by: by, machine: r.Machine, share: shareOf(r.Resources, s.rec.Capacity), since: now,
		expires: now.Add(ttl)}
	if why, wait := s.holds.refuseHold(now, &h); why != "" {
		e := s.refuseRequest(now, r, placement.Verdict{}, "%s", why)
		e.RetryAfter = wait
		return time.Time{}, e
	}
	s.setFunds(now, &r)
	// Judged whole, also where the machine has a grant already: a hold is room beside what is granted.
	if v := placement.Judge(r, s.rec); !v.Fits {
		return time.Time{}, s.refuseRequest(now, r, v, "")
	}
	h.amount = s.kinds.amountOf(r.Resources, pickDevices(s.rec.GPUs, r.Resources.GPU, r.GPUKind, nil))
	s.holds.byToken[token] = h
	s.useAmount(h.amount, 1)
	return h.expires, nil
}

// shareOf returns how much of a capacity an amount is, in the dimension of which it is most.
func shareOf(want, of cluster.Resources) (most float64) {
	for _, d := range want.Dims() {
		if has := of.Get(d.Name); has > 0 {
			most = max(most, float64(d.Amount)/float64(has))
		}
	}
	return min(most, 1)
}

// Release ends a hold. It is nil when there is none (any more).
func (s *Seller) Release(now time.Time, token string) {
	s.expireHolds(now)
	s.endHold(now, token, "")
}

// NextExpiry gives when the next hold ends; zero when there is none.
func (s *Seller) NextExpiry() time.Time {
	var first time.Time
	for _, h := range s.holds.byToken {
		if first.IsZero() || h.expires.Before(first) {
			first = h.expires
		}
	}
	return first
}

// expireHolds ends the holds whose time is over.
func (s *Seller) expireHolds(now time.Time) {
	for token, h := range s.holds.byToken {
		if !now.Before(h.expires) {
			s.endHold(now, token, "")
			s.holds.expired++
		}
	}
	s.holds.sweepForgiven(now)
}

// endHold gives back what a token holds, if it holds anything. Where a machine is being granted, only its own hold
// ends.
func (s *Seller) endHold(now time.Time, token, granted string) {
	if h := s.holds.byToken[token]; granted != "" && h.machine != "" && h.machine != granted {
		return
	}
	if h, known := s.holds.takeHold(now, token, granted != ""); known {
		s.useAmount(h.amount, -1)
	}
}
