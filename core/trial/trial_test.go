package trial_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/soukhq/souk/core/trial"
)

func TestComparePairsTheJobs(t *testing.T) {
	a := []trial.Outcome{{0, 20, 20}, {5, 25, 20}, {1, 2, 1}}
	b := []trial.Outcome{{1, 21, 20}, {9, 29, 20}, {1, 2, 1}}
	m := trial.Compare(a, b)
	if len(m) != 3 || m[0].Name != "wait" || m[1].Name != "runtime" || m[2].Name != "slowdown" {
		t.Fatalf("%+v", m)
	}
	wait := m[0]
	first := trial.Distribution{P50: 1, P90: 5, P99: 5, Mean: 2}
	second := trial.Distribution{P50: 1, P90: 9, P99: 9, Mean: 11.0 / 3}
	if wait.A != first || wait.B != second {
		t.Errorf("%+v", wait)
	}
	// differences of 1, 4 and 0: mean 5/3, variance 13/3
	if half := 1.959964 * math.Sqrt(13.0/9); math.Abs(wait.Difference-5.0/3) > 1e-9 || math.Abs(wait.Half-half) > 1e-9 {
		t.Errorf("the difference is %v ±%v", wait.Difference, wait.Half)
	}
	// a job of 1 s counts as one of 10 s, and is not slowed down
	if s := m[2]; s.A.P50 != 1 || s.A.P99 != 1.25 || s.B.P99 != 1.45 {
		t.Errorf("%+v", s)
	}
	if one := trial.Compare(a[:1], b[:1]); one[0].Difference != 1 || one[0].Half != 0 {
		t.Errorf("of one job: %+v", one[0])
	}
	if none := trial.Compare(nil, nil); none[0] != (trial.Measure{Name: "wait"}) {
		t.Errorf("of no job: %+v", none[0])
	}
}

// TestIntervalHoldsTheTruth: of many trials of equal schedulers about 95 % have a difference of 0 in their interval.
func TestIntervalHoldsTheTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 0))
	held := 0
	for range 2000 {
		var a, b []trial.Outcome
		for range 60 {
			own := rng.ExpFloat64() * 100 // jobs differ more than schedulers do
			a = append(a, trial.Outcome{Runtime: own + rng.Float64()})
			b = append(b, trial.Outcome{Runtime: own + rng.Float64()})
		}
		if m := trial.Compare(a, b)[1]; math.Abs(m.Difference) <= m.Half {
			held++
		}
	}
	if held < 1860 || held > 1940 {
		t.Errorf("%d of 2000 intervals hold 0", held)
	}
}
