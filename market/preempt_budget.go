package market

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// NoReturn is how long a machine that was evicted may not evict any machine of its beneficiary's app, whatever ranks are
// changed to meanwhile.
const NoReturn = 10 * time.Minute

// MaxEvictable bounds the ranks that a record lists: it is gossiped, so it stays small. What ranks higher is told together
// under the highest rank of them, which promises less than there is and never more.
const MaxEvictable = 16

// budgetLeft gives how many evictions the budget of a machine still allows its app on this worker.
func (s *Seller) budgetLeft(g *grant, now time.Time) int {
	b := g.tenant.Budget
	return b.Max - s.evictionsSince(g.app, now.Add(-b.Window.Duration))
}

// recent counts an app's evictions here within the hour.
func (s *Seller) recent(app string, now time.Time) int {
	return s.evictionsSince(app, now.Add(-costSpell))
}

// evictionsSince counts an app's evictions after a time. One that seems to be yet to come counts: clocks go back, and a
// budget must not be overdrawn by that.
func (s *Seller) evictionsSince(app string, t time.Time) int {
	n := 0
	for i := len(s.history[app]) - 1; i >= 0; i-- {
		if s.history[app][i].At.After(t) {
			n++
		}
	}
	return n
}

// returns says whether the eviction of a machine of app victim would be an answer to one that it gained by: machine id of
// that app was evicted for it lately.
func (s *Seller) returns(id, app, victim string, now time.Time) bool {
	for _, p := range s.history[app] {
		if p.Machine == id && p.ByApp == victim && p.At.After(now.Add(-NoReturn)) {
			return true
		}
	}
	return false
}

// remember enters evictions in the victims' apps' histories, of which the newest machine.MaxEvictionBudget are kept: no
// budget is larger, so what is dropped can only make budgets seem more used than they are, never less.
func (s *Seller) remember(list []machine.Preemption) {
	for _, p := range list {
		h := append(slices.Clone(s.history[p.App]), p)
		s.history[p.App] = h[max(0, len(h)-machine.MaxEvictionBudget):]
	}
}

// Evictions gives an app's evictions on this worker, oldest first: what is to be kept across a restart.
func (s *Seller) Evictions(app string) []machine.Preemption { return s.history[app] }

// EvictedApps lists the apps of which something was evicted here, in order.
func (s *Seller) EvictedApps() []string { return slices.Sorted(maps.Keys(s.history)) }

// RestoreEvictions takes an app's evictions back at start-up.
func (s *Seller) RestoreEvictions(app string, list []machine.Preemption) {
	s.history[app] = list[max(0, len(list)-machine.MaxEvictionBudget):]
}

// tally keeps the summary of what could be evicted, by rank.
func (s *Seller) tally(id string, g *grant, sign int) {
	if !s.stands(id, g) {
		return
	}
	e := s.ranks[g.tenant.Rank]
	if e == nil {
		e = &cluster.Evictable{Rank: g.tenant.Rank}
		s.ranks[e.Rank] = e
	}
	frees := g.occupies().sub(g.asleep()).res
	if e.Machines += sign; sign > 0 {
		e.Resources = e.Resources.Add(frees)
	} else {
		e.Resources = e.Resources.Sub(frees)
	}
	if e.Machines == 0 {
		delete(s.ranks, e.Rank)
	}
	s.summary = nil
}

// evictable gives the summary, lowest rank first.
func (s *Seller) evictable() []cluster.Evictable {
	if s.summary != nil || len(s.ranks) == 0 {
		return s.summary
	}
	out := make([]cluster.Evictable, 0, len(s.ranks))
	for _, e := range s.ranks {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b cluster.Evictable) int { return cmp.Compare(a.Rank, b.Rank) })
	for len(out) > MaxEvictable {
		a, b := out[len(out)-2], out[len(out)-1]
		out = append(out[:len(out)-2], cluster.Evictable{Rank: b.Rank, Resources: a.Resources.Add(b.Resources), Machines: a.Machines + b.Machines})
	}
	s.summary = out
	return out
}
