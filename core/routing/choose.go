package routing

import (
	"math/rand/v2"
	"slices"
	"time"
)

// isUp reports whether a machine is taken to run.
func (b *backend) isUp(now time.Time) bool {
	return !now.Before(b.asleepTill) && !b.waking && (b.Power == Up || b.Power != Gone && now.Before(b.awakeUntil))
}

// isUsable reports whether a request may be sent to a machine now, leaving its load aside.
func (b *backend) isUsable(now time.Time) bool {
	fit := !b.Failing && !b.Unproven || now.Before(b.provenTill)
	return b.isUp(now) && fit && !b.Cordoned && !b.Unheard && !now.Before(b.avoidUntil)
}

// prospect is whether a machine can serve requests, now or later, as far as known here. grow wakes machines by it, and
// hopeless refuses requests by it: a request waits only for what can be woken.
type prospect struct {
	serves bool // it can get a request now, leaving its load aside
	comes  bool // it is starting up
	// wakes: it can be woken, now or at the next try. A machine that is up by the fleet's view is only waited for, so
	// it need not be startable.
	wakes bool
	// doubts: it is up or starting, and it is unknown here if it will ever be fit: its owner knows.
	doubts bool
}

// prospectOf returns a machine's prospect. A machine whose worker cannot be reached has none, since requests cannot
// wait for it.
func (b *backend) prospectOf(now time.Time) (x prospect) {
	if b.Unheard {
		return x
	}
	up, open := b.isUp(now), !b.Cordoned && !now.Before(b.avoidUntil)
	sleeps := b.Power == Asleep && b.Autostart || b.Power == Up && now.Before(b.asleepTill)
	x.serves = b.isUsable(now)
	x.wakes = sleeps && !up && !b.Cordoned
	x.doubts = b.Unproven && (b.Power == Up || b.Power == Coming) && !b.waking && open && !now.Before(b.provenTill)
	x.comes = b.waking || x.doubts && b.looks == 0 || !x.doubts && b.Power == Coming && !b.Unproven && !up
	return x
}

// Able reports whether a machine can serve a request by the fleet's view: now, or after it is woken.
func (b *Backend) Able() bool {
	if b.Unheard || b.Cordoned {
		return false
	}
	switch b.Power {
	case Up:
		return !b.Failing
	case Asleep:
		return b.Autostart
	}
	return b.Power == Coming
}

// knownLoad returns a machine's load as far as known here: the larger of what this entry has sent, and what its owner
// last reported of all entries.
func (b *backend) knownLoad() int { return max(b.sent, b.Load) }

// regionRank ranks a region for a request: smaller is better.
func (h *held) regionRank(b *backend) int {
	switch {
	case h.Region != "" && b.Region == h.Region:
		return 0
	case b.Where != Elsewhere:
		return 1
	}
	return 2
}

// allowsBackend reports whether a machine may serve a request at all.
func (h *held) allowsBackend(b *backend) bool {
	if h.Only != "" {
		return b.Machine == h.Only
	}
	return b.Machine != h.Not && !slices.Contains(h.tries, b.Machine)
}

// chooseBackend returns the machine that a request is sent to; nil: there is none now. In the nearest region with a
// machine below its hard limit, it draws two of the machines that the region's load needs (Needed), and takes the less
// loaded one; if both are at their soft limit, it takes the least loaded of all.
func (p *Pool) chooseBackend(now time.Time, rng *rand.Rand, h *held) *backend {
	if h.Only != "" {
		if b := p.byID[h.Only]; b != nil && b.isUsable(now) && p.isBelowHardLimit(now, b) {
			return b
		}
		return nil
	}
	for rank := range 3 {
		if b := p.chooseAt(now, rng, h, rank); b != nil {
			return b
		}
	}
	return nil
}

// isBelowHardLimit reports whether a machine is assumed to be below its hard limit. The owner's report of its load is
// too old for that, so only requests sent from here count, and recent refusals by the owner.
func (p *Pool) isBelowHardLimit(now time.Time, b *backend) bool {
	return p.policy.Hard == 0 || b.sent < p.policy.Hard && !now.Before(b.fullUntil)
}

