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
	codeHold   fault.Code = "hold"   // a hold lacks its token or time, or another machine has its token
	codeLedger fault.Code = "ledger" // the ledger does not know the machine
)

// Bounds of a seller's holds, so that a hostile buyer cannot hold a whole worker empty.
const (
	MaxHolds     = 1024
	MaxHoldsEach = MaxHolds / 2 // of one caller
	MaxHoldTTL   = 60 * time.Second

	// maxUnused bounds how much one caller may hold without using it: the whole worker for this long, or half of it
	// for twice as long. The share forgiven is subtracted each second, so a caller may hold that share of the worker
	// for ever.
	maxUnused = 2 * time.Minute
	forgiven  = 0.25
)

// hold is capacity reserved for a machine.
type hold struct {
	by      string // the caller
	machine string // "": any machine whose grant names the token
	amount  amount
	share   float64 // of the worker's capacity, in the dimension with the largest share
	since   time.Time
	expires time.Time
}

// unusedFor returns for how long the hold has occupied the worker at now, scaled by its share.
func (h *hold) unusedFor(now time.Time) time.Duration {
	if now.After(h.expires) {
		now = h.expires
	}
	return time.Duration(h.share * float64(now.Sub(h.since)))
}

// unused is how much a caller has held without using it, before forgiveness for the time since at.
type unused struct {
	held time.Duration // scaled to the whole worker
	at   time.Time
}

// leftAt returns how much is not yet forgiven at now.
func (u unused) leftAt(now time.Time) time.Duration {
	return max(0, u.held-time.Duration(forgiven*float64(now.Sub(u.at))))
}

// holds are the current holds of one seller, and the unused time of its callers' past holds.
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

// refuseHold returns why a new hold exceeds the bounds, and when to ask again; "" if it does not.
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

// takeHold removes a hold; redeemed: a machine was granted with it.
func (s *holds) takeHold(now time.Time, token string, redeemed bool) (h hold, known bool) {
	h, known = s.byToken[token]
	delete(s.byToken, token)
	if known && !redeemed {
		s.unused[h.by] = unused{s.unused[h.by].leftAt(now) + h.unusedFor(now), now}
	}
	return h, known
}

// sweepForgiven drops callers whose unused time is all forgiven.
func (s *holds) sweepForgiven(now time.Time) {
	if len(s.unused) > MaxHolds {
		maps.DeleteFunc(s.unused, func(_ string, u unused) bool { return u.leftAt(now) == 0 })
	}
}

// Hold reserves capacity for a request under a token until now+ttl, when the hold expires. Repeating the token renews
// the hold. If the request names no machine, any machine may be granted with the token.
//
// by is the caller, whoever it asks for. A caller that holds much for long and grants no machine with it is refused
// for a while, since others cannot use what is held.
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
	// Judge the whole request even if the machine has a grant: a hold is room in addition to it.
	if v := placement.Judge(r, s.rec); !v.Fits {
		return time.Time{}, s.refuseRequest(now, r, v, "")
	}
	h.amount = s.kinds.amountOf(r.Resources, pickDevices(s.rec.GPUs, r.Resources.GPU, r.GPUKind, nil))
	s.holds.byToken[token] = h
	s.useAmount(h.amount, 1)
	return h.expires, nil
}

// shareOf returns the share of want in of, in the dimension where it is largest.
func shareOf(want, of cluster.Resources) (most float64) {
	for _, d := range want.Dims() {
		if has := of.Get(d.Name); has > 0 {
			most = max(most, float64(d.Amount)/float64(has))
		}
	}
	return min(most, 1)
}

// Release ends a hold, if it exists.
func (s *Seller) Release(now time.Time, token string) {
	s.expireHolds(now)
	s.endHold(now, token, "")
}

// NextExpiry returns when the first of all holds and wanted requests expires; zero: there are none.
func (s *Seller) NextExpiry() time.Time {
	var first time.Time
	for _, h := range s.holds.byToken {
		if first.IsZero() || h.expires.Before(first) {
			first = h.expires
		}
	}
	for _, w := range s.wanted {
		if first.IsZero() || w.Until.Before(first) {
			first = w.Until
		}
	}
	return first
}

// expireHolds removes the holds that have expired.
func (s *Seller) expireHolds(now time.Time) {
	for token, h := range s.holds.byToken {
		if !now.Before(h.expires) {
			s.endHold(now, token, "")
			s.holds.expired++
		}
	}
	s.holds.sweepForgiven(now)
	s.expireWanted(now)
}

// endHold frees what a token holds, if anything. If granted is set, the hold ends only if it is for that machine.
func (s *Seller) endHold(now time.Time, token, granted string) {
	if h := s.holds.byToken[token]; granted != "" && h.machine != "" && h.machine != granted {
		return
	}
	if h, known := s.holds.takeHold(now, token, granted != ""); known {
		s.useAmount(h.amount, -1)
	}
}
