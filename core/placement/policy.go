package placement

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Policy ranks the workers that Judge accepts, after its own filters have removed some. A policy never makes a worker
// feasible that the judge refuses.
type Policy struct {
	Name     string
	Version  int      // of the operator's file; 0: built in
	Filters  []Filter // a worker must pass all of them
	Terms    []Term
	Sample   int    // examine at most this many fitting workers; 0: all
	Best     int    // choose at random among so many of the best, so that buyers differ; 0, 1: take the best
	Strategy string // how the buyer proceeds unless the request says otherwise; "" is direct
}

// Term is one weighted part of a score. Of returns a value in [0, 1], larger is better, for a worker that fits. It
// depends on nothing but its arguments, and changes neither.
type Term struct {
	Name   string
	Weight float64
	Of     func(r *Request, w *cluster.Record) float64
	// returns a remark about the value: that it is undefined and counts 0; nil: there is never one
	Note func(r *Request, w *cluster.Record) string
	// the term reads at most the request's app of the worker's Apps; false: it may read any
	OwnApp bool
}

// Filter is a condition of a policy. Of reports whether a worker passes, and otherwise what was found.
type Filter struct {
	Name   string
	Wanted string // the condition, as the operator wrote it
	Of     func(r *Request, w *cluster.Record) (ok bool, had string)
}

// ReadsOwnAppOnly reports whether the policy reads only the request's app of a worker's Apps.
func (p *Policy) ReadsOwnAppOnly() bool {
	return len(p.Filters) == 0 && !slices.ContainsFunc(p.Terms, func(t Term) bool { return !t.OwnApp })
}

// CodePolicy is the code of the clauses of a policy's filters.
const CodePolicy = "policy"

// Judge returns the judge's verdict and, if that accepts, the filters' verdict. Sellers do not apply policies: a
// filter limits where a buyer looks, not what a worker must accept.
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

// Admits is Judge for callers that need no reasons: the filters are asked only if the judge accepts the worker.
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
// few machines of the same app. It spreads, since a packed worker leaves its tenants no headroom. Having the image
// already weighs as much as being half as full.
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

// headroomTerm is the share of the scarcest dimension that stays free after the request.
func headroomTerm(r *Request, w *cluster.Record) float64 {
	c, u, want := &w.Capacity, &w.Used, &r.Resources
	least := min(1, freeShare(c.CPU, u.CPU, want.CPU), freeShare(c.Memory, u.Memory, want.Memory),
		freeShare(c.Disk, u.Disk, want.Disk), freeShare(c.Ports, u.Ports, want.Ports))
	if want.GPU > 0 {
		least = min(least, freeShare(c.GPU, u.GPU, want.GPU))
	}
	return least
}

// freeShare returns the share of a capacity that stays free; 1 if there is no capacity.
func freeShare(capacity, used, want int64) float64 {
	if capacity <= 0 {
		return 1
	}
	return max(0, float64(capacity-used-want)/float64(capacity))
}

func spreadTerm(r *Request, w *cluster.Record) float64 {
	return 1 / float64(1+w.Apps[r.App])
}

// Score returns a worker's score and its weighted parts, which add up to it. The request's own preferences are one
// part under any policy.
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

// Notes returns the terms' remarks about their values: which were undefined, and why.
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

// ScoreAt is Score without the parts, for callers that score many workers.
func (p *Policy) ScoreAt(r *Request, w *cluster.Record) float64 {
	total := 0.0
	for i := range p.Terms {
		total += p.Terms[i].Weight * p.Terms[i].Of(r, w)
	}
	return total + Wishes(r, w)
}

// TermWishes is the name of the score part for the request's and the worker's own preferences.
const TermWishes = "wishes"

// Wishes adds up the preferences of the request for the worker, and of the worker for the request: preferences that
// are met, optional affinities, and optional spreads (as 1 less the value's share of the app's machines).
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

// spreadEvenness is 1 less the share of the app's machines that have the worker's value of spread i; 0 if the worker
// has no value.
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
// Policy.Best are put in such an order whatever their scores.
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
