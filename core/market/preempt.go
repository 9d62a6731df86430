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

// Bounds of the search for whom to evict. What it cannot find within them is a no, never a wrong yes.
const (
	MaxEvictees   = 256 // machines that are looked at, cheapest first
	MaxVictims    = 64  // machines of one eviction
	maxThresholds = 8   // ranks at which sets are tried, lowest first
)

// What an eviction costs, in seconds of work. Seconds of a machine's own work count once, and once more for each life
// it has lost before; the machines of an app that lost some lately are a little dearer, so that pain spreads.
const (
	costBase  = 10.0 // to be started again
	costApp   = 30.0 // for each eviction of its app within the hour, those of the same set included
	costMost  = 30 * 24 * 3600.0
	costSpell = time.Hour
)

// Tenant is what the seller must know of a granted machine: to judge who may evict it, what that would cost, and of
// whom it keeps too many. Its owner tells it (Describe); nothing of it is a fact of the ledger.
type Tenant struct {
	Namespace string
	Bytes     int64     // of its configs, older versions included
	Rank      int       // machine.Scheduling.Rank
	Since     time.Time // its work would be lost from here on: its start or its newest checkpoint; zero: it has none
	Lost      int       // lives that it has lost already
	Gang      string    // machines of an app that are worth nothing without each other; "" is alone
	Budget    machine.EvictionBudget
	GPUKind   string
	Evicted   bool // it was evicted and has not run since: it evicts nobody (cascades are one deep)
	Wakes     bool // requests may wake it, so what it wants is promised to it while it sleeps
}

// Victim is a machine that is to be evicted.
type Victim struct {
	Machine string  `json:"machine"`
	App     string  `json:"app"`
	Rank    int     `json:"rank"`
	Cost    float64 `json:"cost"` // seconds of work, weighed by its rank
	Why     string  `json:"why"`  // a sentence
}

// Eviction is a set of machines of lower rank whose room, freed, lets a request in; none of them could be left out.
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

// Describe tells what the seller must know of a granted machine beyond its room. It takes effect at once.
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

// Busy gives the seller the predicate of machines that cannot be evicted now, because something is being done to them.
func (s *Seller) Busy(f func(machine string) bool) { s.busy = f }

// evictee is a machine that may be evicted, while a set is looked for.
type evictee struct {
	id     string
	g      *grant
	alone  float64 // what its eviction costs if it is the only one
	frees  amount  // what it gives back when it is stopped
	recent int     // evictions of its app within the hour
	left   int     // of its budget
}

// victimSearch is one search for a set.
type victimSearch struct {
	now  time.Time
	req  *placement.Request
	rec  cluster.Record // as if nobody had been evicted
	all  []*evictee     // by rank, then cost alone
	gang map[string]int // machines of each gang that are here
}

// searchVictims gives the cheapest set of machines that it finds whose room, freed, makes the judge say yes; nil when
// there is none, or the request may not preempt. It is greedy, by rank and cost and then by cost per room that is
// missing, leaves out again what turns out not to be needed, and takes the better of both. rec is the ledger's, without
// what the request's own machine occupies.
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
			continue // with all of this rank and below: more only helps
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

// mayEvict says whether a request has the right to evict at all.
func (s *Seller) mayEvict(r *placement.Request) bool {
	g := s.grants[r.Machine]
	return r.Scheduling.MayPreempt() && (g == nil || !g.tenant.Evicted)
}

// listEvictees lists whom the request may evict: strictly lower rank, up, nothing being done to them, room left in their
// budget, and no machine of an app that evicted the request's own machine lately.
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

// isStaying says whether a machine, or a task, is where it is to stay: up, and neither leaving nor waiting for room
// itself.
func (s *Seller) isStaying(id string, g *grant) bool {
	return g.up && (!g.volume || g.task) && g.claim == nil && s.leaving[id] == ""
}

func (h *victimSearch) requestFits(freed amount) bool {
	rec := recordWithoutGone(h.rec, freed)
	return placement.JudgeAt(h.req, &rec).Fits
}

// evictionCost is what the eviction of e loses beside those of a set that is chosen already: seconds of work, weighed
// by rank so that within a set a free machine costs half of a batch one.
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
				work, recent = 0, -len(chosen) // the gang is lost already
			}
		}
	}
	if t.Gang != "" {
		work *= float64(h.gang[e.g.app+"/"+t.Gang])
	}
	return (costBase + work + costApp*float64(max(0, recent))) * (1 + float64(t.Rank)/1000)
}

// byCost prefers the lowest rank, then what loses least.
func byCost(e *evictee, cost float64, _ []cluster.Dim) float64 {
	return float64(e.g.tenant.Rank)*1e12 + cost
}

// byWorth prefers what loses least for what it frees of the room that is missing.
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

// chooseGreedily adds machines, always the one of least value, until the request fits, and then leaves out what is not
// needed.
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

// isWithinBudgets says whether the budgets of an app's machines let one more of them go beside those chosen.
func (h *victimSearch) isWithinBudgets(e *evictee, chosen []*evictee) bool {
	n, left := 1, e.left
	for _, c := range chosen {
		if c.g.app == e.g.app {
			n, left = n+1, min(left, c.left)
		}
	}
	return n <= left
}

// neededVictims leaves out, dearest first, whoever the request fits without.
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
