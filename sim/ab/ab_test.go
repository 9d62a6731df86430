package ab_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/sim/ab"
)

func fixed(p placement.Policy) ab.Chooser {
	return func(*placement.Request) placement.Policy { return p }
}

// packing prefers full workers, and has a filter that some do not pass.
func packing() placement.Policy {
	p := placement.Default()
	p.Name = "pack"
	for i := range p.Terms {
		if p.Terms[i].Name == "headroom" {
			p.Terms[i].Weight = -200
		}
	}
	p.Filters = []placement.Filter{{Name: "not-ams", Wanted: "region != ams",
		Of: func(_ *placement.Request, w *cluster.Record) (bool, string) {
			return w.Region != "ams", string(w.Region)
		}}}
	return p
}

func replay(seed uint64, old, then placement.Policy) ab.Report {
	rng := rand.New(rand.NewPCG(seed, 1))
	run := ab.New(fixed(old), fixed(then))
	for range 300 {
		view := decisiontest.Fleet(rng, 1+rng.IntN(10))
		r := decisiontest.Request(rng, view)
		b, err := decisiontest.Buy(rng, r, view, view, placement.Default())
		d := decision.From(decision.Observation{ID: "X", At: decisiontest.Epoch(), Purchase: b.Purchase(), Err: err})
		run.Add(d, func(w cluster.WorkerID, ref decision.Ref) (cluster.Record, bool) {
			rec := decisiontest.Find(view, w)
			return rec, decision.RefOf(&rec) == ref
		})
	}
	return run.Report()
}

// TestReplayWithTheSamePolicyMovesNothing replays the log with the very policy that made it.
func TestReplayWithTheSamePolicyMovesNothing(t *testing.T) {
	r := replay(1, placement.Default(), placement.Default())
	if r.Decisions+r.Skipped != 300 || r.Decisions < 200 || r.Same != r.Decisions || r.As != r.Decisions ||
		r.Moved.N != 0 || len(r.Moves) != 0 || r.Headroom.Diff != 0 {
		t.Errorf("%+v", r)
	}
}

func TestReplayWithAnotherPolicyReportsChanges(t *testing.T) {
	r := replay(1, placement.Default(), packing())
	if r.Moved.N == 0 || r.OnlyBy.New.N == 0 || r.OnlyBy.Old.N != 0 || r.Same+r.Moved.N+r.OnlyBy.New.N != r.Decisions {
		t.Fatalf("%+v", r)
	}
	if r.Headroom.Diff >= 0 || r.Headroom.Half <= 0 || r.Score.Diff <= 0 ||
		math.Abs(r.Headroom.New-r.Headroom.Old-r.Headroom.Diff) > 1e-9 {
		t.Errorf("packing leaves %+v, and scores %+v", r.Headroom, r.Score)
	}
	if r.Moved.Low >= r.Moved.Of || r.Moved.High <= r.Moved.Of {
		t.Errorf("%+v", r.Moved)
	}
	for _, m := range r.Moves {
		if m.From == m.To || m.Gain < 0 || (m.From != "" && m.Gain > 0 && m.Term == "") {
			t.Errorf("%+v", m)
		}
	}
	for _, m := range r.Lost {
		if m.To != "" || m.Why == "" {
			t.Errorf("%+v", m)
		}
	}
	again := replay(1, placement.Default(), packing())
	a, _ := json.Marshal(r)
	if b, _ := json.Marshal(again); string(a) != string(b) {
		t.Error("the same log gives another report")
	}
}

func TestReplayGatesAreValidated(t *testing.T) {
	r := ab.Report{Decisions: 9, Skipped: 1, Moved: ab.Share{Of: 0.2}, Headroom: ab.Paired{Old: 0.5, New: 0.4},
		OnlyBy: ab.Refusal{New: ab.Share{Of: 0.01}}}
	for text, want := range map[string]bool{
		"moved > 0.1": true, "moved >= 0.3": false, "refused>0": true, "headroom < 0.9 * old": true,
		"headroom <= 0.5*old": false,
		"skipped > 0.05":      true, "region > 1": false, "neighbours < 1": true, "score <= 0": true,
	} {
		g, err := ab.ParseGate(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, fails := g.Fails(r); fails != want {
			t.Errorf("%s: %v", g, fails)
		}
	}
	for _, text := range []string{"", "moved", "moved > x", "moved > 1.2.3", "moved > 0.1 * old", "speed > 3",
		"headroom ~ 3"} {
		if _, err := ab.ParseGate(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
