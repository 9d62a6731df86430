package sim_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/trace"
)

func generated(shape string, jobs, slotCount int) sim.Opener {
	return func(seed uint64) (trace.Source, func() error, error) {
		src, err := trace.Generate(trace.Shape{Name: shape, Jobs: jobs, Slots: slotCount, Load: 0.9, Seed: seed})
		return src, func() error { return nil }, err
	}
}

func TestResultGatesAreParsedAndJudged(t *testing.T) {
	row := sim.Summary{Short: sim.Class{P50: 1, P99: 11}, Long: sim.Class{Mean: 100}, Mean: 5, Unfinished: 1}
	base := sim.Summary{Short: sim.Class{P50: 1, P99: 10}, Long: sim.Class{Mean: 90}, Mean: 5}
	for text, want := range map[string]bool{
		"p99(short) > 1.05 * baseline": true, "p99(short)>1.2*baseline": false, "p50( short ) >= baseline": true,
		"mean(long) < 1":   false,
		"mean <= baseline": true, "unfinished > 0": true, "messages > 15": false} {
		g, err := sim.ParseGate(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if _, _, got := g.Fails(row, base); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]string{"p99 > 1": "a percentile is of (short) or of (long)",
		"p98(short) > 1": "it must be", "": "it must be",
		"mean > ": "the number is missing", "mean > 2 baseline": "a factor is written",
		"messages(short) > 1": "messages is of all jobs", "mean > 1e": "no number"} {
		if _, err := sim.ParseGate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestPercentilesAreNearestRank(t *testing.T) {
	c := sim.ClassOf([]float64{4, 1, 3, 2})
	if (c != sim.Class{P50: 2, P90: 4, P99: 4, Mean: 2.5}) {
		t.Fatalf("%+v", c)
	}
	if (sim.ClassOf(nil) != sim.Class{}) {
		t.Fatal("none has percentiles")
	}
}

// TestEachSparrowTechniqueImprovesWaiting: each of Sparrow's techniques is better than the one before it, at about the published ratios.
func TestEachSparrowTechniqueImprovesWaiting(t *testing.T) {
	open := func(seed uint64) (trace.Source, func() error, error) {
		src, err := trace.Generate(trace.Shape{Name: "sparrow", Jobs: 2500, Slots: 40_000, Load: 0.8, Seed: seed})
		return src, func() error { return nil }, err
	}
	mean := map[string]float64{}
	for _, name := range []string{"fifo", "sparrow", "sparrow-cancel", "batch", "per-task", "random"} {
		s, err := sim.Each(open, sim.Setup{Scheduler: name, Workers: 10_000, Slots: 4, Warmup: 0.5,
			Options: slots.Options{Cutoff: 1000}}, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		mean[name] = s.Mean
	}
	order := []string{"fifo", "sparrow-cancel", "sparrow", "batch", "per-task", "random"}
	for i := 1; i < len(order); i++ {
		if mean[order[i-1]] > mean[order[i]]*1.001 {
			t.Errorf("%s takes %.4f s and %s %.4f", order[i-1], mean[order[i-1]], order[i], mean[order[i]])
		}
	}
	if r := mean["sparrow"] / mean["fifo"]; r > 1.12 {
		t.Errorf("Sparrow is %.2f times the omniscient one", r)
	}
}

func TestHTMLReportIsSelfContained(t *testing.T) {
	open := generated("yahoo", 200, 300)
	setup := sim.Setup{Scheduler: "market", Workers: 300, Reserve: 4, Options: slots.Options{Cutoff: 90}}
	s, err := sim.Each(open, setup, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sim.Yardsticks(open, setup)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	setup.Scheduler = "sparrow:4"
	other, err := sim.Each(open, setup, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.HTML(&out, "a <title>", []sim.Summary{s, other}, &b); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, bad := range []string{"<script", "http://", "https://", "a <title>", "NaN"} {
		if strings.Contains(text, bad) {
			t.Errorf("the report has %q", bad)
		}
	}
	if strings.Count(text, "<svg") != 4 || s.Mean < b.A.Mean {
		t.Errorf("%d plots; mean %.1f, bound A %.1f", strings.Count(text, "<svg"), s.Mean, b.A.Mean)
	}
}
