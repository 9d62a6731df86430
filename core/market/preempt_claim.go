package market

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// evictionClaim is the part of a grant that other machines still occupy. The grant takes the rest at once, and this
// part piece by piece as they free it: the ledger's sum never exceeds the capacity, and no other grant can take the
// room meanwhile.
type evictionClaim struct {
	need    amount   // not yet freed
	victims []string // machines that are to free it; one that has gone down is removed
}

// Claim is Grant with consent to evict. If the request does not fit, it chooses machines of lower rank, enters the
// grant with a claim on their room, and marks them as leaving. The caller stops them (SetUp false, or Free), and Ready
// reports when the machine has its room. An empty list means that the request fitted without eviction. It is only for
// machines that are to be up.
//
// A machine that has a grant already and is down claims what it needs to go up.
func (s *Seller) Claim(now time.Time, r placement.Request, token string) ([]machine.Preemption, error) {
	s.expireHolds(now)
	old, here := s.grants[r.Machine]
	if here {
		if err := sameApp(old, r); err != nil || old.up {
			return nil, err
		}
	}
	s.endHold(now, token, r.Machine)
	rec := s.recordWithout(r.Machine)
	if here { // it is already here: only room matters
		grown := s.requestOf(r.Machine, old.want)
		grown.Scheduling.Band, grown.Scheduling.Priority = r.Scheduling.Band, r.Scheduling.Priority
		r, rec = grown, asPlaced(rec)
	}
	s.setFunds(now, &r)
	v := placement.Judge(r, rec)
	if v.Fits {
		if here {
			return nil, s.SetUp(now, r.Machine, true)
		}
		return nil, s.Grant(now, r, token, true)
	}
	e := s.searchVictims(now, &r, rec)
	if e == nil {
		return nil, s.refuseEvict(now, r, v)
	}
	return s.enterClaim(now, r, e), nil
}

// refuseEvict is refuseFootprint for a request that may evict: the refusal says why eviction did not help.
func (s *Seller) refuseEvict(now time.Time, r placement.Request, v placement.Verdict) error {
	e := s.refuseFootprint(now, r, v, s.footprintOf(r.Machine))
	switch {
	case !r.Scheduling.MayPreempt():
	case !s.mayEvict(&r):
		e.Text += "; it was evicted itself and has not run since, so it evicts nobody: it starts when there is room"
	default:
		e.Text += "; nor is there room among machines of lower rank that may be evicted now"
	}
	return e
}

// Stay ends the leaving of a machine, unless its beneficiary still waits.
func (s *Seller) Stay(id string) {
	if to, leaving := s.leaving[id]; leaving && !s.Waiting(to) {
		delete(s.leaving, id)
		s.tallyEvictable(id, s.grants[id], 1)
	}
}

// enterClaim enters the grant and the claim, and records the evictions.
func (s *Seller) enterClaim(now time.Time, r placement.Request, e *Eviction) []machine.Preemption {
	freed := amount{}
	out := make([]machine.Preemption, 0, len(e.Victims))
	victims := make([]string, 0, len(e.Victims))
	for _, v := range e.Victims {
		g := s.grants[v.Machine]
		freed = freed.add(s.freedByStop(g))
		victims = append(victims, v.Machine)
		out = append(out, machine.Preemption{Rule: machine.RuleLowerRank, Machine: v.Machine, App: v.App, Rank: v.Rank,
			By: r.Machine, ByApp: r.App,
			ByRank: r.Scheduling.Rank(), Cost: v.Cost, Why: v.Why, At: now})
	}
	gpus := pickDevices(recordWithoutGone(s.recordWithout(r.Machine), freed).GPUs, r.Resources.GPU, r.GPUKind, nil)
	c := &evictionClaim{need: s.kinds.leastOf(s.kinds.amountOf(r.Resources, gpus), freed), victims: victims}
	s.markLeaving(r.Machine, victims)
	if s.grants[r.Machine] != nil {
		s.editGrant(r.Machine, func(g *grant) { g.up, g.gpus, g.claim = true, gpus, c })
	} else {
		g := grantOf(r, true)
		g.gpus, g.claim = gpus, c
		s.enterGrant(r.Machine, g)
	}
	s.rememberEvictions(out)
	return out
}

