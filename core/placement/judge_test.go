package placement_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/placementtest"
	"github.com/soukhq/souk/machine"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func big() cluster.Record {
	return cluster.Record{Worker: "w", Region: "iad", State: cluster.Ready,
		Capacity: cluster.Resources{CPU: 4000, Memory: 8192, Disk: 10000, Ports: 100}}
}

func requires(s ...string) (qs []cluster.Requirement) {
	for _, s := range s {
		q, err := cluster.ParseRequirement(s)
		if err != nil {
			panic(err)
		}
		qs = append(qs, q)
	}
	return qs
}

type refusal struct {
	name string
	r    placement.Request
	w    func(*cluster.Record)
}

func gpus(ds ...cluster.GPU) func(*cluster.Record) {
	return func(w *cluster.Record) { w.GPUs, w.Capacity.GPU = ds, int64(len(ds))*1000 }
}

func wants(s machine.Scheduling) placement.Request { return placement.Request{App: "a", Scheduling: s} }

// refusals has at least one case for each way in which the judge says no.
var refusals = []refusal{
	{"cordoned", placement.Request{}, func(w *cluster.Record) { w.State = cluster.Cordoned }},
	{"no state", placement.Request{}, func(w *cluster.Record) { w.State = "" }},
	{"other region", placement.Request{Regions: []cluster.Region{"ams", "lhr"}}, nil},
	{"volume elsewhere", placement.Request{Volumes: []string{"vol_1"}}, nil},
	{"volume attached", placement.Request{Machine: "m", Volumes: []string{"vol_1"}},
		func(w *cluster.Record) { w.Volumes = map[string]string{"vol_1": "n"} }},
	{"too many starting", placement.Request{Start: true}, func(w *cluster.Record) { w.MaxStarting, w.Starting = 4, 4 }},
	{"no cpu left", placement.Request{Resources: cluster.Resources{CPU: 500}},
		func(w *cluster.Record) { w.Used.CPU = 3900 }},
	{"larger than the worker", placement.Request{Resources: cluster.Resources{Memory: 9000}}, nil},
	{"two dimensions", placement.Request{Resources: cluster.Resources{CPU: 9000, Ports: 101}}, nil},
	{"a named resource", placement.Request{Resources: cluster.Resources{Named: map[string]int64{"licence": 2}}},
		func(w *cluster.Record) { w.Capacity.Named = map[string]int64{"licence": 1} }},
	{"a named resource that is not there",
		placement.Request{Resources: cluster.Resources{Named: map[string]int64{"fpga": 1}}}, nil},
	{"less than nothing", placement.Request{Resources: cluster.Resources{CPU: -1}}, nil},
	{"beyond all amounts", placement.Request{Resources: cluster.Resources{Disk: cluster.MaxAmount + 1}}, nil},
	{"into the headroom", placement.Request{Resources: cluster.Resources{CPU: 1000}},
		func(w *cluster.Record) { w.Headroom.CPU, w.Used.CPU = 2000, 1500 }},
	{"into the headroom, always", placement.Request{Resources: cluster.Resources{CPU: 1900}},
		func(w *cluster.Record) { w.Headroom.CPU = 3000 }},
	{"no such gpu", placement.Request{GPUKind: "h100", Resources: cluster.Resources{GPU: 1000}},
		gpus(cluster.GPU{Kind: "a100", Free: 1000}, cluster.GPU{Kind: "t4", Free: 1000})},
	{"gpus in pieces", placement.Request{Resources: cluster.Resources{GPU: 700}},
		gpus(cluster.GPU{Kind: "t4", Free: 500}, cluster.GPU{Kind: "t4", Free: 500})},
	{"two whole gpus", placement.Request{Resources: cluster.Resources{GPU: 2000}}, func(w *cluster.Record) {
		gpus(cluster.GPU{Kind: "t4", Free: 1000}, cluster.GPU{Kind: "t4", Free: 500},
			cluster.GPU{Kind: "t4", Free: 500})(w)
		w.Used.GPU = 1000
	}},
	{"more gpus than there are", placement.Request{Resources: cluster.Resources{GPU: 3000}},
		gpus(cluster.GPU{Kind: "t4", Free: 1000})},
	{"one and a half gpus", placement.Request{Resources: cluster.Resources{GPU: 1500}},
		gpus(cluster.GPU{Kind: "t4", Free: 1000}, cluster.GPU{Kind: "t4", Free: 1000})},
	{"requirement unmet", wants(machine.Scheduling{Require: requires("arch == arm64")}),
		func(w *cluster.Record) { w.Attributes = cluster.Attributes{"arch": cluster.Text("amd64")} }},
	{"requirement undefined", wants(machine.Scheduling{Require: requires("arch == arm64")}), nil},
	{"requirement of another type", wants(machine.Scheduling{Require: requires("cores > 8")}),
		func(w *cluster.Record) { w.Attributes = cluster.Attributes{"cores": cluster.Text("many")} }},
	{"requirement of absence", wants(machine.Scheduling{Require: requires("!spot")}),
		func(w *cluster.Record) { w.Attributes = cluster.Attributes{"spot": cluster.Truth(true)} }},
	{"requirement over the worker itself", wants(machine.Scheduling{Require: requires("worker in x,y")}), nil},
	{"the worker requires a label", placement.Request{},
		func(w *cluster.Record) { w.Require = requires("team == ml") }},
	{"the worker requires a band",
		wants(machine.Scheduling{Band: machine.BandFree, Labels: cluster.Attributes{"band": cluster.Text("system")}}),
		func(w *cluster.Record) { w.Require = requires("band in service,system") }},
	{"reserved", wants(machine.Scheduling{Tolerate: []string{"db"}}),
		func(w *cluster.Record) { w.Reserved = []string{"db", "gpu"} }},
	{"affinity to an app", wants(machine.Scheduling{Affinity: []machine.Affinity{{App: "cache"}}}), nil},
	{"affinity to an app in a zone",
		placement.Request{Scheduling: machine.Scheduling{Affinity: []machine.Affinity{{App: "cache", Within: "zone"}}},
			Fleet: placement.Fleet{Affinity: [][]cluster.Value{{cluster.Text("b")}}}},
		func(w *cluster.Record) { w.Attributes = cluster.Attributes{"zone": cluster.Text("a")} }},
	{"anti-affinity to an app", wants(machine.Scheduling{Affinity: []machine.Affinity{{App: "a", Anti: true}}}),
		func(w *cluster.Record) { w.Apps = map[string]int{"a": 1} }},
	{"anti-affinity to a machine",
		placement.Request{Scheduling: machine.Scheduling{Affinity: []machine.Affinity{{Machine: "m1", Anti: true}}},
			Fleet: placement.Fleet{Affinity: [][]cluster.Value{{cluster.Text("w")}}}}, nil},
	{"skew", placement.Request{App: "a",
		Scheduling: machine.Scheduling{Spread: []machine.Spread{{Attribute: "zone", MaxSkew: 1}}},
		Fleet:      placement.Fleet{Spread: []map[string]int{{"a": 2, "b": 1}}}},
		func(w *cluster.Record) { w.Attributes = cluster.Attributes{"zone": cluster.Text("a")} }},
	{"nothing to spread over", wants(machine.Scheduling{Spread: []machine.Spread{{Attribute: "zone", MaxSkew: 1}}}),
		nil},
	{"no more is promised",
		placement.Request{Wakes: true, Resources: cluster.Resources{CPU: 100, Memory: 512, Disk: 100}},
		func(w *cluster.Record) {
			w.PromiseLimit, w.Used.Memory, w.Promised.Memory, w.Promised.CPU = 2000, 4096, 12000, 7900
		}},
	{"more than is ever promised", placement.Request{Wakes: true, Resources: cluster.Resources{Memory: 5000}},
		func(w *cluster.Record) { w.PromiseLimit = 500 }},
	{"everything at once", placement.Request{Regions: []cluster.Region{"ams"}, Start: true,
		Resources: cluster.Resources{CPU: 5000}}, func(w *cluster.Record) {
		w.State, w.MaxStarting, w.Reserved = cluster.Draining, 0, []string{"db"}
	}},
}

