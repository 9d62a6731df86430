package market

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Bounds of the search for machines to evict. A search that ends at a bound refuses; it never evicts wrongly.
const (
	MaxEvictees   = 256 // machines that are considered, cheapest first
	MaxVictims    = 64  // machines of one eviction
	maxThresholds = 8   // ranks at which sets are tried, lowest first
)

// The cost of an eviction, in seconds of work. A machine's own work counts once, and once more for each life it has
// lost before; machines of an app with recent evictions cost a little more, so that evictions spread over apps.
const (
	costBase  = 10.0 // to start it again
	costApp   = 30.0 // for each eviction of its app within the hour, including those of the same set
	costMost  = 30 * 24 * 3600.0
	costSpell = time.Hour
)

// Tenant describes a granted machine to the seller: who may evict it, what that would cost, and which counts it
// belongs to. The owner sets it with Describe; the ledger does not depend on it.
type Tenant struct {
	Namespace string
	Bytes     int64     // of its configs, older versions included
	Rank      int       // machine.Scheduling.Rank
	Since     time.Time // an eviction loses the work since then: its start or newest checkpoint; zero: none
	Lost      int       // how many lives it has lost before
	Gang      string    // machines of an app that are worth nothing without each other; "": none
	Budget    machine.EvictionBudget
	GPUKind   string
	Evicted   bool // it was evicted and has not run since: it evicts nobody (cascades are one deep)
	Wakes     bool // requests may wake it, so its room is promised while it sleeps
}

// Victim is a machine to be evicted.
type Victim struct {
	Machine string  `json:"machine"`
	App     string  `json:"app"`
	Rank    int     `json:"rank"`
	Cost    float64 `json:"cost"` // seconds of work, weighted by its rank
	Why     string  `json:"why"`  // a sentence
}

// Eviction is a set of machines of lower rank whose room lets a request fit; without any one of them it would not.
type Eviction struct {
	Victims []Victim `json:"victims"`
	Rank    int      `json:"rank"` // the highest of the victims
	Cost    float64  `json:"cost"` // of all
}

// Cheaper orders evictions: the one whose highest victim ranks lower, then the one that loses less work.
func (e *Eviction) Cheaper(o *Eviction) bool {
	if o == nil {
		return true
	}
	return cmp.Or(cmp.Compare(e.Rank, o.Rank), cmp.Compare(e.Cost, o.Cost),
		cmp.Compare(len(e.Victims), len(o.Victims))) < 0
}

// Describe sets a granted machine's Tenant. It takes effect at once.
func (s *Seller) Describe(id string, t Tenant) {
	g, ok := s.grants[id]
	if !ok || g.tenant == t {
		return
	}
	s.tallyEvictable(id, g, -1)
	s.kept.countResting(g, -1, &s.rec)
	s.useAmount(g.occupiedAmount(), -1)
	g.tenant = t
	s.useAmount(g.occupiedAmount(), 1)
	s.tallyEvictable(id, g, 1)
	s.kept.countResting(g, 1, &s.rec)
}

// Busy sets the function that reports machines that cannot be evicted now, because an operation is in progress on
// them.
func (s *Seller) Busy(f func(machine string) bool) { s.busy = f }

// evictee is a machine that may be evicted, during a search.
type evictee struct {
	id     string
	g      *grant
	alone  float64 // cost of evicting only this machine
	frees  amount  // what its stop frees
	recent int     // evictions of its app within the hour
	left   int     // evictions left in its budget
}

// victimSearch is one search for a set of victims.
type victimSearch struct {
	now  time.Time
	req  *placement.Request
	rec  cluster.Record // without any eviction
	all  []*evictee     // by rank, then cost alone
	gang map[string]int // number of each gang's machines here
}

