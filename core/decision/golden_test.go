package decision_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

var update = flag.Bool("update", false, "write the golden explanations anew")

// goldenCase is a fleet and a request that one clause stands between.
type goldenCase struct {
	code    string
	request func(*placement.Request)
	worker  func(*cluster.Record)
	policy  *placement.Policy
}

func text(attribute string, op cluster.Op, values ...string) cluster.Requirement {
	q := cluster.Requirement{Attribute: attribute, Op: op}
	for _, v := range values {
		q.Values = append(q.Values, cluster.Text(v))
	}
	return q
}

func goldenCases() []goldenCase {
	cheap := placement.Default()
	cheap.Filters = []placement.Filter{{Name: "cheap", Wanted: "price < 3",
		Of: func(*placement.Request, *cluster.Record) (bool, string) { return false, "price 5" }}}
	req := func(f func(*placement.Request)) func(*placement.Request) { return f }
	return []goldenCase{
		{code: "cpu", worker: func(w *cluster.Record) { w.Used.CPU = 3900 }},
		{code: "memory", worker: func(w *cluster.Record) { w.Used.Memory = 3996 }},
		{code: "disk", request: req(func(r *placement.Request) { r.Resources.Disk = 2048 })},
		{code: "ports", request: req(func(r *placement.Request) { r.Resources.Ports = 3 })},
		{code: "gpu", request: req(func(r *placement.Request) { r.Resources.GPU = 1000 })},
		{code: "license.cad",
			request: req(func(r *placement.Request) { r.Resources.Named = map[string]int64{"license.cad": 2} })},
		{code: placement.CodeRegion,
			request: req(func(r *placement.Request) { r.Regions = []cluster.Region{"ams", "fra"} })},
		{code: placement.CodeState, worker: func(w *cluster.Record) { w.State = cluster.Cordoned }},
		{code: placement.CodeVolume, request: req(func(r *placement.Request) { r.Volumes = []string{"vol_1"} })},
		{code: placement.CodeAttached, request: req(func(r *placement.Request) { r.Volumes = []string{"vol_1"} }),
			worker: func(w *cluster.Record) { w.Volumes = map[string]string{"vol_1": "e784079b449483"} }},
		{code: placement.CodeStartRate, worker: func(w *cluster.Record) { w.MaxStarting, w.Starting = 4, 4 }},
		{code: placement.CodeRequirement, request: req(func(r *placement.Request) {
			r.Scheduling.Require = []cluster.Requirement{text("arch", cluster.Equal, "arm64")}
		}), worker: func(w *cluster.Record) { w.Attributes = cluster.Attributes{"arch": cluster.Text("amd64")} }},
		{code: "requirement undefined", request: req(func(r *placement.Request) {
			r.Scheduling.Require = []cluster.Requirement{text("arhc", cluster.Equal, "arm64")}
		})},
		{code: placement.CodeWorkerRequires,
			worker: func(w *cluster.Record) { w.Require = []cluster.Requirement{text("team", cluster.Equal, "ml")} }},
		{code: placement.CodeReserved, worker: func(w *cluster.Record) { w.Reserved = []string{"ml"} }},
		{code: placement.CodeAffinity, request: req(func(r *placement.Request) {
			r.Scheduling.Affinity = []machine.Affinity{{App: "db", Within: "rack"}}
		})},
		{code: placement.CodeAntiAffinity,
			request: req(func(r *placement.Request) {
				r.Scheduling.Affinity = []machine.Affinity{{App: "db",
					Anti: true}}
			}),
			worker: func(w *cluster.Record) { w.Apps = map[string]int{"db": 1} }},
		{code: placement.CodeSpread, request: req(func(r *placement.Request) {
			r.Scheduling.Spread = []machine.Spread{{Attribute: "zone", MaxSkew: 1}}
			r.Fleet.Spread = []map[string]int{{"z1": 2, "z2": 1}}
		}), worker: func(w *cluster.Record) { w.Attributes = cluster.Attributes{"zone": cluster.Text("z1")} }},
		{code: placement.CodeHeadroom, worker: func(w *cluster.Record) { w.Headroom.Memory = 4000 }},
		{code: placement.CodeGPUKind,
			request: req(func(r *placement.Request) { r.Resources.GPU, r.GPUKind = 1000, "a100" }), worker: gpus},
		{code: placement.CodeGPUDevice, request: req(func(r *placement.Request) { r.Resources.GPU = 1000 }),
			worker: gpus},
		{code: placement.CodePolicy, policy: &cheap},
		{code: "evict", request: req(func(r *placement.Request) { r.Start = false }), worker: func(w *cluster.Record) {
			w.Used.Memory = 4096
			w.Evictable = []cluster.Evictable{{Rank: 1000, Machines: 2,
				Resources: cluster.Resources{CPU: 100, Memory: 1024}}}
		}},
		{code: "evicts", request: req(func(r *placement.Request) { r.Scheduling.Band = machine.BandService }),
			worker: func(w *cluster.Record) {
				w.Used.Memory = 4096
				w.Evictable = []cluster.Evictable{{Rank: 1000, Machines: 2,
					Resources: cluster.Resources{CPU: 100, Memory: 1024}}}
			}},
	}
}