// RestoreClaim restores a claim at start-up, after all grants: victims are the machines still to go. It occupies no
// more than it did before the restart.
func (s *Seller) RestoreClaim(id string, victims []string) {
	g := s.grants[id]
	if g == nil || !g.up || g.claim != nil {
		return
	}
	freed := amount{}
	victims = slices.DeleteFunc(slices.Clone(victims), func(v string) bool {
		other := s.grants[v]
		return other == nil || !s.isStaying(v, other)
	})
	for _, v := range victims { // their devices were healthy when the claim was made
		freed = freed.add(s.grants[v].occupiedAmount().sub(s.grants[v].asleepAmount()))
	}
	if len(victims) == 0 {
		return
	}
	s.markLeaving(id, victims)
	s.editGrant(id, func(g *grant) {
		g.claim = &evictionClaim{need: s.kinds.leastOf(s.kinds.amountOf(g.want, g.gpus), freed), victims: victims}
	})
	s.settleClaim(id)
}

// markLeaving marks machines as leaving for a beneficiary.
func (s *Seller) markLeaving(id string, victims []string) {
	for _, v := range victims {
		s.tallyEvictable(v, s.grants[v], -1)
		s.leaving[v] = id
	}
}

// passToBeneficiary passes what a leaving machine has freed to its beneficiary. gone: it frees no more.
func (s *Seller) passToBeneficiary(id string, back amount, gone bool) {
	to, leaving := s.leaving[id]
	if !leaving {
		return
	}
	g := s.grants[to]
	if gone {
		delete(s.leaving, id)
	}
	if g == nil || g.claim == nil {
		return
	}
	got := s.kinds.leastOf(g.claim.need, back)
	g.claim.need = g.claim.need.sub(got)
	s.useAmount(got, 1)
	if gone {
		g.claim.victims = slices.DeleteFunc(g.claim.victims, func(v string) bool { return v == id })
	}
	s.settleClaim(to)
}

// settleClaim ends a claim that has all its room.
func (s *Seller) settleClaim(id string) {
	g := s.grants[id]
	if g.claim == nil || !g.claim.need.isZero() {
		return
	}
	g.claim = nil
	s.tallyEvictable(id, g, 1)
	s.ready = append(s.ready, id)
	s.bumpVersion()
}

// dropClaim ends a claim that is no longer wanted. Its victims stay, unless they have been stopped already.
func (s *Seller) dropClaim(id string) {
	for _, v := range s.grants[id].claim.victims {
		delete(s.leaving, v)
		s.tallyEvictable(v, s.grants[v], 1)
	}
	had := s.grants[id].occupiedAmount()
	s.useAmount(had, -1)
	s.grants[id].claim, s.grants[id].up, s.grants[id].gpus = nil, false, nil
	s.kept.countResting(s.grants[id], 1, &s.rec)
	s.useAmount(s.grants[id].occupiedAmount(), 1)
}

// Waiting reports whether a machine waits for the room of others.
func (s *Seller) Waiting(id string) bool {
	g := s.grants[id]
	return g != nil && g.claim != nil
}

// Leaving returns the machine that a machine is being evicted for, while that one still wants the room; "" otherwise.
func (s *Seller) Leaving(id string) string { return s.leaving[id] }

// Ready returns the machines whose claims were met since the last call.
func (s *Seller) Ready() []string {
	out := s.ready
	s.ready = nil
	return out
}

// Devices returns the devices that a machine has now.
func (s *Seller) Devices(id string) []Share {
	if g := s.grants[id]; g != nil && g.up {
		return g.gpus
	}
	return nil
}

// checkClaims panics if a claim cannot be met, or an eviction violates ranks.
func (s *Seller) checkClaims() {
	for id, g := range s.grants {
		if g.claim == nil {
			continue
		}
		coming := amount{}
		for _, v := range g.claim.victims {
			o := s.grants[v]
			if o == nil || !o.up || s.leaving[v] != id {
				panic(fmt.Sprintf("market: machine %s waits for the room of %s, which is not on its way to it", id, v))
			}
			coming = coming.add(o.occupiedAmount().sub(o.asleepAmount()))
		}
		if left := g.claim.need.sub(s.kinds.leastOf(g.claim.need, coming)); !left.isZero() {
			panic(fmt.Sprintf("market: machine %s waits for %v, and the machines that leave for it (%s) have only %v",
				id, g.claim.need.res, strings.Join(g.claim.victims, ", "), coming.res))
		}
	}
}