// chooseAt is chooseBackend among the machines of one rank. It goes over them twice and keeps no list.
func (p *Pool) chooseAt(now time.Time, rng *rand.Rand, h *held, rank int) *backend {
	n, load := 0, 0
	for _, b := range p.list {
		if h.regionRank(b) == rank && b.isUsable(now) && h.allowsBackend(b) && p.isBelowHardLimit(now, b) {
			n++
			load += b.knownLoad()
		}
	}
	if n == 0 {
		return nil
	}
	first := n // so many of them are used
	if p.policy.Autostop != StaysUp && p.policy.Soft > 0 {
		first = min(n, p.policy.Needed(load+1))
	}
	i, j := rng.IntN(first), 0
	if first > 1 {
		if j = rng.IntN(first - 1); j >= i {
			j++
		}
	}
	var one, other, least, last *backend
	at := 0
	for _, b := range p.list {
		if h.regionRank(b) != rank || !b.isUsable(now) || !h.allowsBackend(b) || !p.isBelowHardLimit(now, b) {
			continue
		}
		if at == i {
			one = b
		} else if at == j {
			other = b
		}
		if least == nil || b.knownLoad() < least.knownLoad() {
			least = b
		}
		if at < first && (last == nil || b.last < last.last) {
			last = b
		}
		at++
	}
	if p.isOverdue(last, least, first) {
		return last
	}
	if best := lessLoaded(one, other); p.policy.Soft == 0 || best.knownLoad() < p.policy.Soft {
		return best
	}
	return least
}

// mostAhead is how many more of this entry's requests than another a machine may have and still get its turn.
const mostAhead = 2

// isOverdue reports whether one of n machines must get a request now, whatever its load: all others got requests since
// its last, and it has hardly more than the least loaded one. Otherwise a machine that is slow for a moment would get
// nothing for as long.
func (p *Pool) isOverdue(b, least *backend, n int) bool {
	return p.sends-b.last >= uint64(n) && b.sent <= least.sent+mostAhead && !muchLess(least.knownLoad(),
		b.knownLoad()) &&
		(p.policy.Soft == 0 || b.knownLoad() < p.policy.Soft)
}

// lessLoaded returns the less loaded of two, and among equals the one whose last request is older. A local machine is
// not preferred: it would get two thirds of this entry's requests, and all of them at low load.
func lessLoaded(a, b *backend) *backend {
	switch {
	case b == nil || muchLess(a.knownLoad(), b.knownLoad()):
		return a
	case muchLess(b.knownLoad(), a.knownLoad()):
		return b
	case a.sent != b.sent:
		if a.sent < b.sent {
			return a
		}
		return b
	case a.last <= b.last:
		return a
	}
	return b
}

// muchLess reports whether a load is less than another by more than chance. An owner's report is up to a second old: a
// machine reported as 1 because a request was just there would otherwise get nothing for that second.
func muchLess(a, b int) bool { return 2*a+4 < b }

// wakeForLoad wakes as many machines as the load needs beyond those that are up, for a request that was sent or is
// held.
func (p *Pool) wakeForLoad(now time.Time, h *held) {
	if h.Only != "" {
		p.growOnly(now, h)
		return
	}
	if p.policy.Soft == 0 && len(p.waits) == 0 {
		return
	}
	up, coming, load, some := 0, 0, len(p.waits), false
	for _, b := range p.list {
		switch x := b.prospectOf(now); {
		case x.comes:
			coming++
		case x.serves:
			up++
			load += b.knownLoad()
			some = some || h.allowsBackend(b)
		}
	}
	need := p.machinesNeeded(load, up)
	if len(p.waits) > 0 && !some {
		coming += p.lookAround(now, h)
	}
	for rank := 0; rank < 3 && up+coming < need; rank++ {
		for _, b := range p.list {
			if up+coming < need && !b.waking && h.regionRank(b) == rank && h.allowsBackend(b) &&
				b.prospectOf(now).wakes &&
				p.wakeBackend(now, b) {
				coming++
			}
		}
	}
	if up+coming < need {
		p.makeAnother(now, up+coming)
	}
}

// growOnly wakes the one machine that a request asks for.
func (p *Pool) growOnly(now time.Time, h *held) {
	b := p.byID[h.Only]
	if b == nil || p.waits[h.Ticket] == nil {
		return
	}
	if x := b.prospectOf(now); x.doubts {
		p.askOwner(now, b)
	} else if x.wakes {
		p.wakeBackend(now, b)
	}
}

// machinesNeeded returns how many machines a load needs; up are up already.
func (p *Pool) machinesNeeded(load, up int) int {
	need := 1 // no request waits for more than one
	if p.policy.Soft > 0 {
		need = (load + p.policy.Soft - 1) / p.policy.Soft
	}
	if p.policy.Max > 0 {
		need = min(need, p.policy.Max)
	}
	if len(p.waits) > 0 && up > 0 && p.policy.Soft == 0 {
		need = up // the requests wait for what is up already
	}
	return need
}