func (c refusal) record() cluster.Record {
	w := big()
	if c.w != nil {
		c.w(&w)
	}
	return w
}

// TestRefusalClausesStateWantedAndHad: the sentences that people read are data, in testdata/clauses.txt.
func TestRefusalClausesStateWantedAndHad(t *testing.T) {
	var got strings.Builder
	seen := map[string]bool{}
	for _, c := range refusals {
		v := placement.Judge(c.r, c.record())
		fmt.Fprintf(&got, "%s: fits %v, never %v\n", c.name, v.Fits, v.Never)
		for _, f := range v.Failing {
			seen[f.Code] = true
			fmt.Fprintf(&got, "    %s\n", placement.ClauseText(f))
		}
	}
	golden := "testdata/clauses.txt"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != got.String() {
		t.Errorf("%v: want\n%s\ngot\n%s\n(-rewrite takes it)", err, want, got.String())
	}
	for _, code := range []string{placement.CodeRegion, placement.CodeState, placement.CodeVolume,
		placement.CodeAttached, placement.CodeStartRate,
		placement.CodeRequirement, placement.CodeWorkerRequires, placement.CodeReserved, placement.CodeAffinity,
		placement.CodeAntiAffinity,
		placement.CodeSpread, placement.CodeHeadroom, placement.CodeGPUKind, placement.CodeGPUDevice,
		placement.CodePromised, "cpu", "memory",
		"disk", "ports", "gpu", "licence"} {
		if !seen[code] {
			t.Errorf("no case shows the code %s", code)
		}
	}
}

