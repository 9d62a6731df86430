package market

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// NoReturn is how long an evicted machine may not evict machines of its beneficiary's app, even if ranks change.
const NoReturn = 10 * time.Minute

// MaxEvictable bounds the ranks that a record lists: it is gossiped, so it stays small. Higher ranks are summed up
// under the highest of them, so the list may understate what can be evicted, but never overstates it.
const MaxEvictable = 16

// EvictionHistory is the past evictions on a worker, by the victims' apps: eviction budgets are counted from it.
type EvictionHistory struct {
	byApp map[string][]machine.Preemption // oldest first
}

// budgetLeft returns how many more evictions the budget of a machine allows its app on this worker.
func (h *EvictionHistory) budgetLeft(g *grant, now time.Time) int {
	b := g.tenant.Budget
	return b.Max - h.evictionsSince(g.app, now.Add(-b.Window.Duration))
}

// recentEvictions counts an app's evictions here within the hour.
func (h *EvictionHistory) recentEvictions(app string, now time.Time) int {
	return h.evictionsSince(app, now.Add(-costSpell))
}

// evictionsSince counts an app's evictions after a time. An eviction in the future counts, too: a clock that goes back
// must not overdraw a budget.
func (h *EvictionHistory) evictionsSince(app string, t time.Time) int {
	n := 0
	for i := len(h.byApp[app]) - 1; i >= 0; i-- {
		if h.byApp[app][i].At.After(t) {
			n++
		}
	}
	return n
}

// wouldEvictBack reports whether evicting a machine of app victim would reverse an eviction that app gained by:
// machine id of app was evicted for it recently.
func (h *EvictionHistory) wouldEvictBack(id, app, victim string, now time.Time) bool {
	for _, p := range h.byApp[app] {
		if p.Machine == id && p.ByApp == victim && p.At.After(now.Add(-NoReturn)) {
			return true
		}
	}
	return false
}

// rememberEvictions adds evictions to the histories of the victims' apps. Each keeps the newest
// machine.MaxEvictionBudget: no budget is larger, so dropping older ones never makes a budget seem less used than it
// is.
func (h *EvictionHistory) rememberEvictions(list []machine.Preemption) {
	for _, p := range list {
		list := append(slices.Clone(h.byApp[p.App]), p)
		h.byApp[p.App] = list[max(0, len(list)-machine.MaxEvictionBudget):]
	}
}

// Evictions returns an app's evictions on this worker, oldest first, to be kept across a restart.
func (h *EvictionHistory) Evictions(app string) []machine.Preemption { return h.byApp[app] }

// EvictedApps lists the apps with evictions here, in order.
func (h *EvictionHistory) EvictedApps() []string { return slices.Sorted(maps.Keys(h.byApp)) }

// RestoreEvictions restores an app's evictions at start-up.
func (h *EvictionHistory) RestoreEvictions(app string, list []machine.Preemption) {
	h.byApp[app] = list[max(0, len(list)-machine.MaxEvictionBudget):]
}

// evictableRanks sums up what can be evicted, by rank.
type evictableRanks struct {
	byRank map[int]*cluster.Evictable
	sorted []cluster.Evictable // byRank as a list; nil: to be rebuilt
}

// tallyEvictable adds a grant to the summary of what can be evicted (sign 1), or removes it (-1).
func (s *Seller) tallyEvictable(id string, g *grant, sign int) {
	if s.isStaying(id, g) {
		s.evictable.addMachine(g.tenant.Rank, g.occupiedAmount().sub(g.asleepAmount()).res, sign)
	}
}

// addMachine adds a machine that frees this much (sign 1), or removes it (-1).
func (r *evictableRanks) addMachine(rank int, frees cluster.Resources, sign int) {
	e := r.byRank[rank]
	if e == nil {
		e = &cluster.Evictable{Rank: rank}
		r.byRank[rank] = e
	}
	if e.Machines += sign; sign > 0 {
		e.Resources = e.Resources.Add(frees)
	} else {
		e.Resources = e.Resources.Sub(frees)
	}
	if e.Machines == 0 {
		delete(r.byRank, rank)
	}
	r.sorted = nil
}

// listByRank returns the summary, lowest rank first.
func (r *evictableRanks) listByRank() []cluster.Evictable {
	if r.sorted != nil || len(r.byRank) == 0 {
		return r.sorted
	}
	out := make([]cluster.Evictable, 0, len(r.byRank))
	for _, e := range r.byRank {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b cluster.Evictable) int { return cmp.Compare(a.Rank, b.Rank) })
	for len(out) > MaxEvictable {
		a, b := out[len(out)-2], out[len(out)-1]
		out = append(out[:len(out)-2], cluster.Evictable{Rank: b.Rank, Resources: a.Resources.Add(b.Resources),
			Machines: a.Machines + b.Machines})
	}
	r.sorted = out
	return out
}
