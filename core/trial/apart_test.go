package trial_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/soukhq/souk/core/trial"
)

// apartJob makes a job of two tasks, one of which begins at once.
func apartJob(class string, runtime float64) trial.Job {
	return trial.Job{Class: class, Outcome: trial.Outcome{Runtime: runtime, Longest: 10}, Tasks: 2,
		Waits: []float64{0, runtime - 1}}
}

// TestCompareApartComparesWithinClasses: B has more of the long jobs, and is not blamed for that.
func TestCompareApartComparesWithinClasses(t *testing.T) {
	a := []trial.Job{apartJob("short", 10), apartJob("short", 12), apartJob("short", 14), apartJob("long", 100),
		apartJob("long", 120), apartJob("lonely", 7)}
	b := []trial.Job{apartJob("short", 13), apartJob("short", 11), apartJob("long", 100), apartJob("long", 110),
		apartJob("long", 120), apartJob("other", 7)}
	x := trial.CompareApart(a, b)
	// the jobs of classes without a pair are one class, of one job on each side: it cannot be compared
	side := trial.Side{Jobs: 6, Tasks: 12, Compared: 5, ComparedOpen: 5}
	if x.A != side || x.B != side {
		t.Errorf("%+v %+v", x.A, x.B)
	}
	m := x.Measures[1]
	if m.Name != "runtime" || m.Base != (12+110)/2.0 || m.Difference != 0 || m.A.P50 != 12 || m.B.P99 != 120 {
		t.Errorf("%+v", m)
	}
	// each class has half of the jobs; variances 4 and 2 of 3 and 2 short jobs, 200 and 100 of 2 and 3 long ones
	se := math.Sqrt(0.25 * (4.0/3 + 2.0/2 + 200.0/2 + 100.0/3))
	if ratio := m.Half / se; ratio < 3 || ratio > 5 {
		t.Errorf("half the width is %v standard errors", ratio)
	}
	if w := x.Measures[0]; w.A.P50 != 0 || w.A.P99 != 119 || w.Name != "wait" {
		t.Errorf("%+v", w)
	}
	if s := x.Measures[2]; s.A.P99 != 12 || s.Name != "slowdown" {
		t.Errorf("%+v", s)
	}
	if none := trial.CompareApart(nil, nil); none.Measures[1] != (trial.ApartMeasure{Measure: trial.Measure{
		Name: "runtime"}}) || none.Verdict(10) != trial.TooFew {
		t.Errorf("%+v", none)
	}
}

// TestWaitsOfASampleStandForAllTasks: a job of many tasks counts as many, however few of its waits are kept.
func TestWaitsOfASampleStandForAllTasks(t *testing.T) {
	all := make([]float64, 1000)
	for i := range all {
		all[i] = float64(999 - i)
	}
	few := trial.Sample(all, 10)
	if want := []float64{50, 150, 250, 350, 450, 550, 650, 750, 850, 950}; !slices.Equal(few, want) {
		t.Fatalf("%v", few)
	}
	if same := trial.Sample([]float64{3, 1, 2}, 10); !slices.Equal(same, []float64{1, 2, 3}) {
		t.Errorf("%v", same)
	}
	x := trial.CompareApart([]trial.Job{{Tasks: 1000, Waits: few}, {Tasks: 1, Waits: []float64{5000}}}, nil)
	if w := x.Measures[0].A; w.P50 != 550 || w.P90 != 950 || w.P99 != 950 || math.Abs(w.Mean-504.5) > 1 {
		t.Errorf("%+v", w)
	}
}