func TestJudgeAcceptsEdgeCases(t *testing.T) {
	for _, c := range []refusal{
		{"nothing asked of a ready worker", placement.Request{}, nil},
		{"any region", placement.Request{Regions: []cluster.Region{"ams", "any"}}, nil},
		{"a volume that is free", placement.Request{Volumes: []string{"v"}},
			func(w *cluster.Record) { w.Volumes = map[string]string{"v": ""} }},
		{"a volume of its own", placement.Request{Machine: "m", Volumes: []string{"v"}},
			func(w *cluster.Record) { w.Volumes = map[string]string{"v": "m"} }},
		{"no start limit", placement.Request{Start: true}, func(w *cluster.Record) { w.Starting = 100 }},
		{"not to be started", placement.Request{}, func(w *cluster.Record) { w.MaxStarting, w.Starting = 1, 9 }},
		{"all that is free", placement.Request{Resources: cluster.Resources{CPU: 4000, Memory: 8192, Disk: 10000,
			Ports: 100}}, nil},
		{"the headroom is for the large", placement.Request{Resources: cluster.Resources{CPU: 2000}},
			func(w *cluster.Record) { w.Headroom.CPU, w.Used.CPU = 2000, 2000 }},
		{"large in one dimension of it", placement.Request{Resources: cluster.Resources{CPU: 100, Memory: 4096}},
			func(w *cluster.Record) {
				w.Headroom, w.Used.CPU = cluster.Resources{CPU: 2000, Memory: 4096}, 3900
			}},
		{"headroom of what is not asked", placement.Request{Resources: cluster.Resources{CPU: 100}},
			func(w *cluster.Record) { w.Headroom.Memory, w.Used.Memory = 8000, 8000 }},
		{"as much as may be promised", placement.Request{Wakes: true, Resources: cluster.Resources{CPU: 1000}},
			func(w *cluster.Record) { w.PromiseLimit, w.Promised.CPU, w.Promised.Memory = 2000, 7000, 1<<40 }},
		{"no promise", placement.Request{Resources: cluster.Resources{CPU: 1000}},
			func(w *cluster.Record) { w.PromiseLimit, w.Promised.CPU = 1000, 4000 }},
		{"no limit", placement.Request{Wakes: true, Resources: cluster.Resources{CPU: 1000}},
			func(w *cluster.Record) { w.Promised.CPU = 1 << 40 }},
		{"a part of a gpu", placement.Request{Resources: cluster.Resources{GPU: 500}},
			gpus(cluster.GPU{Kind: "t4", Free: 500})},
		{"gpus that are only counted", placement.Request{GPUKind: "t4", Resources: cluster.Resources{GPU: 1500}},
			func(w *cluster.Record) { w.Capacity.GPU = 2000 }},
		{"both sides agree", wants(machine.Scheduling{Require: requires("arch == arm64", "cores >= 8"),
			Labels: cluster.Attributes{"team": cluster.Text("ml")}}), func(w *cluster.Record) {
			w.Attributes = cluster.Attributes{"arch": cluster.Text("arm64"), "cores": cluster.Number(8)}
			w.Require = requires("team == ml", "app == a", "band == service", "priority <= 0")
		}},
		{"tolerated", wants(machine.Scheduling{Tolerate: []string{"gpu", "db"}}),
			func(w *cluster.Record) { w.Reserved = []string{"db"} }},
		{"affinity within a zone",
			placement.Request{Scheduling: machine.Scheduling{Affinity: []machine.Affinity{{App: "cache",
				Within: "zone"}}},
				Fleet: placement.Fleet{Affinity: [][]cluster.Value{{cluster.Text("a")}}}},
			func(w *cluster.Record) { w.Attributes = cluster.Attributes{"zone": cluster.Text("a")} }},
		{"affinity that only counts",
			wants(machine.Scheduling{Affinity: []machine.Affinity{{App: "cache", Weight: 3}}}), nil},
		{"the least of a spread",
			placement.Request{App: "a",
				Scheduling: machine.Scheduling{Spread: []machine.Spread{{Attribute: "zone", MaxSkew: 1}}},
				Fleet:      placement.Fleet{Spread: []map[string]int{{"a": 1, "b": 1}}}},
			func(w *cluster.Record) { w.Attributes = cluster.Attributes{"zone": cluster.Text("a")} }},
	} {
		if v := placement.Judge(c.r, c.record()); !v.Fits || v.Never {
			t.Errorf("%s: %s", c.name, placement.VerdictText(v))
		}
	}
}