func gpus(w *cluster.Record) {
	w.Capacity.GPU, w.Used.GPU = 2000, 1000
	w.GPUs = []cluster.GPU{{Kind: "t4", Free: 500}, {Kind: "t4", Free: 500}}
}

// TestExplanationsMatchGoldenFile: the judge refuses for each of its reasons. The golden file has the explanation, the typed
// reason, and what would help.
func TestExplanationsMatchGoldenFile(t *testing.T) {
	var b strings.Builder
	for _, c := range goldenCases() {
		w := cluster.Record{Worker: "w1", Region: "iad", State: cluster.Ready, Incarnation: 1, Version: 4,
			At:       decisiontest.Epoch(),
			Capacity: cluster.Resources{CPU: 4000, Memory: 4096, Disk: 1024, Ports: 2}}
		r := placement.Request{App: "web", Machine: "d891275c2e5118", Start: true,
			Resources: cluster.Resources{CPU: 250, Memory: 512}}
		if c.request != nil {
			c.request(&r)
		}
		if c.worker != nil {
			c.worker(&w)
		}
		p := placement.Default()
		if c.policy != nil {
			p = *c.policy
		}
		plan := decision.Foresee(decisiontest.Epoch(), r, cluster.View{Workers: []cluster.Record{w}}, p,
			decision.Limits{}, nil)
		failing := plan.Decision.Groups[0].Failing
		if code, _, _ := strings.Cut(c.code, " "); !strings.HasPrefix(c.code, "evict") &&
			(len(failing) != 1 || failing[0].Code != code) {
			t.Errorf("%s: the judge says %v", c.code, failing)
		}
		fmt.Fprintf(&b, "== %s: %s, %s\n", c.code, plan.Verdict, plan.Decision.Pending)
		for _, s := range decision.Explain(plan.Decision) {
			fmt.Fprintln(&b, s)
		}
		for _, ch := range plan.Changes {
			fmt.Fprintf(&b, "-> %s\n", ch.Text)
		}
		b.WriteString("\n")
	}
	golden(t, "testdata/clauses.txt", b.String())
}

// TestDecisionMatchesGoldenFile holds the explanation of a placement with all there is to tell.
func TestDecisionMatchesGoldenFile(t *testing.T) {
	term := func(region, headroom, spread float64) machine.Terms {
		return machine.Terms{{Name: "headroom", Value: headroom}, {Name: "region", Value: region},
			{Name: "spread", Value: spread}}
	}
	d := &decision.Decision{ID: "01", At: decisiontest.Epoch(), Policy: decision.Policy{Name: "cheap", Version: 3},
		Strategy: "direct", Workers: 40, Fitting: 30,
		Outcome: decision.Placed, Winner: "w2", Reason: "best score 51.20 after 1 refusal",
		Considered: []decision.Considered{
			{Candidate: machine.Candidate{Worker: "w2", Fits: true, Score: 51.2, Terms: term(50, 0.7, 0.5)}, Age: 1500},
			{Candidate: machine.Candidate{Worker: "w7", Fits: true, Score: 27, Terms: term(25, 1, 1)}},
		},
		Groups: []decision.Group{
			{Codes: []string{"memory"}, Count: 9, Example: "w9",
				Failing: []machine.Clause{{Code: "memory", Wanted: "512 MiB", Had: "100 MiB free of 900 MiB"}}},
			{Codes: []string{decision.Other}, Count: 1, Example: "w8"},
		},
		Asks: []decision.Ask{
			{Worker: "w1", Ref: decision.Ref{Incarnation: 1, Version: 4}, Result: "refused",
				Healed:  &decision.Ref{Incarnation: 1, Version: 9},
				Failing: []machine.Clause{{Code: "cpu", Wanted: "250m", Had: "0m free of 1000m"}}},
			{Worker: "w2", Result: "granted"},
		},
		Evictions: []decision.Preempted{{Machine: "e784079b449483", App: "nightly", Worker: "w2", Cause: "preempted",
			Rule: "band batch below service"}},
	}
	same := *d
	same.Considered = slices.Clone(d.Considered)
	same.Considered[1].Candidate = same.Considered[0].Candidate
	same.Considered[1].Worker = "w7"
	same.Groups, same.Asks, same.Evictions, same.Policy.Version = nil, nil, nil, 0
	golden(t, "testdata/placed.txt", strings.Join(decision.Explain(d), "\n")+"\n\n"+
		strings.Join(decision.Explain(&same), "\n")+"\n")
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("(-golden +got) go test ./core/decision -update writes it anew:\n%s", d)
	}
}