// searchVictims returns the cheapest set of machines it finds whose eviction makes the request fit; nil if there is
// none, or the request may not preempt. It is greedy: it chooses once by rank and cost, and once by cost per missing
// room, drops machines that turn out unnecessary, and takes the cheaper set. rec is the ledger's, without what the
// request's own machine occupies.
func (s *Seller) searchVictims(now time.Time, r *placement.Request, rec cluster.Record) *Eviction {
	if !s.mayEvict(r) || r.Resources.IsZero() {
		return nil
	}
	h := &victimSearch{now: now, req: r, rec: rec, gang: map[string]int{}}
	h.all = s.listEvictees(h)
	freed, tried := amount{}, 0
	for i := range h.all {
		freed = freed.add(h.all[i].frees)
		last := i == len(h.all)-1 || h.all[i+1].g.tenant.Rank > h.all[i].g.tenant.Rank
		if !last || !h.requestFits(freed) {
			continue // try only with all machines of this rank and below: more of them only helps
		}
		var best *Eviction
		for _, value := range []func(e *evictee, cost float64, missing []cluster.Dim) float64{byCost, byWorth} {
			if e := h.chooseGreedily(h.all[:i+1], value); e != nil && e.Cheaper(best) {
				best = e
			}
		}
		if tried++; best != nil || tried == maxThresholds {
			return best
		}
	}
	return nil
}

// mayEvict reports whether a request has the right to evict at all.
func (s *Seller) mayEvict(r *placement.Request) bool {
	g := s.grants[r.Machine]
	return r.Scheduling.MayPreempt() && (g == nil || !g.tenant.Evicted)
}

// listEvictees lists the machines and tasks that the request may evict: strictly lower rank, up, no operation in
// progress, eviction budget left, and not of an app that recently evicted the request's own machine.
func (s *Seller) listEvictees(h *victimSearch) []*evictee {
	rank := h.req.Scheduling.Rank()
	var out []*evictee
	for id, g := range s.grants {
		if g.tenant.Gang != "" {
			h.gang[g.app+"/"+g.tenant.Gang]++
		}
		if id == h.req.Machine || g.tenant.Rank >= rank || !s.isStaying(id, g) || (s.busy != nil && s.busy(id)) {
			continue
		}
		left := s.budgetLeft(g, h.now)
		if left <= 0 || s.wouldEvictBack(h.req.Machine, h.req.App, g.app, h.now) {
			continue
		}
		out = append(out, &evictee{id: id, g: g, frees: s.freedByStop(g), left: left,
			recent: s.recentEvictions(g.app, h.now)})
	}
	for _, e := range out {
		e.alone = h.evictionCost(e, nil)
	}
	slices.SortFunc(out, func(a, b *evictee) int {
		return cmp.Or(cmp.Compare(a.g.tenant.Rank, b.g.tenant.Rank), cmp.Compare(a.alone, b.alone),
			strings.Compare(a.id, b.id))
	})
	return out[:min(len(out), MaxEvictees)]
}

// isStaying reports whether a machine or a task is up, and neither being evicted nor waiting for room itself.
func (s *Seller) isStaying(id string, g *grant) bool {
	return g.up && (!g.volume || g.task) && g.claim == nil && s.leaving[id] == ""
}

func (h *victimSearch) requestFits(freed amount) bool {
	rec := recordWithoutGone(h.rec, freed)
	return placement.JudgeAt(h.req, &rec).Fits
}

// evictionCost returns the cost of evicting e in addition to the chosen machines: seconds of work, weighted by rank.
func (h *victimSearch) evictionCost(e *evictee, chosen []*evictee) float64 {
	t := &e.g.tenant
	work := 0.0
	if !t.Since.IsZero() {
		work = min(costMost, max(0, h.now.Sub(t.Since).Seconds())) * float64(1+t.Lost)
	}
	recent := e.recent
	for _, c := range chosen {
		if c.g.app == e.g.app {
			recent++
			if t.Gang != "" && c.g.tenant.Gang == t.Gang {
				work, recent = 0, -len(chosen) // the gang's work is lost already
			}
		}
	}
	if t.Gang != "" {
		work *= float64(h.gang[e.g.app+"/"+t.Gang])
	}
	return (costBase + work + costApp*float64(max(0, recent))) * (1 + float64(t.Rank)/1000)
}

