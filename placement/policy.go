package placement

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Policy ranks the workers that Judge lets through. A policy never decides feasibility.
type Policy struct {
	Name  string
	Terms []Term
}

// Term is one weighted part of a score. Of gives a value in [0, 1], larger is better, for a worker that fits.
type Term struct {
	Name   string
	Weight float64
	Of     func(r Request, w cluster.Record) float64
}

// Default is the policy used where none is named: the nearest region first, then room left on every dimension, then
// few machines of the same app. It spreads: packing the fullest worker leaves its tenants no headroom.
func Default() Policy {
	return Policy{Name: "spread", Terms: []Term{
		{"region", 50, regionTerm},
		{"headroom", 2, headroomTerm},
		{"spread", 1, spreadTerm},
	}}
}

func regionTerm(r Request, w cluster.Record) float64 {
	return 1 / float64(1+max(0, Nearness(r, w)))
}

// headroomTerm is the share of the scarcest dimension that would be left free after the request.
func headroomTerm(r Request, w cluster.Record) float64 {
	free, least := w.Free(), 1.0
	share := func(c, f, want int64) {
		if c > 0 {
			least = min(least, max(0, float64(f-want)/float64(c)))
		}
	}
	share(w.Capacity.CPU, free.CPU, r.Resources.CPU)
	share(w.Capacity.Memory, free.Memory, r.Resources.Memory)
	share(w.Capacity.Disk, free.Disk, r.Resources.Disk)
	share(w.Capacity.Ports, free.Ports, r.Resources.Ports)
	if r.Resources.GPU > 0 {
		share(w.Capacity.GPU, free.GPU, r.Resources.GPU)
	}
	return least
}

func spreadTerm(r Request, w cluster.Record) float64 {
	return 1 / float64(1+w.Apps[r.App])
}

// Score gives a worker's score and its weighted parts, which add up to it.
func (p Policy) Score(r Request, w cluster.Record) (float64, map[string]float64) {
	total, terms := 0.0, make(map[string]float64, len(p.Terms))
	for _, t := range p.Terms {
		s := t.Weight * t.Of(r, w)
		terms[t.Name] = s
		total += s
	}
	return total, terms
}

// Rank judges and scores every worker of the view: those that fit first, best first, then those that do not, by id.
// Equal scores are put in an order that depends on the request's machine id, so that buyers with the same view do not
// all ask the same worker first; the same request always gives the same order.
func Rank(r Request, view cluster.View, p Policy) []machine.Candidate {
	out := make([]machine.Candidate, 0, len(view.Workers))
	for _, w := range view.Workers {
		v := Judge(r, w)
		c := machine.Candidate{Worker: string(w.Worker), Fits: v.Fits, Failing: v.Failing}
		if v.Fits {
			c.Score, c.Terms = p.Score(r, w)
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
			return cmp.Or(cmp.Compare(lot(r.Machine, a.Worker), lot(r.Machine, b.Worker)), cmp.Compare(a.Worker, b.Worker))
		}
		return cmp.Compare(a.Worker, b.Worker)
	})
	return out
}

func lot(machineID, worker string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(machineID))
	h.Write([]byte{0})
	h.Write([]byte(worker))
	return h.Sum64()
}
