package sim_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
)

// TestPartiesKnowOnlyWhatTheyWereTold: a run in which each worker, buyer and center has an instance of the scheduler of
// its own, which gets its own messages only and knows the jobs that they told it of, is the same, tick by tick, as the
// run in which one instance has them all. Workers die and come back in some of the runs, and messages are lost where the
// scheduler knows of loss; every job ends.
func TestPartiesKnowOnlyWhatTheyWereTold(t *testing.T) {
	for _, name := range registry.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reruns := int64(0)
			for seed := range uint64(100) {
				open, s := drawRun(name, seed)
				s.Apart = false
				together, err := runRow(open, s)
				if err != nil {
					t.Fatal(err)
				}
				s.Apart = true
				apart, err := runRow(open, s)
				if err != nil {
					t.Fatal(err)
				}
				if together.Unfinished > 0 {
					t.Fatalf("seed %d: %d jobs did not end", seed, together.Unfinished)
				}
				if a, b := figuresOf(t, together), figuresOf(t, apart); together.Hash != apart.Hash || a != b {
					t.Fatalf("seed %d: together\n%x %s\napart\n%x %s", seed, together.Hash, a, apart.Hash, b)
				}
				if reruns += together.Reruns; together.Twice > 0 && name != "market" {
					t.Fatalf("seed %d: %d tasks ended twice", seed, together.Twice)
				}
			}
			if reruns == 0 {
				t.Error("no task was lost with its worker: the deaths come too late")
			}
		})
	}
}

// TestMessagesTravelAsJSON: a run in which each party reads the messages to it from JSON is the same, tick by tick, as
// one in which it gets them as they were sent.
func TestMessagesTravelAsJSON(t *testing.T) {
	for _, name := range registry.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(10) {
				open, s := drawRun(name, seed)
				s.Apart = true
				sent, err := runRow(open, s)
				if err != nil {
					t.Fatal(err)
				}
				s.Wire = true
				read, err := runRow(open, s)
				if err != nil {
					t.Fatal(err)
				}
				if a, b := figuresOf(t, sent), figuresOf(t, read); sent.Hash != read.Hash || a != b {
					t.Fatalf("seed %d: in memory\n%x %s\nas JSON\n%x %s", seed, sent.Hash, a, read.Hash, b)
				}
			}
		})
	}
}

// drawRun draws a small run of a scheduler.
func drawRun(name string, seed uint64) (sim.Opener, sim.Setup) {
	rng := rand.New(rand.NewPCG(seed, 51))
	shape := []string{"yahoo", "cloudera", "sparrow"}[rng.IntN(3)]
	s := sim.Setup{Scheduler: name, Workers: 4 + rng.IntN(20), Slots: 1 + rng.IntN(3),
		Reserve: float64(rng.IntN(2) * 30), Compat: rng.IntN(3) == 0,
		Options: slots.Options{Seed: seed, Cutoff: []float64{30, 200}[rng.IntN(2)],
			Error: float64(rng.IntN(2)) / 2, Buyers: 1 + rng.IntN(4),
			Slowing: scheduler.Slowing{Beside: float64(rng.IntN(2)) / 10, Uneven: float64(rng.IntN(2))}}}
	if rng.IntN(2) == 0 {
		s.Think = [2]slots.Think{{PerTask: 100}, {PerJob: 1000}}
	}
	if rng.IntN(2) == 0 {
		if name == "market" { // which alone knows of loss
			s.Loss = 0.05 * rng.Float64()
		}
		for w := range int32(s.Workers - 1) { // the last one, which takes all, lives
			at := ticks.Time(rng.IntN(2000)) * ticks.Second
			if rng.IntN(3) == 0 {
				back := at + ticks.Time(rng.IntN(60))*ticks.Second
				s.Deaths = append(s.Deaths, slots.Death{Worker: w, At: at, Back: back})
			}
		}
	}
	return generated(shape, 30, s.Workers*s.Slots), s
}

func runRow(open sim.Opener, s sim.Setup) (sim.Row, error) {
	src, _, err := open(s.Seed)
	if err != nil {
		return sim.Row{}, err
	}
	row, err := sim.Run(src, s)
	row.CPU = 0
	return row, err
}

func figuresOf(t *testing.T, row sim.Row) string {
	t.Helper()
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
