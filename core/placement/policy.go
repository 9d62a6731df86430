package placement

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Policy ranks the workers that Judge lets through, after its own filters have taken some of them out. A policy never
// makes a worker feasible that the judge refuses.
type Policy struct {
	Name     string
	Version  int      // of an operator's file; 0: built in
	Filters  []Filter // all must let a worker through
	Terms    []Term
	Sample   int    // look at no more than so many workers that fit; 0: at all
	Best     int    // chosen at random among so many of the best, so that buyers of one view differ; 0, 1: the best
	Strategy string // how the buyer goes about it where the request does not say; "" is direct
}

// Term is one weighted part of a score. Of gives a value in [0, 1], larger is better, for a worker that fits. It must
// depend on nothing but its arguments, and change neither.
type Term struct {
	Name   string
	Weight float64
	Of     func(r *Request, w *cluster.Record) float64
	// what is to be said of the value: that it is undefined and counts 0; nil: never
	Note func(r *Request, w *cluster.Record) string
	// of the worker's Apps it reads the request's at most; false: it may read any
	OwnApp bool
}

// Filter is a condition of a policy. Of gives what was found instead where it says no.
type Filter struct {
	Name   string
	Wanted string // the condition, as the operator wrote it
	Of     func(r *Request, w *cluster.Record) (ok bool, had string)
}

// ReadsOwnAppOnly reports whether all that the policy reads of a worker's Apps is the request's.
func (p *Policy) ReadsOwnAppOnly() bool {
	return len(p.Filters) == 0 && !slices.ContainsFunc(p.Terms, func(t Term) bool { return !t.OwnApp })
}

// CodePolicy is the code of the clauses of a policy's filters.
const CodePolicy = "policy"

// Judge is the judge's verdict and, where that is yes, the policy's filters'. Sellers do not ask policies: a filter
// says where a buyer looks, not what a worker must take.
func (p *Policy) Judge(r *Request, w *cluster.Record) Verdict {
	v := JudgeAt(r, w)
	for i := range p.Filters {
		f := &p.Filters[i]
		if ok, had := f.Of(r, w); !ok {
			v.Fits = false
			v.Failing = append(v.Failing, machine.Clause{Code: CodePolicy, Wanted: f.Name + ": " + f.Wanted, Had: had})
		}
	}
	return v
}

// Admits is Judge for those who need no reasons: the policy's filters are asked only of a worker that the judge lets
// through.
func (p *Policy) Admits(r *Request, w *cluster.Record) bool {
	if !FitsAt(r, w) {
		return false
	}
	for i := range p.Filters {
		if ok, _ := p.Filters[i].Of(r, w); !ok {
			return false
		}
	}
	return true
}

// Default is the policy used where none is named: the nearest region first, then room left on every dimension, then
// few machines of the same app. It spreads: packing the fullest worker leaves its tenants no headroom. A worker that
// has the image already is worth as much as one that is half as full.
func Default() Policy {
	return Policy{Name: "spread", Terms: []Term{
		{Name: "region", Weight: 50, Of: regionTerm, OwnApp: true},
		{Name: "image", Weight: 1, Of: imageTerm, OwnApp: true},
		{Name: "headroom", Weight: 2, Of: headroomTerm, OwnApp: true},
		{Name: "spread", Weight: 1, Of: spreadTerm, OwnApp: true},
	}}
}

func regionTerm(r *Request, w *cluster.Record) float64 {
	if len(r.Regions) == 0 {
		return 1
	}
	return 1 / float64(1+max(0, regionNearness(r.Regions, w.Region)))
}

// headroomTerm is the share of the scarcest dimension that would be left free after the request.
func headroomTerm(r *Request, w *cluster.Record) float64 {
	c, u, want := &w.Capacity, &w.Used, &r.Resources
	least := min(1, freeShare(c.CPU, u.CPU, want.CPU), freeShare(c.Memory, u.Memory, want.Memory),
		freeShare(c.Disk, u.Disk, want.Disk), freeShare(c.Ports, u.Ports, want.Ports))
	if want.GPU > 0 {
		least = min(least, freeShare(c.GPU, u.GPU, want.GPU))
	}
	return least
}

// freeShare gives the share of a capacity that stays free; 1 where there is none.
func freeShare(capacity, used, want int64) float64 {
	if capacity <= 0 {
		return 1
	}
	return max(0, float64(capacity-used-want)/float64(capacity))
}

func spreadTerm(r *Request, w *cluster.Record) float64 {
	return 1 / float64(1+w.Apps[r.App])
}

// Score gives a worker's score and its weighted parts, which add up to it. What the request itself prefers is a part,
// whatever the policy.
func (p Policy) Score(r Request, w cluster.Record) (float64, machine.Terms) {
	return p.Parts(&r, &w)
}