// makeAnother has another machine made, if the policy allows it besides coming machines that are up or starting.
func (p *Pool) makeAnother(now time.Time, coming int) {
	c := &p.create
	if c.isUnderWay(now) || now.Before(c.at) || len(p.list) >= p.policy.CreateUpTo ||
		p.policy.Max > 0 && coming >= p.policy.Max {
		return
	}
	for _, b := range p.list { // its worker tells what another one is to be
		if !b.Unheard && b.Power != Gone {
			c.under = true
			p.out = append(p.out, Out{Do: Create, Machine: b.Machine})
			return
		}
	}
}

// wakeBackend wakes a machine, unless a wake has just failed. It reports whether a wake is in progress.
func (p *Pool) wakeBackend(now time.Time, b *backend) bool {
	if !b.waking && !now.Before(b.wakeAt) {
		b.waking, b.looked = true, false
		p.out = append(p.out, Out{Do: Wake, Machine: b.Machine})
	}
	return b.waking
}

// lookAround asks the owners of all machines that may become fit for a waiting request. It returns how many of those
// are coming up that were not expected to.
func (p *Pool) lookAround(now time.Time, h *held) (more int) {
	for _, b := range p.list {
		if x := b.prospectOf(now); x.doubts && h.allowsBackend(b) && p.askOwner(now, b) && !x.comes {
			more++
		}
	}
	return more
}

// askOwner asks the owner of a machine whether it is coming up, unless the owner has just said no.
func (p *Pool) askOwner(now time.Time, b *backend) bool {
	if now.Before(b.lookAt) {
		return false
	}
	b.waking, b.looked = true, true
	p.out = append(p.out, Out{Do: Wake, Machine: b.Machine})
	return true
}

// whyHopeless returns why a held request waits in vain; 0: there is something to wait for.
func (p *Pool) whyHopeless(now time.Time, h *held) (why Reason, after time.Duration, cause error) {
	if h.Only == "" && p.create.isUnderWay(now) {
		return 0, 0, nil
	}
	why = NoMachine
	if h.Only != "" {
		why = NotThere
	}
	worst := func(r Reason, again time.Time, err error) {
		if r != 0 && (r < why || why <= NotThere) {
			why, cause, after = r, err, max(0, again.Sub(now))
		}
	}
	for _, b := range p.list {
		if h.Only != "" && b.Machine != h.Only {
			continue
		}
		x, allowed := b.prospectOf(now), h.allowsBackend(b)
		if x.comes || x.serves && allowed { // a machine that serves is at its limit, and a request will end
			return 0, 0, nil
		}
		worst(b.refusalOf(now, x, allowed))
	}
	if (why == NoMachine || why == Sleeping) && p.expectsMachine(now) {
		return 0, 0, nil
	}
	if h.Only == "" && p.create.cause != nil && len(p.list) < p.policy.CreateUpTo {
		worst(WakeFailed, p.create.at, p.create.cause)
	}
	return why, after, cause
}

// refusalOf returns why waiting for a machine is useless, and when to retry; 0: the machine itself is no reason.
func (b *backend) refusalOf(now time.Time, x prospect, allowed bool) (why Reason, again time.Time, cause error) {
	switch {
	case b.Unheard, now.Before(b.avoidUntil), !allowed:
		return Unreachable, now.Add(avoidFor.Base), b.cause
	case x.wakes: // a wake has failed, or the machine would be coming
		return WakeFailed, b.wakeAt, b.cause
	case x.doubts && b.Power == Coming:
		return WakeFailed, b.lookAt, b.cause
	case x.doubts:
		return Unhealthy, b.lookAt, b.cause
	case b.isUp(now) && b.Failing:
		return Unhealthy, now.Add(time.Second), nil
	case b.Held != nil:
		return HeldDown, b.HeldTill, b.Held
	case b.Power == Asleep:
		return Sleeping, now, nil
	}
	return 0, now, nil
}

// expectsMachine reports whether a new machine of the service is expected, though there is none to wait for.
func (p *Pool) expectsMachine(now time.Time) bool {
	if !p.wanted {
		return false
	}
	if p.lacks.IsZero() {
		p.lacks = now
	}
	return now.Before(p.lacks.Add(expectFor))
}
