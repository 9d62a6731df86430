package quota_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
)

// TestCapsAreComparedWithOccupiedResources: each resource with a cap is held against what is occupied; what has none, or wants none more, is not.
func TestCapsAreComparedWithOccupiedResources(t *testing.T) {
	a := quota.Account{Unlimited: true, Max: quota.Caps{"cpu": 8, "gpu": 1, "memory": 1.5, "licence": 2},
		Used: cluster.Resources{CPU: 6500, Memory: 1024, Named: map[string]int64{"licence": 2}}}
	for _, x := range []struct {
		more        cluster.Resources
		wanted, had string // "": there is enough
	}{
		{cluster.Resources{CPU: 1500, Memory: 512, Disk: 1 << 40, GPU: 1000}, "", ""},
		{cluster.Resources{CPU: -100, Memory: 0}, "", ""},
		{cluster.Resources{CPU: 1501}, "1.501 cores of namespace ml", "1.5 cores left, as at most 8 cores are allowed"},
		{cluster.Resources{Memory: 513}, "0.501 GiB of memory of namespace ml",
			"0.5 GiB of memory left, as at most 1.5 GiB of memory are allowed"},
		{cluster.Resources{GPU: 2000}, "2 GPUs of namespace ml", "1 GPU left, as at most 1 GPU are allowed"},
		{cluster.Resources{Named: map[string]int64{"licence": 1}}, "1 licence of namespace ml",
			"0 licence left, as at most 2 licence are allowed"},
	} {
		f := a.Means("ml", 99, x.more)
		if f.Enough() != (x.wanted == "") {
			t.Errorf("%v: %v", x.more, f.Enough())
		}
		if f.Enough() {
			continue
		}
		if wanted, had := f.Clause(); wanted != x.wanted || had != x.had {
			t.Errorf("%v: wanted %q, had %q", x.more, wanted, had)
		}
	}
	b := quota.Account{Budget: quota.Budget{PerHour: 1, Burst: 1}, Owed: 1, Rate: 1, Max: quota.Caps{"cpu": 8}}
	if f := b.Means("ml", 1, cluster.Resources{CPU: 100}); f.Enough() || f.Beyond() != nil {
		t.Errorf("it has no credits: %+v", f)
	}
	for _, bad := range []quota.Caps{{"cpu": -1}, {"cpu": math.NaN()}, {"": 1}, {"memory": 1e18}} {
		if bad.Valid() == "" {
			t.Errorf("%v is let pass", bad)
		}
	}
}

// TestCapsHoldOverDeathsAndCuts: with orders one at a time, judged by the newest records, a namespace never exceeds
// its cap, whichever workers die. During a cut both sides together exceed it by at most what was left when the cut
// began.
func TestCapsHoldOverDeathsAndCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 8000
		n := rapid.IntRange(1, 5).Draw(t, "workers")
		used, told := make([]int64, n), make([][]int64, n) // told: by whom is asked, what each of the others has told
		dead := make([]bool, n)
		side := make([]int, n)
		for i := range told {
			told[i] = make([]int64, n)
		}
		sum := func() (all int64) {
			for _, u := range used {
				all += u
			}
			return all
		}
		left, cut := int64(0), false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "worker")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0: // it dies; its machines may run on
				dead[i] = true
			case 1:
				dead[i] = false
			case 2:
				if !cut {
					cut, left = true, most-sum()
					for k := range side {
						side[k] = rapid.IntRange(0, 1).Draw(t, "side")
					}
				}
			case 3: // something ends
				used[i] = used[i] / 2
			default:
				if dead[i] {
					continue
				}
				for j := range used { // all that are heard are asked
					if !dead[j] && side[i] == side[j] {
						for k := range told {
							if !dead[k] && side[k] == side[j] {
								told[k][j] = used[j] // as Agree has it after each order
							}
						}
					}
				}
				a := quota.Account{Unlimited: true, Max: quota.Caps{"cpu": most / 1000}}
				for _, u := range told[i] {
					a.Used.CPU += u
				}
				want := cluster.Resources{CPU: int64(rapid.IntRange(1, 3000).Draw(t, "cpu"))}
				if a.Means("ns", 0, want).Enough() {
					used[i] += want.CPU
					for k := range told {
						if side[k] == side[i] { // one that is dead learns before it is asked again
							told[k][i] = used[i]
						}
					}
				}
			}
			if all := sum(); all > most+left {
				t.Fatalf("%d are occupied, at most %d and %d of a cut are promised", all, most, left)
			}
		}
	})
}
