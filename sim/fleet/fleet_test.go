package fleet_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/sim/fleet"
)

// TestIndexChoiceIsWithinOnePercentOfTheBest: on a fleet that fills and empties, the index's choice scores within 1 % of the best there
// is, on average, and loses little of what drawing a worker that fits would lose; and it never says that nothing fits
// where something does.
func TestIndexChoiceIsWithinOnePercentOfTheBest(t *testing.T) {
	p := placement.Default()
	d := fleet.NewDecider(fleet.New(fleet.Options{Workers: 500, Seed: 1, Shapes: 40, Apps: 10}), &p)
	var regret, spread float64
	n := 0
	for range 300 {
		for range 50 {
			d.Step()
		}
		q := d.Judge()
		if !q.Agrees {
			t.Fatalf("the scan says %v, the index otherwise", q.Fits)
		}
		if q.Fits {
			n++
			regret += q.Regret
			spread += q.Range
		}
	}
	if n < 200 || regret/float64(n) > 0.01 || spread/float64(n) > 0.15 {
		t.Errorf("%d decisions: regret %.4f of the score, %.4f of what drawing a worker would lose", n,
			regret/float64(n), spread/float64(n))
	}
	if d.Placed < 5*d.Refused {
		t.Errorf("%d placed, %d fitted nowhere", d.Placed, d.Refused)
	}
}

func TestFleetIsReproducibleAsConfigured(t *testing.T) {
	a, b := fleet.New(fleet.Options{Workers: 200, Seed: 3}), fleet.New(fleet.Options{Workers: 200, Seed: 3})
	conditions := 0
	for range 4000 {
		x, y := a.Next(), b.Next()
		if fmt.Sprint(x) != fmt.Sprint(y) {
			t.Fatalf("%v and %v", x, y)
		}
		if fleet.Constrained(&x) {
			conditions++
		}
	}
	if conditions < 120 || conditions > 280 {
		t.Errorf("%d of 4000 requests have conditions, want about 200", conditions)
	}
	for i := range a.Records {
		if w := &a.Records[i]; len(w.Attributes) != 20 || !w.Used.Fits(w.Capacity) {
			t.Fatalf("%+v", w)
		}
	}
	if full := a.Full(); full < 0.6 || full > 0.95 {
		t.Errorf("%.2f full", full)
	}
}

func BenchmarkDecideByFleetSize(b *testing.B) {
	for _, n := range []int{1000, 10000, 50000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := placement.Default()
			d := fleet.NewDecider(fleet.New(fleet.Options{Workers: n, Seed: 1}), &p)
			for range 20000 {
				d.Step()
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			for range b.N {
				d.Step()
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(d.Examined)/float64(d.Placed+d.Refused), "looked-at/op")
		})
	}
}

// cpuTime returns the CPU time of the process: on a busy machine the clock says little.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkIdleFleet(b *testing.B) {
	p := placement.Default()
	d := fleet.NewDecider(fleet.New(fleet.Options{Workers: 10000, Seed: 1}), &p)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		d.Idle()
	}
}
