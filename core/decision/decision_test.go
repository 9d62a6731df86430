package decision_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// lookup finds records among those that decisions carry.
func lookup(ds ...*decision.Decision) decision.Recorded {
	all := map[string]cluster.Record{}
	key := func(w cluster.WorkerID, r decision.Ref) string { return fmt.Sprint(w, " ", r) }
	for _, d := range ds {
		for _, r := range d.Records {
			all[key(r.Worker, decision.RefOf(r))] = *r
		}
	}
	return func(w cluster.WorkerID, r decision.Ref) (cluster.Record, bool) {
		rec, ok := all[key(w, r)]
		return rec, ok
	}
}

// seeds runs a property on the first n seeds, which are the same each time, so that what they cover can be counted on.
// Each time some others are drawn too.
func seeds(t *testing.T, n uint64, f func(t *rapid.T, seed uint64)) {
	t.Helper()
	next := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		for ; next < n; next++ {
			f(t, next)
		}
		f(t, rapid.Uint64().Draw(t, "seed"))
	})
}

// TestRecordedDecisionRecomputesExactly (invariant 9): for random fleets, stale views and requests, each clause, each
// score, the asks in their order and the outcome follow from the record alone, also after it went through JSON.
func TestRecordedDecisionRecomputesExactly(t *testing.T) {
	outcomes := map[decision.Outcome]int{}
	seeds(t, 200, func(t *rapid.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		stale := decisiontest.Fleet(rng, rng.IntN(100))
		r := decisiontest.Request(rng, stale)
		b, err := decisiontest.Buy(rng, r, stale, decisiontest.Age(rng, stale), placement.Default())
		d := decision.From(decision.Observation{ID: "X", At: decisiontest.Epoch(), Why: decision.Create,
			Purchase: b.Purchase(), Err: err})
		outcomes[d.Outcome]++
		if wrong := decision.Verify(d, lookup(d), placement.Default()); len(wrong) > 0 {
			t.Fatal(wrong)
		}
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again decision.Decision
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		if wrong := decision.Verify(&again, lookup(d), placement.Default()); len(wrong) > 0 {
			t.Fatalf("read back: %v\n%s", wrong, raw)
		}
		if n := len(d.Considered); n > decision.KeepAll || len(d.Groups) > decision.MaxGroups {
			t.Fatalf("%d workers and %d groups are kept", n, len(d.Groups))
		}
		if len(decision.Explain(d)) == 0 || d.Reason == "" || (d.Outcome == decision.Refused) != (d.Pending != "" &&
			d.Outcome != decision.Ambiguous) {
			t.Fatalf("%+v", d)
		}
	})
	if outcomes[decision.Placed] == 0 || outcomes[decision.Refused] == 0 || outcomes[decision.Ambiguous] == 0 {
		t.Errorf("the draws are poor: %v", outcomes)
	}
}

// TestVerifyRejectsTamperedRecords: a record that was tampered with does not pass.
func TestVerifyRejectsTamperedRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	view := decisiontest.Fleet(rng, 20)
	r := placement.Request{App: "a", Machine: "m", Resources: cluster.Resources{CPU: 100, Memory: 256}}
	b, err := decisiontest.Buy(rng, r, view, view, placement.Default())
	if err != nil {
		t.Fatal(err)
	}
	make := func() *decision.Decision {
		return decision.From(decision.Observation{At: decisiontest.Epoch(), Purchase: b.Purchase()})
	}
	for name, spoil := range map[string]func(*decision.Decision){
		"score":  func(d *decision.Decision) { d.Considered[0].Score += 1e-9 },
		"clause": func(d *decision.Decision) { d.Groups[0].Failing = nil },
		"request": func(d *decision.Decision) {
			d.Request.Resources.CPU = 1 << 40
		},
		"winner":  func(d *decision.Decision) { d.Asks[0].Worker = cluster.WorkerID(d.Considered[1].Worker) },
		"outcome": func(d *decision.Decision) { d.Outcome = decision.Refused },
		"version": func(d *decision.Decision) { d.Considered[0].Version++ },
	} {
		d := make()
		seen := lookup(d)
		spoil(d)
		if wrong := decision.Verify(d, seen, placement.Default()); len(wrong) == 0 {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

// TestNearestChangesMakeTheRequestFit: a proposed change, applied, makes the judge say yes on the worker it names; no proposed change
// is dominated by another; and where one step on any worker would do, one is proposed.
func TestNearestChangesMakeTheRequestFit(t *testing.T) {
	kinds := map[decision.StepKind]int{}
	seeds(t, 1000, func(t *rapid.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 2))
		view := decisiontest.Fleet(rng, 1+rng.IntN(12))
		r := decisiontest.Request(rng, view)
		limits := decision.Limits{Least: cluster.Resources{CPU: 62, Memory: 256}, Grain: cluster.Resources{CPU: 62}}
		before, _ := json.Marshal(r)
		changes := decision.Nearest(r, view, placement.Default(), limits)
		if after, _ := json.Marshal(r); string(after) != string(before) {
			t.Fatalf("the request was changed to %s", after)
		}
		for i, c := range changes {
			r2, w2 := c.Apply(r, decisiontest.Find(view, c.Worker))
			if v := placement.Judge(r2, w2); !v.Fits {
				t.Fatalf("%s: %+v", c.Text, v)
			}
			if c.Cost <= 0 || c.Text == "" || (i > 0 && c.Cost < changes[i-1].Cost) {
				t.Fatalf("%+v", c)
			}
			for _, s := range c.Steps {
				kinds[s.Kind]++
				if s.Kind == decision.Less && (s.To < limits.Least.Get(s.Dim) || s.To >= s.From) {
					t.Fatalf("%+v", s)
				}
			}
			for j := range changes {
				if i != j && larger(c, changes[j]) {
					t.Fatalf("%q is dominated by %q", c.Text, changes[j].Text)
				}
			}
		}
		exhaustive(t, r, view, changes)
	})
	for _, k := range []decision.StepKind{decision.Less, decision.DropRequire, decision.AddRegion, decision.Tolerate,
		decision.SetLabel,
		decision.DropNear, decision.DropSpread, decision.AnyGPU, decision.Evict, decision.Uncordon, decision.Wait} {
		if kinds[k] == 0 {
			t.Errorf("no change had a step %s: %v", k, kinds)
		}
	}
}