// Parts is Score without copying its arguments.
func (p *Policy) Parts(r *Request, w *cluster.Record) (float64, machine.Terms) {
	terms := make(machine.Terms, 0, len(p.Terms)+1)
	total := 0.0
	for i := range p.Terms {
		t := &p.Terms[i]
		s := t.Weight * t.Of(r, w)
		terms = terms.Set(t.Name, s)
		total += s
	}
	if wish := Wishes(r, w); wish != 0 {
		terms = terms.Set(TermWishes, wish)
		total += wish
	}
	return total, terms
}

// Notes gives what the terms have to say of their values: which were undefined, and why.
func (p *Policy) Notes(r *Request, w *cluster.Record) []string {
	var out []string
	for i := range p.Terms {
		if t := &p.Terms[i]; t.Note != nil {
			if say := t.Note(r, w); say != "" {
				out = append(out, t.Name+": "+say)
			}
		}
	}
	return out
}

// ScoreAt is Score without the parts, for those who score many.
func (p *Policy) ScoreAt(r *Request, w *cluster.Record) float64 {
	total := 0.0
	for i := range p.Terms {
		total += p.Terms[i].Weight * p.Terms[i].Of(r, w)
	}
	return total + Wishes(r, w)
}

// TermWishes names the part of a score that the request's and the worker's own preferences make.
const TermWishes = "wishes"

// Wishes adds up what the request prefers of the worker, and the worker of the request: preferences that are met,
// affinities that only count, and spreads that only count (as 1 less the value's share of the app's machines).
func Wishes(r *Request, w *cluster.Record) float64 {
	s := &r.Scheduling
	if len(s.Prefer) == 0 && len(w.Prefer) == 0 && len(s.Affinity) == 0 && len(s.Spread) == 0 {
		return 0 // the common case
	}
	total := 0.0
	for i := range s.Prefer {
		if v, there := w.Attribute(s.Prefer[i].Attribute); s.Prefer[i].Of(v, there) == cluster.Met {
			total += s.Prefer[i].Weight
		}
	}
	for i := range w.Prefer {
		if v, there := r.Label(w.Prefer[i].Attribute); w.Prefer[i].Of(v, there) == cluster.Met {
			total += w.Prefer[i].Weight
		}
	}
	for i := range s.Affinity {
		if a := &s.Affinity[i]; a.Weight != 0 && r.isNear(i, w) != a.Anti {
			total += a.Weight
		}
	}
	for i := range s.Spread {
		if sp := &s.Spread[i]; sp.MaxSkew == 0 {
			total += cmp.Or(sp.Weight, 1) * r.spreadEvenness(i, w)
		}
	}
	return total
}

// spreadEvenness is 1 less the share of the app's machines that have the worker's value of spread i; 0 where it has
// none.
func (r *Request) spreadEvenness(i int, w *cluster.Record) float64 {
	v, there := w.Attribute(r.Scheduling.Spread[i].Attribute)
	if !there || i >= len(r.Fleet.Spread) {
		return 0
	}
	all := 0
	for _, n := range r.Fleet.Spread[i] {
		all += n
	}
	return 1 - float64(r.Fleet.Spread[i][v.String()])/float64(max(1, all))
}

// Rank judges and scores every worker of the view: those that fit first, best first, then those that do not, by id.
// Equal scores are put in an order that depends on the request's machine id, so that buyers with the same view do not
// all ask the same worker first; the same request always gives the same order. For the same reason, the best
// Policy.Best are put in such an order whatever they score.
func Rank(r Request, view cluster.View, p Policy) []machine.Candidate {
	out := make([]machine.Candidate, 0, len(view.Workers))
	for i := range view.Workers {
		w := &view.Workers[i] // not a copy: a record is large, and there may be thousands
		v := p.Judge(&r, w)
		c := machine.Candidate{Worker: string(w.Worker), Fits: v.Fits, Failing: v.Failing}
		if v.Fits {
			c.Score, c.Terms = p.Parts(&r, w)
			c.Notes = p.Notes(&r, w)
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b machine.Candidate) int {
		switch {
		case a.Fits != b.Fits:
			if a.Fits {
				return -1
			}
			return 1
		case a.Score != b.Score:
			return cmp.Compare(b.Score, a.Score)
		case a.Fits:
			return cmp.Or(cmp.Compare(TieBreak(r.Machine, a.Worker), TieBreak(r.Machine, b.Worker)),
				cmp.Compare(a.Worker, b.Worker))
		}
		return cmp.Compare(a.Worker, b.Worker)
	})
	fits := 0
	for fits < min(len(out), p.Best) && out[fits].Fits {
		fits++
	}
	SortByTieBreak(out[:fits], r.Machine, func(c *machine.Candidate) string { return c.Worker })
	return out
}
