package rollout

import (
	"maps"
	"math"
	"math/bits"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

const (
	// tolerance is how far the load may exceed the target before a machine is added: otherwise small changes would add
	// and remove machines.
	tolerance = 1.1
	// stepEvery is the time between two steps down, each of which removes a quarter of the machines at most.
	stepEvery = 15 * time.Second
)

// Reported returns the least load that members may see of a machine with n requests in progress: loads are reported in
// steps, two for each doubling (fleet.Loads).
func Reported(n int) int {
	if n < 2 {
		return max(0, n)
	}
	low := bits.Len(uint(n)) - 2
	return n >> low << low
}

// enough returns the load of a machine beyond which another is wanted. Proxies let no more than the hard limit
// through, so the result must be below the load that full machines report.
func enough(g *release.Group) float64 {
	most := float64(g.Target())
	if _, hard := g.Limits(); hard > 0 && g.Autoscale.By() == release.Concurrency {
		most = min(most, 0.999*float64(Reported(hard))/tolerance)
	}
	return most
}

// needs returns how many machines are needed for a load.
func needs(g *release.Group, load float64) int {
	n := math.Ceil(load/enough(g) - 1e-9)
	return int(min(max(n, float64(g.Autoscale.Min)), float64(g.Autoscale.Max)))
}

// scaler is a steward's memory of a group with an autoscale.
type scaler struct {
	count int    // in force at the last look, or chosen then
	needs []need // recent needs, within the time after which machines are removed, in decreasing order; never empty
	down  time.Time
}

// need is a number of machines that was needed until at.
type need struct {
	count int
	at    time.Time
}

// newScaler begins with the present number: earlier needs are unknown, so no machine is removed too early.
func newScaler(now time.Time, count int) *scaler {
	return &scaler{count: count, needs: []need{{count, now}}}
}

// note records how many are needed from now on.
func (s *scaler) note(now time.Time, count int) {
	s.needs[len(s.needs)-1].at = now
	for len(s.needs) > 0 && s.needs[len(s.needs)-1].count <= count {
		s.needs = s.needs[:len(s.needs)-1]
	}
	s.needs = append(s.needs, need{count, now})
}

// choose returns the number of machines for a group that has n, and when to look again if nothing changes; zero: no
// need to. It adds machines at once, and removes some once fewer have sufficed for long.
func (s *scaler) choose(now time.Time, g *release.Group, n int, l release.Loads) (count int, again time.Time) {
	after := g.Autoscale.GoesDownAfter()
	if s.count != n { // a person has set it
		s.note(now, n)
		s.count = n
	}
	up := needs(g, l.Heard)
	if up > n && l.Heard > tolerance*enough(g)*float64(n) {
		s.note(now, up)
		return up, time.Time{}
	}
	least := min(n, needs(g, l.All))
	if l.Blind {
		least = n
	}
	s.note(now, least)
	for len(s.needs) > 1 && !now.Before(s.needs[0].at.Add(after)) {
		s.needs = s.needs[1:]
	}
	next := s.down.Add(min(stepEvery, after))
	switch most := s.needs[0]; {
	case most.count >= n && len(s.needs) == 1:
		return n, time.Time{}
	case most.count >= n:
		return n, most.at.Add(after)
	case now.Before(next):
		return n, next
	default:
		return max(most.count, n-max(1, n/4)), time.Time{}
	}
}

// scaleGroups lets autoscales choose numbers of machines, and returns their choices. They are written before they are
// acted on.
func (l *look) scaleGroups(d *docket) map[string]release.Scaled {
	next := maps.Clone(l.want.Scaled)
	maps.DeleteFunc(next, func(name string, _ release.Scaled) bool { return !l.mayScale(name) })
	maps.DeleteFunc(l.memory.scalers, func(name string, _ *scaler) bool { return l.aim.goal[name] == nil })
	for name, to := range l.aim.goal {
		if x, changed := l.scaleGroup(to, next[name]); changed && d.tell() {
			if x.Count != to.n {
				l.memory.scalers[name].take(l.clock.now, x.Count)
			}
			if next == nil {
				next = map[string]release.Scaled{}
			}
			next[name] = x
			d.give(todo{waits: true})
		}
	}
	if len(next) == 0 {
		return nil
	}
	return next
}

// take records a choice.
func (s *scaler) take(now time.Time, count int) {
	if count < s.count {
		s.down = now
	}
	s.count = count
}

// scaleGroup returns a group's choice, whose previous one is x, and whether it changes.
func (l *look) scaleGroup(to *side, x release.Scaled) (next release.Scaled, changed bool) {
	name, loads := to.group.Name, to.group.LoadsOf(l.seen.kept)
	if !l.want.Head.Scales(to.group) || loads.Up == 0 { // it is off, or all machines rest: earlier needs do not count
		delete(l.memory.scalers, name)
		return x, false
	}
	s := l.memory.scalers[name]
	if s == nil {
		s = newScaler(l.clock.now, to.n)
		l.memory.scalers[name] = s
	}
	n, again := s.choose(l.clock.now, to.group, to.n, loads)
	if !again.IsZero() {
		l.clock.waits(again)
	}
	hand, lacks := l.want.Head.Hand[name], l.lacks(to)
	if x.Hand < hand { // a number that a person set later overrides it
		x = release.Scaled{}
	}
	if n == to.n && (lacks == "") == (x.Lacks == "") {
		return x, false
	}
	if n != to.n {
		x.From, x.Load, x.At = to.n, int(math.Round(loads.Heard)), l.clock.now.UTC()
	}
	x.Count, x.Hand, x.Lacks = n, max(x.Hand, hand), lacks
	return x, true
}

// mayScale reports whether a group has an autoscale in a release that may be in force.
func (l *look) mayScale(name string) bool {
	for _, r := range []*release.Release{l.want.Release, l.want.Before} {
		if r == nil {
			continue
		}
		if g := r.Group(name); g != nil && g.Autoscale != nil {
			return true
		}
	}
	return false
}

// lacks returns why a slot of a group has no machine; "": each has one, or none was refused.
func (l *look) lacks(to *side) string {
	for _, index := range to.slots {
		slot := release.Slot{Group: to.group.Name, Index: index}
		if w := l.memory.slots[slot]; w != nil && w.why != nil && len(l.seen.by[slot]) == 0 {
			return fault.Clip(w.why.Error(), release.MaxLacks)
		}
	}
	return ""
}

// mayLack reports whether a slot without a machine was added by an autoscale: a release need not have room for it.
func (l *look) mayLack(slot release.Slot) bool {
	_, chosen := l.want.Scaled[slot.Group]
	to := l.aim.goal[slot.Group]
	return chosen && to != nil && to.optional[slot.Index]
}

// unfilled reports whether a slot that an autoscale may leave out got no machine: a rollout continues and ends without
// it.
func (l *look) unfilled(v *view, to *side) bool {
	w := l.memory.slots[v.slot]
	return to.optional[v.slot.Index] && len(v.of)+len(v.others) == 0 && w != nil && w.why != nil && !w.gave
}
