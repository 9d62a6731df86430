package eta_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/eta"
)

// outcome is what comes of a forecast, and when.
type outcome struct {
	at     float64
	ticket eta.Ticket
	took   float64
}

func at(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// play makes n forecasts, one in gap seconds, and returns the coverage. next returns a forecast and its outcome.
func play(t interface{ Fatalf(string, ...any) }, n int, gap float64, next func(i int) (forecast, took float64),
) eta.Coverage {
	c := eta.New(0.9, time.Second)
	var due []outcome // by time
	resolve := func(now float64) {
		for len(due) > 0 && due[0].at <= now {
			c.Resolve(at(due[0].at), due[0].ticket, seconds(due[0].took))
			due = due[1:]
		}
	}
	for i := range n {
		now := float64(i) * gap
		resolve(now)
		forecast, took := next(i)
		x, said, ticket := c.Say(at(now), "start", seconds(forecast))
		if x.Low < 0 || x.High < x.Low || !said && x != (eta.Interval{}) {
			t.Fatalf("forecast %g: %v, %v", forecast, x, said)
		}
		o := outcome{now + took, ticket, took}
		k, _ := slices.BinarySearchFunc(due, o, func(a, b outcome) int {
			if a.at <= b.at {
				return -1
			}
			return 1
		})
		due = slices.Insert(due, k, o)
	}
	resolve(math.Inf(1))
	return c.Coverage("start")
}

// TestIntervalsHoldAsOftenAsStated: of 3,000 forecasts of each kind of error, at three rates: at the highest, thousands
// are made before the first outcome is known.
func TestIntervalsHoldAsOftenAsStated(t *testing.T) {
	for _, gap := range []float64{500, 10, 2} {
		rng := rand.New(rand.NewPCG(1, 2))
		some := func() float64 { return math.Exp(6 * rng.Float64()) }
		around := func(p, spread float64) (float64, float64) { return p, p * math.Exp(spread*rng.NormFloat64()) }
		for name, next := range map[string]func(i int) (float64, float64){
			"independent": func(int) (float64, float64) { return around(some(), 0.5) },
			"drifting": func(i int) (float64, float64) {
				p, took := around(some(), 0.3)
				return p, took * math.Exp(math.Sin(float64(i)/300))
			},
			"in steps": func(i int) (float64, float64) {
				p, took := around(some(), 0.3)
				return p, took * math.Exp(float64(i/500%2))
			},
			"heavy-tailed": func(int) (float64, float64) {
				p := some()
				return p, p * math.Pow(1-rng.Float64(), -1)
			},
			"often nothing": func(int) (float64, float64) {
				if p := some(); rng.Float64() < 0.6 {
					return p, 0
				}
				return around(some(), 1)
			},
			"nothing forecast": func(int) (float64, float64) {
				if rng.Float64() < 0.8 {
					return 0, 0
				}
				return 0, -50 * math.Log(1-rng.Float64())
			},
		} {
			c := play(t, 3000, gap, next)
			if part := float64(c.Held) / float64(c.Of); part < 0.88 || part > 0.92 || c.Of < 2900 {
				t.Errorf("%s, one in %g s: %d of %d held, %.1f %%", name, gap, c.Held, c.Of, 100*part)
			}
		}
	}
}

// TestAnyIntervalIsARange: whatever comes, no interval is below 0 or the wrong way around.
func TestAnyIntervalIsARange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 10), rapid.Float64Range(0, 1e9))
		play(t, rapid.IntRange(1, 200).Draw(t, "n"), rapid.Float64Range(0, 100).Draw(t, "gap"),
			func(int) (float64, float64) { return values.Draw(t, "forecast"), values.Draw(t, "took") })
	})
}

func TestNothingIsSaidWithoutOutcomes(t *testing.T) {
	c := eta.New(0.9, time.Second)
	for i := range eta.Least {
		now := at(float64(100 * i))
		_, said, ticket := c.Say(now, "end", time.Minute)
		if said {
			t.Fatalf("an interval after %d outcomes", i)
		}
		c.Resolve(now.Add(time.Minute), ticket, time.Minute)
	}
	now := at(1e6)
	if x, said := c.Interval(now, "end", time.Minute); !said || x.Low > time.Minute || x.High < time.Minute {
		t.Fatal(x, said)
	}
	if _, said := c.Interval(now, "start", time.Minute); said {
		t.Fatal("kinds learn from each other")
	}
}

// TestIntervalIsMissedOnceItHasPassed: a job that never starts counts as missed, once; a cancelled one not at all.
func TestIntervalIsMissedOnceItHasPassed(t *testing.T) {
	c := eta.New(0.9, time.Second)
	for i := range 30 {
		_, _, ticket := c.Say(at(float64(100*i)), "end", time.Minute)
		c.Resolve(at(float64(100*i+60)), ticket, time.Minute)
	}
	before := c.Coverage("end")
	_, _, late := c.Say(at(1e5), "end", time.Minute)
	_, _, cancelled := c.Say(at(1e5), "end", time.Minute)
	c.Drop(cancelled)
	c.Interval(at(2e5), "end", time.Minute)
	c.Resolve(at(3e5), late, seconds(2e5))
	if now := c.Coverage("end"); now.Of != before.Of+1 || now.Held != before.Held {
		t.Fatal(before, now)
	}
}

func TestSavedIsSmallAndTakenBack(t *testing.T) {
	c := eta.New(0.9, time.Second)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		for _, k := range []eta.Kind{"start", "end"} {
			now, p := at(float64(1e7*i)), math.Exp(14*rng.Float64())
			_, _, ticket := c.Say(now, k, seconds(p))
			c.Resolve(now, ticket, seconds(p*math.Exp(rng.NormFloat64())))
		}
	}
	raw, err := json.Marshal(c.Save())
	if err != nil || len(raw) > 64<<10 {
		t.Fatal(len(raw), err)
	}
	var saved eta.Saved
	if err := json.Unmarshal(raw, &saved); err != nil {
		t.Fatal(err)
	}
	again := eta.New(0.9, time.Second)
	again.Restore(saved)
	for p := 1.0; p < 1e6; p *= 10 {
		a, _ := c.Interval(at(1e12), "end", seconds(p))
		b, said := again.Interval(at(1e12), "end", seconds(p))
		if ratio := b.High.Seconds() / a.High.Seconds(); !said || ratio < 0.99 || ratio > 1.01 {
			t.Errorf("%g: %v, %v", p, a, b)
		}
	}
	if again.Coverage("end") != c.Coverage("end") {
		t.Fatal(again.Coverage("end"))
	}
}
