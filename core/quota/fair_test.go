package quota_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
)

// TestOrderMatchesTheDRFPaper: the paper's example (section 4.1): of <9 CPU, 18 GB>, A's <1,4> and B's <3,1> come in such an order
// that the first five that fit are three of A's and two of B's.
func TestOrderMatchesTheDRFPaper(t *testing.T) {
	pool := cluster.Resources{CPU: 9000, Memory: 18 << 10}
	a, b := cluster.Resources{CPU: 1000, Memory: 4 << 10}, cluster.Resources{CPU: 3000, Memory: 1 << 10}
	var wishes []quota.Wish
	for range 5 {
		wishes = append(wishes, quota.Wish{Namespace: "A", Want: a}, quota.Wish{Namespace: "B", Want: b})
	}
	got, free := map[string]int{}, pool
	for _, i := range quota.Order(nil, pool, wishes) {
		if w := wishes[i]; w.Want.Fits(free) {
			free = free.Sub(w.Want)
			got[w.Namespace]++
		} else {
			break
		}
	}
	if fmt.Sprint(got) != "map[A:3 B:2]" {
		t.Fatal(got)
	}
}

// TestOrderServesTheLeastDominantShareFirst: every wish is there once, those of a namespace keep their order, and each that goes first belongs to a
// namespace whose weighted dominant share is least.
func TestOrderServesTheLeastDominantShareFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func(most int, what string) int64 { return int64(rapid.IntRange(0, most).Draw(t, what)) }
		pool := cluster.Resources{CPU: 1 + amount(20, "cpu"), Memory: 1 + amount(20, "memory"), GPU: amount(4, "gpu")}
		names := []string{"a", "b", "c"}
		shares := map[string]quota.Share{}
		for _, n := range names {
			shares[n] = quota.Share{Used: cluster.Resources{CPU: amount(5, "used"), Memory: amount(5, "used")},
				Weight: float64(amount(3, "weight"))}
		}
		wishes := make([]quota.Wish, rapid.IntRange(0, 12).Draw(t, "wishes"))
		for i := range wishes {
			wishes[i] = quota.Wish{Namespace: rapid.SampledFrom(names).Draw(t, "ns"),
				Want: cluster.Resources{CPU: amount(4, "w"), Memory: amount(4, "w"), GPU: amount(1, "w")}}
		}
		order := quota.Order(shares, pool, wishes)
		if seen := slices.Sorted(slices.Values(order)); len(seen) != len(wishes) ||
			len(slices.Compact(seen)) != len(wishes) {
			t.Fatalf("%v of %d", order, len(wishes))
		}
		share := func(n string) float64 {
			s, most := shares[n], 0.0
			for _, d := range pool.Dims() {
				if d.Amount > 0 {
					most = max(most, float64(s.Used.Get(d.Name))/float64(d.Amount))
				}
			}
			if s.Weight == 0 {
				s.Weight = 1
			}
			return most / s.Weight
		}
		last := map[string]int{}
		for at, i := range order {
			n := wishes[i].Namespace
			if before, some := last[n]; some && before > i {
				t.Fatalf("%v turns the wishes of %s round", order, n)
			}
			last[n] = i
			for _, later := range order[at:] {
				if o := wishes[later].Namespace; share(o) < share(n)-1e-9 {
					t.Fatalf("%s (%v) goes before %s (%v)", n, share(n), o, share(o))
				}
			}
			s := shares[n]
			s.Used = s.Used.Add(wishes[i].Want)
			shares[n] = s
		}
	})
}