func TestVerdictNeedsTheIntervalBeyondTheMargin(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	draw := func(n int, mean float64) (out []trial.Job) {
		for range n {
			out = append(out, apartJob("c", mean+2*rng.NormFloat64()))
		}
		return out
	}
	for _, x := range []struct {
		a, b         int
		meanA, meanB float64
		margin       int
		want         trial.Finding
	}{
		{19, 200, 20, 40, 10, trial.TooFew},
		{200, 19, 20, 40, 10, trial.TooFew},
		{100, 100, 20, 26, 10, trial.BWorse},
		{100, 100, 26, 20, 10, trial.AWorse},
		{100, 100, 20, 26, 50, trial.Same},
		{200, 200, 20, 20, 10, trial.Same},
		{30, 30, 20, 22, 10, trial.Unknown},
		{30, 30, 20, 20, 0, trial.Unknown},
	} {
		c := trial.CompareApart(draw(x.a, x.meanA), draw(x.b, x.meanB))
		if got := c.Verdict(x.margin); got != x.want {
			d, half := c.Measures[1].Percent()
			t.Errorf("%+v: %s, with %.1f ±%.1f", x, got, d, half)
		}
		if c.VerdictText("market", "hawk", x.margin) == "" {
			t.Errorf("%+v: nothing is said", x)
		}
	}
}

// TestJobsThatNeverEndAreFound: nothing of B ends. It is worse once its jobs have been there for longer than A's took; while
// all jobs of both still run, nothing is known.
func TestJobsThatNeverEndAreFound(t *testing.T) {
	var a, b []trial.Job
	for i := range 40 {
		a = append(a, apartJob("c", 20+float64(i%5)))
		b = append(b, trial.Job{Class: "c", Open: true, Outcome: trial.Outcome{Runtime: 30 + float64(i%7)}})
	}
	x := trial.CompareApart(a, b)
	if x.Verdict(10) != trial.BWorse || x.B.Open != 40 || x.B.Jobs != 0 || x.Measures[1].B.P50 != 0 {
		t.Errorf("%s: %+v", x.Verdict(10), x)
	}
	if x = trial.CompareApart(b, a); x.Verdict(10) != trial.AWorse {
		t.Errorf("%s: %+v", x.Verdict(10), x)
	}
	if x = trial.CompareApart(b, b); x.Verdict(10) != trial.TooFew {
		t.Errorf("%s: %+v", x.Verdict(10), x)
	}
}

// TestAnytimeIntervalHoldsAtEveryLook: two schedulers are the same, and a comparison is looked at again and again. At most one
// in twenty ever says that they differ, also where jobs come faster than they end.
func TestAnytimeIntervalHoldsAtEveryLook(t *testing.T) {
	const trials, jobs, every = 200, 150, 3
	for name, step := range map[string]float64{"all have ended": math.Inf(1), "many have not ended": 1} {
		rng, wrong := rand.New(rand.NewPCG(51, 1)), 0
		for range trials {
			var sides [2][]trial.Job
			var came [2][]float64
			for i := range jobs {
				class, scale := "small", 1.0
				if rng.IntN(3) == 0 {
					class, scale = "large", 20
				}
				n := rng.IntN(2)
				sides[n] = append(sides[n], apartJob(class, scale*(5+rng.ExpFloat64())))
				came[n] = append(came[n], float64(i))
				if i%every > 0 {
					continue
				}
				var now [2][]trial.Job
				for n := range sides {
					for k, j := range sides[n] {
						if age := step * (float64(i) + 1 - came[n][k]); age < j.Runtime {
							j = trial.Job{Class: j.Class, Open: true, Outcome: trial.Outcome{Runtime: age}}
						}
						now[n] = append(now[n], j)
					}
				}
				x := trial.CompareApart(now[0], now[1])
				if f := x.Verdict(0); f == trial.AWorse || f == trial.BWorse {
					wrong++
					break
				}
			}
		}
		if wrong > trials/20 {
			t.Errorf("%s: %d of %d comparisons of equal schedulers find a difference", name, wrong, trials)
		}
	}
}

// BenchmarkCompareApart is what one look of the watching member computes, in a comparison with many jobs.
func BenchmarkCompareApart(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var sides [2][]trial.Job
	for i := range 10_000 {
		job := trial.Job{Class: string(rune('a' + i%20)), Tasks: 1000,
			Outcome: trial.Outcome{Runtime: rng.ExpFloat64(), Longest: 1}}
		for range 64 {
			job.Waits = append(job.Waits, rng.ExpFloat64())
		}
		sides[i%2] = append(sides[i%2], job)
	}
	for b.Loop() {
		trial.CompareApart(sides[0], sides[1])
	}
}