// emptied is the worker as it would be with nothing on it, and ready.
func emptied(w cluster.Record) cluster.Record {
	w.State, w.Used, w.Machines, w.Starting, w.Apps = cluster.Ready, cluster.Resources{}, 0, 0, nil
	w.Promised = cluster.Resources{}
	devices := make([]cluster.GPU, len(w.GPUs))
	for i, g := range w.GPUs {
		devices[i] = cluster.GPU{Kind: g.Kind, Free: 1000}
	}
	w.GPUs = devices
	free := make(map[string]string, len(w.Volumes))
	for id := range w.Volumes {
		free[id] = ""
	}
	w.Volumes = free
	return w
}

// TestJudgeSaysNeverOnlyIfAnEmptyWorkerRefuses: the judge says never where, and only where, an empty and ready worker would refuse as well. Where
// neighbours are wanted, or a region has too many, that is not the worker's emptiness to tell.
func TestJudgeSaysNeverOnlyIfAnEmptyWorkerRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, w := placementtest.Request(t), placementtest.Record(t)
		if w.MaxStarting < 0 {
			w.MaxStarting = 0
		}
		v, empty := placement.Judge(r, w), placement.Judge(r, emptied(w))
		if v.Never && empty.Fits {
			t.Fatalf("never, yet an empty worker takes it\n%+v\n%+v\n%s", r, w, placement.VerdictText(v))
		}
		if len(r.Scheduling.Affinity)+len(r.Scheduling.Spread) == 0 && !empty.Fits && !v.Never {
			t.Fatalf("an empty worker refuses (%s), yet the verdict is %s", placement.VerdictText(empty),
				placement.VerdictText(v))
		}
		if empty.Never != !empty.Fits && len(r.Scheduling.Affinity)+len(r.Scheduling.Spread) == 0 {
			t.Fatalf("an empty worker: %+v", empty)
		}
	})
}

