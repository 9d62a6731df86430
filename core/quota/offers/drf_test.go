package offers_test

import (
	"math"
	"math/rand/v2"
	"slices"
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

// fill gives clients tasks by progressive filling until nobody's next task fits, and returns how many each has. demands
// is what one task of each takes.
func fill(capacity []float64, demands [][]float64, weights []float64) (tasks []int) {
	a, free := offers.NewAllocator(capacity...), slices.Clone(capacity)
	for _, w := range weights {
		a.Add(w)
	}
	tasks = make([]int, len(demands))
	fits := func(i int) bool {
		for r, x := range demands[i] {
			if x > free[r] {
				return false
			}
		}
		return true
	}
	for {
		i := a.Next(fits)
		if i < 0 {
			return tasks
		}
		tasks[i]++
		a.Use(i, demands[i]...)
		for r, x := range demands[i] {
			free[r] -= x
		}
	}
}

// TestProgressiveFillingMatchesTheDRFPaper: the paper's examples (section 4.1, figure 3, and 4.3), by hand.
func TestProgressiveFillingMatchesTheDRFPaper(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity []float64
		demands  [][]float64
		weights  []float64
		want     []int
	}{
		{"A (1, 4), B (3, 1)", []float64{9, 18}, [][]float64{{1, 4}, {3, 1}}, []float64{1, 1}, []int{3, 2}},
		{"weight 0 is 1", []float64{9, 18}, [][]float64{{1, 4}, {3, 1}}, []float64{0, 0}, []int{3, 2}},
		{"one resource is max-min fair", []float64{12}, [][]float64{{1}, {2}, {1}}, []float64{1, 1, 1}, []int{4, 2, 4}},
		{"one resource, by weight", []float64{12}, [][]float64{{1}, {1}}, []float64{1, 2}, []int{4, 8}},
		{"they need different ones", []float64{4, 6}, [][]float64{{1, 0}, {0, 1}}, []float64{1, 1}, []int{4, 6}},
		{"nobody fits", []float64{1}, [][]float64{{2}}, []float64{1}, []int{0}},
	} {
		if got := fill(c.capacity, c.demands, c.weights); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestReleaseGivesBackWhatUseTook: shares follow use, release and capacity.
func TestReleaseGivesBackWhatUseTook(t *testing.T) {
	a := offers.NewAllocator(10, 100)
	one, two := a.Add(1), a.Add(2)
	a.Use(one, 5, 10)
	a.Use(two, 2, 60)
	if a.Share(one) != 0.5 || a.Share(two) != 0.3 {
		t.Errorf("shares %v and %v", a.Share(one), a.Share(two))
	}
	if got := a.Next(func(int) bool { return true }); got != two {
		t.Errorf("client %d goes next", got)
	}
	a.Grow(0, 100)
	a.Release(one, 4, 20)
	if a.Share(one) != 0.1 || a.Share(two) != 0.15 || !slices.Equal(a.Used(one), []float64{1, 0}) {
		t.Errorf("shares %v and %v, used %v", a.Share(one), a.Share(two), a.Used(one))
	}
	if got := a.Next(func(int) bool { return false }); got != -1 {
		t.Errorf("client %d goes next, and none may", got)
	}
}

// instance is clients with demands, drawn so that a task is a small part of any resource.
type instance struct {
	capacity []float64
	demands  [][]float64
	weights  []float64
	total    float64 // of the weights
	grain    float64 // the sum of the dominant shares of one task of each client
}

func drawInstance(rng *rand.Rand) (x instance) {
	for range 1 + rng.IntN(4) {
		x.capacity = append(x.capacity, float64(1000+rng.IntN(3000)))
	}
	for range 2 + rng.IntN(4) {
		d := make([]float64, len(x.capacity))
		for r := range d {
			d[r] = float64(rng.IntN(20))
		}
		d[rng.IntN(len(d))] += float64(5 + rng.IntN(20))
		x.demands = append(x.demands, d)
		w := float64(1 + rng.IntN(3))
		x.weights = append(x.weights, w)
		x.total += w
		x.grain += dominant(d, x.capacity)
	}
	return x
}

// dominant is what offers.Dominant must be, of demands in resources that all have capacity.
func dominant(demand, capacity []float64) (share float64) {
	return 1 / runnable(func(r int) float64 { return capacity[r] }, demand)
}

// runnable returns how many tasks of a client amounts are enough for.
func runnable(amount func(r int) float64, demand []float64) float64 {
	n := math.Inf(1)
	for r, x := range demand {
		if x > 0 {
			n = min(n, amount(r)/x)
		}
	}
	return n
}

// TestDRFPropertiesHold: on 10,000 random instances, what the paper proves of resources that divide at will (section 5) holds
// here up to whole tasks: nobody has less than with a part of the resources by weight (sharing incentive), would rather have
// another's by weight (no envy), or gains by naming other demands (strategy-proofness).
func TestDRFPropertiesHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for n := range 10_000 {
		x := drawInstance(rng)
		tasks := fill(x.capacity, x.demands, x.weights)
		liar := rng.IntN(len(tasks))
		for i, d := range x.demands {
			one := dominant(d, x.capacity)
			if has, due := float64(tasks[i])*one, x.weights[i]/x.total; has < due-x.grain {
				t.Fatalf("%d: client %d of %+v has a share of %v, and %v by weight", n, i, x, has, due)
			}
			for k, e := range x.demands {
				theirs := runnable(func(r int) float64 {
					return float64(tasks[k]) * e[r] * x.weights[i] / x.weights[k]
				}, d)
				if theirs*one > float64(tasks[i])*one+x.grain*max(1, x.weights[i]/x.weights[k]) {
					t.Fatalf("%d: client %d of %+v has %d tasks, and %v with what %d has", n, i, x, tasks[i], theirs, k)
				}
			}
		}
		truth := x.demands[liar]
		lie := make([]float64, len(truth))
		for r := range lie {
			lie[r] = float64(rng.IntN(25))
		}
		if dominant(lie, x.capacity) == 0 {
			continue
		}
		one := dominant(truth, x.capacity)
		grain := x.grain + dominant(lie, x.capacity)
		x.demands[liar] = lie
		got := fill(x.capacity, x.demands, x.weights)[liar]
		useful := runnable(func(r int) float64 { return float64(got) * lie[r] }, truth)
		if useful*one > float64(tasks[liar])*one+grain*max(1, x.weights[liar]) {
			t.Fatalf("%d: client %d of %+v runs %d tasks, and %v by naming %v in place of %v", n, liar, x, tasks[liar],
				useful, lie, truth)
		}
	}
}