// larger says whether a asks for the same one step as b, and for more of it.
func larger(a, b decision.Change) bool {
	if len(a.Steps) != 1 || len(b.Steps) != 1 {
		return false
	}
	s, t := a.Steps[0], b.Steps[0]
	return s.Kind == t.Kind && s.Dim == t.Dim && s.Index == t.Index && s.Name == t.Name &&
		(s.To < t.To || s.Machines > t.Machines)
}

// exhaustive tries to beat the proposals: one dimension lowered less, or one constraint dropped where none was
// proposed.
func exhaustive(t *rapid.T, r placement.Request, view cluster.View, changes []decision.Change) {
	for _, w := range view.Workers {
		for _, dim := range []string{"cpu", "memory"} {
			for _, c := range changes {
				if len(c.Steps) != 1 || c.Steps[0].Kind != decision.Less || c.Steps[0].Dim != dim {
					continue
				}
				grain := int64(1)
				if dim == "cpu" {
					grain = 62
				}
				try := decision.Change{Worker: w.Worker,
					Steps: []decision.Step{{Kind: decision.Less, Dim: dim, From: c.Steps[0].From,
						To: c.Steps[0].To + grain}}}
				if r2, w2 := try.Apply(r, w); r2.Resources.Get(dim) < r.Resources.Get(dim) &&
					placement.Judge(r2, w2).Fits {
					t.Fatalf("%s of %d would do on %s, and %q was proposed", dim, try.Steps[0].To, w.Worker, c.Text)
				}
			}
		}
		for i := range r.Scheduling.Require {
			try := decision.Change{Worker: w.Worker, Steps: []decision.Step{{Kind: decision.DropRequire, Index: i}}}
			r2, w2 := try.Apply(r, w)
			if placement.Judge(r2, w2).Fits && !placement.Judge(r, w).Fits && len(changes) == 0 && !anyFits(r, view) {
				t.Fatalf("without requirement %d it fits on %s, and nothing was proposed", i, w.Worker)
			}
		}
	}
}

func anyFits(r placement.Request, view cluster.View) bool {
	for _, w := range view.Workers {
		if placement.Judge(r, w).Fits {
			return true
		}
	}
	return false
}

