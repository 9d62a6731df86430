package slotset_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/scheduler/slotset"
)

// TestSetCountsAsAListDoes: after any changes the set says what a plain list of numbers says, and finds exactly the workers
// with free slots.
func TestSetCountsAsAListDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 12).Draw(t, "workers")
		each := rapid.Int32Range(0, 3).Draw(t, "each")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		set, list := slotset.New(workers, each), make([]int32, workers)
		for w := range list {
			list[w] = each
		}
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			w := rapid.Int32Range(0, int32(workers-1)).Draw(t, "worker")
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				set.Add(w)
				list[w]++
			case 1:
				if is := set.Take(w); is != (list[w] > 0) {
					t.Fatalf("worker %d with %d free slots: %v", w, list[w], is)
				} else if is {
					list[w]--
				}
			case 2:
				list[w] = rapid.Int32Range(0, 4).Draw(t, "free")
				set.Put(w, list[w])
			default:
				check(t, set, list, rng)
			}
		}
		check(t, set, list, rng)
	})
}

func check(t *rapid.T, set *slotset.Set, list []int32, rng *rand.Rand) {
	total, some := 0, []int32(nil)
	for w, n := range list {
		total += int(n)
		if n > 0 {
			some = append(some, int32(w))
		}
		if set.Free(int32(w)) != n {
			t.Fatalf("worker %d has %d free slots, not %d", w, set.Free(int32(w)), n)
		}
	}
	if set.Total() != total {
		t.Fatalf("%d slots are free, not %d", set.Total(), total)
	}
	if total > 0 && !slices.Contains(some, set.Draw(rng)) {
		t.Fatalf("a worker without free slots was drawn of %v", list)
	}
	all := set.Sample(rng, len(list), nil)
	slices.Sort(all)
	if !slices.Equal(all, some) {
		t.Fatalf("a sample of all has %v, not %v", all, some)
	}
	even := set.Sample(rng, 2, func(w int32) bool { return w%2 == 0 })
	if want := min(2, len(slices.DeleteFunc(some, func(w int32) bool { return w%2 == 1 }))); len(even) != want {
		t.Fatalf("two even workers with free slots of %v: %v", list, even)
	}
}

// TestSampleDrawsEachWorkerAsOften: of 10 workers, each is in 3 of 10 samples of 3.
func TestSampleDrawsEachWorkerAsOften(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	set, seen := slotset.New(10, 1), [10]int{}
	for range 10_000 {
		for _, w := range set.Sample(rng, 3, nil) {
			seen[w]++
		}
	}
	for w, n := range seen {
		if n < 2800 || n > 3200 {
			t.Errorf("worker %d was drawn %d times of 10,000, not 3,000", w, n)
		}
	}
}