// byCost prefers the lowest rank, then the lowest cost.
func byCost(e *evictee, cost float64, _ []cluster.Dim) float64 {
	return float64(e.g.tenant.Rank)*1e12 + cost
}

// byWorth prefers the lowest cost per freed share of the missing room.
func byWorth(e *evictee, cost float64, missing []cluster.Dim) float64 {
	share := 0.0
	for i := range missing {
		share += float64(min(missing[i].Amount, e.frees.res.Get(missing[i].Name))) / float64(missing[i].Amount)
	}
	if share == 0 {
		share = 1e-9 // it may still free the device that is needed
	}
	return cost / share
}

// chooseGreedily adds the machine of least value until the request fits, and then drops machines that are not needed.
func (h *victimSearch) chooseGreedily(from []*evictee,
	value func(e *evictee, cost float64, missing []cluster.Dim) float64) *Eviction {
	var chosen []*evictee
	taken, freed := make([]bool, len(from)), amount{}
	for !h.requestFits(freed) {
		if len(chosen) == MaxVictims {
			return nil
		}
		missing := slices.DeleteFunc(h.req.Resources.Sub(h.rec.Free()).Sub(freed.res).Dims(),
			func(d cluster.Dim) bool { return d.Amount <= 0 })
		best, least := -1, math.Inf(1)
		for i := range from {
			if !taken[i] && h.isWithinBudgets(from[i], chosen) {
				if v := value(from[i], h.evictionCost(from[i], chosen), missing); v < least {
					best, least = i, v
				}
			}
		}
		if best < 0 {
			return nil
		}
		taken[best] = true
		chosen, freed = append(chosen, from[best]), freed.add(from[best].frees)
	}
	return h.evictionOf(h.neededVictims(chosen, freed))
}

// isWithinBudgets reports whether the eviction budgets of an app allow one more machine in addition to those chosen.
func (h *victimSearch) isWithinBudgets(e *evictee, chosen []*evictee) bool {
	n, left := 1, e.left
	for _, c := range chosen {
		if c.g.app == e.g.app {
			n, left = n+1, min(left, c.left)
		}
	}
	return n <= left
}

// neededVictims drops machines without which the request still fits, the most expensive first.
func (h *victimSearch) neededVictims(chosen []*evictee, freed amount) []*evictee {
	order := slices.Clone(chosen)
	slices.SortStableFunc(order, func(a, b *evictee) int {
		return cmp.Or(cmp.Compare(b.g.tenant.Rank, a.g.tenant.Rank), cmp.Compare(b.alone, a.alone),
			strings.Compare(b.id, a.id))
	})
	for _, e := range order {
		if rest := freed.sub(e.frees); h.requestFits(rest) {
			freed = rest
			chosen = slices.DeleteFunc(slices.Clone(chosen), func(c *evictee) bool { return c == e })
		}
	}
	return chosen
}

func (h *victimSearch) evictionOf(chosen []*evictee) *Eviction {
	out := &Eviction{}
	for i, e := range chosen {
		t := &e.g.tenant
		v := Victim{Machine: e.id, App: e.g.app, Rank: t.Rank, Cost: math.Round(h.evictionCost(e, chosen[:i])*10) / 10}
		v.Why = "the cheapest of lower rank whose room is needed"
		switch {
		case t.Since.IsZero():
			v.Why += "; it has done no work that would be lost"
		default:
			v.Why += fmt.Sprintf("; %v of work since its start or checkpoint",
				max(0, h.now.Sub(t.Since)).Round(time.Second))
		}
		out.Victims = append(out.Victims, v)
		out.Rank, out.Cost = max(out.Rank, t.Rank), out.Cost+v.Cost
	}
	return out
}
