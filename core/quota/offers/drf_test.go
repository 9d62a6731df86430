package offers_test

import (
	"math"
	"testing"

	"github.com/soukhq/souk/core/quota/offers"
)

// TestDominantShareMatchesTheDRFPaper: the first rows are the paper's example (section 4.1): of 9 CPU and 18 GB, A has 3 tasks of (1, 4) and B
// 2 of (3, 1).
func TestDominantShareMatchesTheDRFPaper(t *testing.T) {
	for _, c := range []struct {
		name           string
		used, capacity []float64
		want           float64
	}{
		{"A, by memory", []float64{3, 12}, []float64{9, 18}, 2.0 / 3},
		{"B, by CPU", []float64{6, 2}, []float64{9, 18}, 2.0 / 3},
		{"nothing used", []float64{0, 0}, []float64{9, 18}, 0},
		{"no dimensions", nil, nil, 0},
		{"nothing there, nothing used of it", []float64{1, 0}, []float64{4, 0}, 0.25},
		{"something used of nothing", []float64{1, 1}, []float64{4, 0}, math.Inf(1)},
		{"more than there is", []float64{8}, []float64{4}, 2},
	} {
		if got := offers.Dominant(c.used, c.capacity); math.Abs(got-c.want) > 1e-12 && got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
