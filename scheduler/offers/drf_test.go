package offers_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/soukhq/souk/scheduler/offers"
)

// TestWorkedExample is the paper's: 9 CPU and 18 GB, A wants (1, 4) and B (3, 1) for each task.
func TestWorkedExample(t *testing.T) {
	capacity, demand := []float64{9, 18}, [][]float64{{1, 4}, {3, 1}}
	if got := offers.Tasks(capacity, demand); !slices.Equal(got, []int{3, 2}) {
		t.Errorf("%v tasks, want 3 and 2", got)
	}
	got := offers.Divisible(capacity, demand)
	for i, want := range []float64{3, 2} {
		used := []float64{demand[i][0] * got[i], demand[i][1] * got[i]}
		if math.Abs(got[i]-want) > 1e-9 || math.Abs(offers.Dominant(used, capacity)-2.0/3) > 1e-9 {
			t.Errorf("user %d: %v tasks, dominant share %v", i, got[i], offers.Dominant(used, capacity))
		}
	}
}

func TestNobodyAndNothing(t *testing.T) {
	if got := offers.Tasks([]float64{4}, [][]float64{{0}, {5}, {2}}); !slices.Equal(got, []int{0, 0, 2}) {
		t.Errorf("%v", got)
	}
	if got := offers.Divisible([]float64{4, 0}, [][]float64{{0, 0}, {1, 1}, {1, 0}}); !slices.Equal(got, []float64{0, 0, 4}) {
		t.Errorf("%v", got)
	}
	if got := offers.Next(nil, nil, nil); got != -1 {
		t.Errorf("%d is next of nobody", got)
	}
}

// worth is how many tasks of a demand an allocation of resources can run.
func worth(has, demand []float64) float64 {
	n := math.Inf(1)
	for k, d := range demand {
		if d > 0 {
			n = min(n, has[k]/d)
		}
	}
	return n
}

func times(d []float64, x float64) []float64 {
	out := make([]float64, len(d))
	for i := range d {
		out[i] = d[i] * x
	}
	return out
}

// TestProperties checks the four properties of the paper on 10,000 random instances.
func TestProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	for range 10_000 {
		users, dims := 2+rng.IntN(4), 1+rng.IntN(4)
		draw := func(zeros bool) []float64 {
			d := make([]float64, dims)
			for k := range d {
				if d[k] = float64(1 + rng.IntN(20)); zeros && rng.IntN(4) == 0 && k != 0 {
					d[k] = 0
				}
			}
			rng.Shuffle(dims, func(i, j int) { d[i], d[j] = d[j], d[i] })
			return d
		}
		capacity := times(draw(false), 10)
		var demand [][]float64
		for range users {
			demand = append(demand, draw(true))
		}
		got := offers.Divisible(capacity, demand)
		check(t, capacity, demand, got)
		liar, lie := rng.IntN(users), draw(true)
		claimed := slices.Clone(demand)
		claimed[liar] = lie
		with := offers.Divisible(capacity, claimed)
		if gain := worth(times(lie, with[liar]), demand[liar]); gain > got[liar]*(1+1e-9) {
			t.Fatalf("strategy: of %v, %v claiming %v has %v instead of %v", capacity, demand, lie, gain, got[liar])
		}
	}
}

func check(t *testing.T, capacity []float64, demand [][]float64, got []float64) {
	t.Helper()
	free := slices.Clone(capacity)
	for i, d := range demand {
		if alone := worth(times(capacity, 1/float64(len(demand))), d); got[i] < alone*(1-1e-9) {
			t.Fatalf("sharing: of %v, %v user %d has %v and alone %v", capacity, demand, i, got[i], alone)
		}
		for j, other := range demand {
			if n := worth(times(other, got[j]), d); n > got[i]*(1+1e-9) {
				t.Fatalf("envy: of %v, %v user %d has %v and could have %v with %d's", capacity, demand, i, got[i], n, j)
			}
		}
		for k := range d {
			free[k] -= d[k] * got[i]
		}
	}
	for i, d := range demand {
		room := math.Inf(1)
		for k := range d {
			if d[k] > 0 {
				room = min(room, free[k]/capacity[k])
			}
			if free[k] < -1e-6 {
				t.Fatalf("of %v, %v is handed out too much: %v", capacity, demand, got)
			}
		}
		if room > 1e-9 {
			t.Fatalf("Pareto: of %v, user %d of %v could have more than %v", capacity, i, demand, got)
		}
	}
}
