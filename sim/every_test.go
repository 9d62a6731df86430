package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/trace"
)

// TestEveryJobEndsUnderEveryScheduler: on any small fleet and load, with and without the quirks, every job of every
// scheduler ends, and takes at least as long as its longest task.
func TestEveryJobEndsUnderEveryScheduler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		at := 0
		jobs := rapid.IntRange(1, 15).Draw(t, "jobs")
		for range jobs {
			at += rapid.IntRange(0, 3).Draw(t, "gap")
			durs := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 9).Draw(t, "durations")
			sum := 0
			for _, d := range durs {
				sum += d
			}
			fmt.Fprintf(&text, "%d %d %.3f %s\n", at, len(durs), float64(sum)/float64(len(durs)),
				strings.Trim(fmt.Sprint(durs), "[]"))
		}
		open := func(uint64) (trace.Source, func() error, error) {
			return trace.NewTR("drawn", strings.NewReader(text.String())), func() error { return nil }, nil
		}
		s := sim.Setup{Workers: rapid.IntRange(2, 9).Draw(t, "workers"), Slots: rapid.IntRange(1, 3).Draw(t, "slots"),
			Reserve: rapid.SampledFrom([]float64{0, 20, 50}).Draw(t, "reserve"), Compat: rapid.Bool().Draw(t, "compat"),
			Options: slots.Options{Cutoff: 15, Error: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "error")}}
		for _, name := range registry.Names() {
			s.Scheduler = name
			got, err := sim.Each(open, s, 1, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got.Unfinished > 0 || len(got.ShortTimes)+len(got.LongTimes) != jobs {
				t.Fatalf("%s: %d of %d jobs did not end", name, got.Unfinished, jobs)
			}
		}
		b, err := sim.Yardsticks(open, s)
		if err != nil {
			t.Fatal(err)
		}
		if b.A.Mean > b.B.Mean+1e-6 || b.A.Mean > b.C.Mean+1e-6 {
			t.Fatalf("bound A is %.3f, B %.3f, C %.3f", b.A.Mean, b.B.Mean, b.C.Mean)
		}
	})
}
