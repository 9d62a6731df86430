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
	drf := offers.NewAllocator(usedDimensions(capacity, dims)...)
	at := map[string]int{}
	var next [][]int // by namespace, in the order of their first wish: indices of the wishes
	for i, w := range wishes {
		k, known := at[w.Namespace]
		if !known {
			s := shares[w.Namespace]
			k = drf.Add(s.Weight)
			drf.Use(k, usedDimensions(s.Used, dims)...)
			at[w.Namespace] = k
			next = append(next, nil)
		}
		next[k] = append(next[k], i)
	}
	out := make([]int, 0, len(wishes))
	for len(out) < len(wishes) {
		k := drf.Next(func(k int) bool { return len(next[k]) > 0 })
		i := next[k][0]
		next[k] = next[k][1:]
		drf.Use(k, usedDimensions(wishes[i].Want, dims)...)
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
