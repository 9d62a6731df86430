package quota

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota/offers"
)

// Share is what a namespace has of a pool, and its weight among the others.
type Share struct {
	Used   cluster.Resources
	Weight float64 // 0 is 1
}

// Wish is one waiting request of a namespace.
type Wish struct {
	Namespace string
	Want      cluster.Resources
}

// Order puts wishes in the order of weighted dominant resource fairness (Ghodsi et al., NSDI 2011, section 4.1 and
// 4.3): always one of the namespace whose dominant share, by its weight, is least, counting the wishes already
// ordered. The wishes of one namespace keep their order; among equal namespaces the earlier wish goes first. It
// returns indices into wishes.
func Order(shares map[string]Share, capacity cluster.Resources, wishes []Wish) []int {
	dims := capacity.Dims()
	total := usedDimensions(capacity, dims)
	type tenant struct {
		used   []float64
		weight float64
		next   []int // indices of its wishes
	}
	at := map[string]int{}
	var all []*tenant // in the order of their first wish
	for i, w := range wishes {
		k, known := at[w.Namespace]
		if !known {
			s := shares[w.Namespace]
			if s.Weight <= 0 {
				s.Weight = 1
			}
			k = len(all)
			at[w.Namespace] = k
			all = append(all, &tenant{used: usedDimensions(s.Used, dims), weight: s.Weight})
		}
		all[k].next = append(all[k].next, i)
	}
	out := make([]int, 0, len(wishes))
	for len(out) < len(wishes) {
		var best *tenant
		least := 0.0
		for _, t := range all {
			if len(t.next) == 0 {
				continue
			}
			if s := offers.Dominant(t.used, total) / t.weight; best == nil || s < least {
				best, least = t, s
			}
		}
		i := best.next[0]
		best.next = best.next[1:]
		for k, v := range usedDimensions(wishes[i].Want, dims) {
			best.used[k] += v
		}
		out = append(out, i)
	}
	return out
}

// usedDimensions returns the amounts in the dimensions that exist at all; other dimensions do not count.
func usedDimensions(r cluster.Resources, dims []cluster.Dim) []float64 {
	out := make([]float64, 0, len(dims))
	for _, d := range dims {
		if d.Amount > 0 {
			out = append(out, float64(max(0, r.Get(d.Name))))
		}
	}
	return out
}