// TestJudgeIsDeterministicAndTotal: any request and any record have one verdict; it fits where nothing failed; neither
// argument changes; each clause says something.
func TestJudgeIsDeterministicAndTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, w := placementtest.Request(t), placementtest.Record(t)
		before, _ := json.Marshal([]any{r, w})
		v := placement.JudgeAt(&r, &w)
		if after, _ := json.Marshal([]any{r, w}); string(before) != string(after) {
			t.Fatalf("%s became %s", before, after)
		}
		if v.Fits != (len(v.Failing) == 0) || (v.Fits && v.Never) {
			t.Fatalf("%+v", v)
		}
		for _, c := range v.Failing {
			if c.Code == "" || c.Wanted == "" {
				t.Fatalf("a clause that says nothing: %+v", c)
			}
		}
		if again := placement.Judge(r, w); !reflect.DeepEqual(v, again) {
			t.Fatalf("%+v, then %+v", v, again)
		}
		p := placement.Default()
		if s := p.ScoreAt(&r, &w); v.Fits && (math.IsNaN(s) || math.IsInf(s, 0)) {
			t.Fatalf("score %v", s)
		}
		s, terms := p.Score(r, w)
		sum := 0.0
		for _, x := range terms {
			sum += x.Value
		}
		if math.Abs(s-sum) > 1e-9*max(1, math.Abs(s)) || math.Abs(s-p.ScoreAt(&r, &w)) > 1e-9*max(1, math.Abs(s)) {
			t.Fatalf("score %v, its parts add up to %v, ScoreAt says %v", s, sum, p.ScoreAt(&r, &w))
		}
	})
}

// FuzzJudgeNeverPanicsOnJSON judges whatever decodes: a hostile request or record costs no panic.
func FuzzJudgeNeverPanicsOnJSON(f *testing.F) {
	for _, c := range refusals {
		r, _ := json.Marshal(c.r)
		w, _ := json.Marshal(c.record())
		f.Add(r, w)
	}
	f.Add([]byte(`{"resources":{"gpu_milli":-9223372036854775808}}`),
		[]byte(`{"capacity":{"cpu_milli":9223372036854775807},"used":{"cpu_milli":-1},"gpus":[{}],"headroom":{"cpu_milli":9223372036854775807}}`))
	p := placement.Default()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var r placement.Request
		var w cluster.Record
		if json.Unmarshal(a, &r) != nil || json.Unmarshal(b, &w) != nil {
			return
		}
		v := p.Judge(&r, &w)
		_ = placement.VerdictText(v)
		p.ScoreAt(&r, &w)
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		view := cluster.View{Workers: []cluster.Record{w, w}}
		x := placement.Resolve(r, view, func(string) cluster.WorkerID { return w.Worker })
		placement.Rank(x, view, p)
	})
}

// TestFitsAtAgreesWithTheJudge: without reasons, the verdict is the same.
func TestFitsAtAgreesWithTheJudge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		view := cluster.View{}
		for range rapid.IntRange(1, 4).Draw(t, "workers") {
			view.Workers = append(view.Workers, placementtest.Record(t))
		}
		r := placement.Resolve(placementtest.Request(t), view, nil)
		if rapid.IntRange(0, 9).Draw(t, "poor") == 0 {
			r.Funds = &placement.Funds{Wanted: 2, Had: float64(rapid.IntRange(0, 3).Draw(t, "had"))}
		}
		for _, w := range view.Workers {
			if v := placement.JudgeAt(&r, &w); v.Fits != placement.FitsAt(&r, &w) || v.Fits != (len(v.Failing) == 0) {
				t.Fatalf("%+v, without reasons %v", v, placement.FitsAt(&r, &w))
			}
		}
	})
}