// TestPlanMatchesTheActualPlacement (invariant 9): over 1,000 random fleets, what Foresee says is what real sellers then do.
func TestPlanMatchesTheActualPlacement(t *testing.T) {
	fits := 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		sellers := map[cluster.WorkerID]*market.Seller{}
		view := cluster.View{}
		for _, w := range decisiontest.Fleet(rng, 1+rng.IntN(20)).Workers {
			w.GPUs, w.Evictable = nil, nil
			used := w.Used
			s := market.NewSeller(w)
			s.Restore("old", "b", used, true)
			s.SetStarting(w.Starting)
			sellers[w.Worker] = s
			view.Workers = append(view.Workers, s.Record(decisiontest.Epoch()))
		}
		r := decisiontest.Request(rng, view)
		plan := decision.Foresee(decisiontest.Epoch(), r, view, placement.Default(), decision.Limits{}, nil)
		b := market.NewBuyer(r, view, placement.Default())
		out := b.Step(market.In{})
		var placed cluster.WorkerID
		for !out.Done {
			placed = out.Ask
			if err := sellers[out.Ask].Grant(decisiontest.Epoch(), r, "", true); err != nil {
				t.Fatalf("seed %d: %s refuses: %v", seed, out.Ask, err)
			}
			out = b.Step(market.In{Worker: out.Ask, Granted: true})
		}
		if (plan.Verdict == decision.FitsNow) != (out.Err == nil) || plan.Decision.Winner != placed {
			t.Fatalf("seed %d: the plan says %s on %q; it went to %q: %v", seed, plan.Verdict, plan.Decision.Winner,
				placed, out.Err)
		}
		if out.Err == nil {
			fits++
		}
	}
	if fits < 200 || fits > 900 {
		t.Errorf("the draws are poor: %d of 1000 fit", fits)
	}
}

func TestPendingReasonFollowsPrecedence(t *testing.T) {
	worker := func(id string, change func(*cluster.Record)) cluster.Record {
		w := cluster.Record{Worker: cluster.WorkerID(id), Region: "iad", State: cluster.Ready,
			Capacity: cluster.Resources{CPU: 4000, Memory: 4096}}
		change(&w)
		return w
	}
	none := func(*cluster.Record) {}
	full := func(w *cluster.Record) { w.Used = cluster.Resources{Memory: 3800} }
	cordoned := func(w *cluster.Record) { w.State = cluster.Cordoned }
	want := func(mib int64) placement.Request {
		return placement.Request{Resources: cluster.Resources{CPU: 100, Memory: mib}}
	}
	arm := want(256)
	arm.Scheduling.Require = []cluster.Requirement{{Attribute: "arch", Op: cluster.Equal,
		Values: []cluster.Value{cluster.Text("arm64")}}}
	away := want(256)
	away.Regions = []cluster.Region{"ams"}
	amd := func(w *cluster.Record) { w.Attributes = cluster.Attributes{"arch": cluster.Text("amd64")} }
	armBusy := func(w *cluster.Record) { w.Attributes = cluster.Attributes{"arch": cluster.Text("arm64")}; full(w) }
	p := placement.Default()
	for name, tt := range map[string]struct {
		r       placement.Request
		workers []cluster.Record
		want    decision.Pending
	}{
		"no such attribute":      {arm, []cluster.Record{worker("a", none)}, decision.Misconfigured},
		"a negative amount":      {want(-1), []cluster.Record{worker("a", none)}, decision.Misconfigured},
		"too large":              {want(9000), []cluster.Record{worker("a", none)}, decision.NeverFits},
		"too large and cordoned": {want(9000), []cluster.Record{worker("a", cordoned)}, decision.NeverFits},
		"cordoned":               {want(256), []cluster.Record{worker("a", cordoned)}, decision.Held},
		"another region":         {away, []cluster.Record{worker("a", none), worker("b", full)}, decision.NoMatch},
		"no match":               {arm, []cluster.Record{worker("a", amd)}, decision.NoMatch},
		"those that match are": {arm2(arm, 512), []cluster.Record{worker("a", amd), worker("b", armBusy)},
			decision.Capacity},
		"full": {want(512), []cluster.Record{worker("a", full)}, decision.Capacity},
		"full, but not together": {want(512), []cluster.Record{worker("a", full), worker("b", full)},
			decision.Fragmented},
		"starting": {placement.Request{Start: true},
			[]cluster.Record{worker("a", func(w *cluster.Record) { w.Starting, w.MaxStarting = 1, 1 })},
			decision.PendingEvaluation},
		"nobody": {want(1), nil, decision.PendingEvaluation},
		"one cordoned, one full": {want(512), []cluster.Record{worker("a", full), worker("b", cordoned)},
			decision.Capacity},
		"one too small, one full": {want(4000),
			[]cluster.Record{worker("a", full), worker("b", func(w *cluster.Record) { w.Capacity.Memory = 512 })},
			decision.Capacity},
		"a wish for a free band": {placement.Request{Scheduling: machine.Scheduling{Band: machine.BandFree},
			Resources: cluster.Resources{Memory: 512}}, []cluster.Record{worker("a", full)}, decision.Capacity},
		"all matching too small": {arm2(arm, 9000), []cluster.Record{worker("a", amd), worker("b", armBusy)},
			decision.NeverFits},
		"none matching, too large": {arm2(arm, 9000), []cluster.Record{worker("a", amd)}, decision.NeverFits},
	} {
		if got := decision.Classify(&tt.r, cluster.View{Workers: tt.workers}, &p); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func arm2(r placement.Request, mib int64) placement.Request {
	r.Resources.Memory = mib
	return r
}
