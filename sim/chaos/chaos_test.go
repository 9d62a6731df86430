package chaos_test

import (
	"testing"

	"github.com/soukhq/souk/sim/chaos"
)

// TestLongThousandSeedsKeepInvariants: to repeat one that fails, souk sim chaos --seed N --runs 1.
func TestLongThousandSeedsKeepInvariants(t *testing.T) { seeds(t, 1000) }

// TestSeedsKeepInvariants: 100 random scenarios keep the invariants.
func TestSeedsKeepInvariants(t *testing.T) { seeds(t, 100) }

func seeds(t *testing.T, n uint64) {
	var sum chaos.Report
	for seed := range n {
		rep, err := chaos.Run(seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if seed%20 == 0 {
			again, err := chaos.Run(seed)
			if err != nil || again != rep {
				t.Fatalf("seed %d: it does not repeat: %+v and %+v, %v", seed, rep, again, err)
			}
		}
		sum.Add(rep)
	}
	t.Logf("%+v", sum)
	if sum.Granted == 0 || sum.Refused == 0 || sum.Lost == 0 || sum.Crashes == 0 || sum.Whole == 0 ||
		sum.Whole == sum.Gangs || sum.Evicted == 0 {
		t.Fatalf("something never happens: %+v", sum)
	}
}
