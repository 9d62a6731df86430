package policy_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/fgd"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/machine"
)

func fleet() cluster.View {
	room := cluster.Resources{CPU: 8000, Memory: 16384, Disk: 1 << 20, Ports: 100, GPU: 2000,
		Named: map[string]int64{"x": 4}}
	return cluster.View{Workers: []cluster.Record{
		{Worker: "w1", Region: "ams", State: cluster.Ready, Capacity: room, Apps: map[string]int{"a": 2},
			Images: []string{"web"},
			Attributes: cluster.Attributes{"zone": cluster.Text("a"), "price": cluster.Number(1),
				"ssd": cluster.Truth(true)}},
		{Worker: "w2", Region: "fra", State: cluster.Ready, Capacity: room,
			Used:       cluster.Resources{CPU: 4000, Memory: 8192},
			Attributes: cluster.Attributes{"zone": cluster.Number(7)}, GPUs: []cluster.GPU{{Kind: "a100", Free: 1000},
				{Kind: "t4", Free: 500}}},
		{Worker: "w3", Region: "ams", State: cluster.Cordoned},
	}}
}

func load(t testing.TB, text string) placement.Policy {
	t.Helper()
	s, err := policy.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Bind(policy.NewEvaluator())
}

func filter(t testing.TB, expr string) placement.Filter {
	t.Helper()
	return load(t, "name = 'x'\n[[filter]]\nname = 'f'\nexpr = '''"+expr+"'''\n").Filters[0]
}

func score(t testing.TB, expr string) placement.Term {
	t.Helper()
	return load(t, "name = 'x'\n[[score]]\nname = 's'\nexpr = '''"+expr+"'''\n").Terms[0]
}

// TestFiltersSelectTheExpectedWorkers says what a filter answers on w1 and w2 of the fleet: "" is yes.
func TestFiltersSelectTheExpectedWorkers(t *testing.T) {
	r := placement.Request{App: "a", Image: "web",
		Resources: cluster.Resources{Memory: 512, Named: map[string]int64{"x": 1}},
		Scheduling: machine.Scheduling{Band: machine.BandBatch, Priority: 3,
			Labels: cluster.Attributes{"team": cluster.Text("red")}}}
	view := fleet()
	for _, c := range []struct{ expr, w1, w2 string }{
		{`worker.attributes.zone == "a"`, "", `worker.attributes.zone is 7`},
		{`worker.attributes["zone"] == "b"`, `worker.attributes.zone is "a"`, `worker.attributes.zone is 7`},
		{`worker.attributes.price < 2`, "", `undefined: worker has no attribute "price"`},
		{`has(worker.attributes.price) && worker.attributes.price < 2`, "", `not so`},
		{`"price" in worker.attributes`, "", `worker.attributes is a map of 1`},
		{`worker.attributes.price < 2 || worker.region == "fra"`, "", ""},
		{`worker.region == "ams" && worker.attributes.rack == 3`, `undefined: worker has no attribute "rack"`,
			`worker.region is "fra"`},
		{`worker.attributes.zone > 3`,
			`undefined: the types do not go together; attribute zone of the worker is the text a`, ""},
		{`worker.attributes.ssd`, "", `undefined: worker has no attribute "ssd"`},
		{`worker.attributes.zone`, `undefined: it is neither true nor false but "a"`,
			`undefined: it is neither true nor false but 7`},
		{`request.labels.team == "red" && request.band == "batch" && request.priority >= 3`, "", ""},
		{`request.labels.tier == 1`, `undefined: request has no label "tier"`,
			`undefined: request has no label "tier"`},
		{`worker.apps[request.app] < 2`, `worker.apps is a map of 1, request.app is "a"`, ""},
		{`worker.apps.b == 0 && !("b" in worker.apps)`, "", ""},
		{`request.image in worker.images`, "", `request.image is "web", worker.images is an empty list`},
		{`worker.free.memory - request.memory >= 0.6 * worker.capacity.memory`, "",
			`worker.free.memory is 8192, request.memory is 512, worker.capacity.memory is 16384`},
		{`worker.free.named.x >= request.named.x && worker.free.named.y == 0`, "", ""},
		{`worker.region.matches("^[a-e]")`, "", `worker.region is "fra"`},
		{`1 / 0 > 1`, `undefined: division by zero`, `undefined: division by zero`},
		{`worker.images[3] == "web"`, `undefined: index out of bounds: 3`, `undefined: index out of bounds: 3`},
	} {
		f := filter(t, c.expr)
		for i, want := range []string{c.w1, c.w2} {
			ok, had := f.Of(&r, &view.Workers[i])
			if ok != (want == "") || had != want {
				t.Errorf("%s on %s: %v %q, want %q", c.expr, view.Workers[i].Worker, ok, had, want)
			}
		}
	}
}

// A score that is undefined, or leaves 0 to 1, counts as a number from 0 to 1 and says so with the candidate.
func TestUndefinedScoresAreClampedAndNoted(t *testing.T) {
	view := fleet()
	for _, c := range []struct {
		expr string
		want float64
		note string
	}{
		{"1 - worker.used.cpu / worker.capacity.cpu", 0.5, ""},
		{"1", 1, ""},
		{"worker.region == 'fra'", 1, ""},
		{"worker.attributes.zone / 14", 0.5, ""},
		{"1.0 / (1 + worker.attributes.price)", 0, `undefined: worker has no attribute "price"; counts 0`},
		{"worker.free.cpu / worker.backlog", 0, "undefined: it is not finite, a division by 0; counts 0"},
		{"(worker.backlog) / worker.backlog", 0, "undefined: it is not finite, a division by 0; counts 0"},
		{"worker.free.cpu", 1, "it is 4000, above 1; counts 1"},
		{"0 - worker.free.cpu", 0, "it is -4000, below 0; counts 0"},
		{"min(1, worker.free.cpu) - max(0.25, 0)", 0.75, ""},
		{"has(worker.attributes.price) ? 0.0 : 0.5", 0.5, ""},
		{"worker.attributes['zone'] == 'x' ? dyn('x') : dyn('y')", 0, `undefined: it is no number but "y"; counts 0`},
	} {
		term := score(t, c.expr)
		r := placement.Request{App: "a"}
		if got, note := term.Of(&r, &view.Workers[1]), term.Note(&r, &view.Workers[1]); got != c.want ||
			note != c.note {
			t.Errorf("%s: %v %q, want %v %q", c.expr, got, note, c.want, c.note)
		}
	}
	p := load(t, "name = 'x'\n[[score]]\nname = 'p'\nexpr = 'worker.attributes.price / "+
		"2'\n[[score]]\nname='price'\nbuiltin='price'\n")
	ranked := placement.Rank(placement.Request{}, view, p)
	want := []string{`p: undefined: worker has no attribute "price"; counts 0`,
		`price: undefined: worker has no attribute "price"`}
	if d := cmp.Diff(want, ranked[1].Notes); ranked[1].Worker != "w2" || d != "" || ranked[0].Notes != nil {
		t.Errorf("%+v: %s", ranked, d)
	}
}

// An expression that the estimate let through is cut off on a record larger than any that was thought of.
func TestExpensiveExpressionIsCutOff(t *testing.T) {
	f := filter(t, `worker.images.exists(i, i == "none of them")`)
	w := cluster.Record{}
	for i := range 20_000 {
		w.Images = append(w.Images, fmt.Sprint(i))
	}
	if ok, had := f.Of(&placement.Request{}, &w); ok || had != "undefined: it costs more than 50000 here" {
		t.Errorf("%v %q", ok, had)
	}
}

// A record that was changed in place, or another with the same address, is read as it is now.
func TestChangedRecordIsEvaluatedAgain(t *testing.T) {
	term := score(t, "worker.attributes.x + worker.free.cpu / 1000 + (worker.region == 'b' ? 0.1 : 0.0) + "+
		"worker.apps.a / 100.0 + (worker.images == ['i'] ? 0.2 : 0.0)")
	w := cluster.Record{Capacity: cluster.Resources{CPU: 100}, Attributes: cluster.Attributes{"x": cluster.Number(0.1)},
		Images: []string{"h"}}
	r := placement.Request{}
	near := func(want float64) {
		t.Helper()
		if got := term.Of(&r, &w); math.Abs(got-want) > 1e-9 {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	near(0.2)
	w.Used.CPU = 50
	near(0.15)
	w.Attributes["x"], w.Region = cluster.Number(0.2), "b"
	near(0.35)
	w.Apps = map[string]int{"a": 1}
	near(0.36)
	w.Images[0] = "i"
	near(0.56)
}

// celTerms are built-in terms written in CEL.
var celTerms = map[string]string{
	"spread":   `1 / (1 + worker.apps[request.app])`,
	"backlog":  `1000 / (1000 + max(0, worker.backlog))`,
	"starting": `1 / (1 + max(0, worker.starting))`,
	"image":    `request.image != "" && request.image in worker.images`,
	"price":    `worker.attributes.price < 0 ? 0.0 : 1 / (1 + worker.attributes.price)`,
	"region": `size(request.regions) == 0 ? 1.0 : size(request.regions) > 0 && request.regions[0] == worker.region ? 1.0 :
	           size(request.regions) > 1 && request.regions[1] == worker.region ? 1 / 2.0 : 1 / 3.0`,
	"headroom": `min(1.0, min(worker.capacity.cpu > 0 ? max(0.0, (worker.free.cpu - request.cpu) / worker.capacity.cpu) : 1.0,
	             min(worker.capacity.memory > 0 ? max(0.0, (worker.free.memory - request.memory) / worker.capacity.memory) : 1.0,
	             min(worker.capacity.disk > 0 ? max(0.0, (worker.free.disk - request.disk) / worker.capacity.disk) : 1.0,
	             min(worker.capacity.ports > 0 ? max(0.0, (worker.free.ports - request.ports) / worker.capacity.ports) : 1.0,
	                 worker.capacity.gpu > 0 && request.gpu > 0 ? max(0.0, (worker.free.gpu - request.gpu) / worker.capacity.gpu) : 1.0)))))`,
}

var resources = rapid.Custom(func(t *rapid.T) cluster.Resources {
	n := func(name string) int64 { return rapid.Int64Range(0, 20_000).Draw(t, name) }
	return cluster.Resources{CPU: n("cpu"), Memory: n("memory"), Disk: n("disk"), Ports: n("ports"), GPU: n("gpu")}
})

var record = rapid.Custom(func(t *rapid.T) cluster.Record {
	w := cluster.Record{State: cluster.Ready, Capacity: resources.Draw(t, "capacity"), Used: resources.Draw(t, "used")}
	w.Worker = cluster.WorkerID(rapid.StringMatching("w[0-9]{1,3}").Draw(t, "id"))
	w.Region = rapid.SampledFrom([]cluster.Region{"ams", "fra", "iad"}).Draw(t, "region")
	w.Starting = rapid.IntRange(0, 5).Draw(t, "starting")
	w.Backlog = rapid.Int64Range(0, 1e6).Draw(t, "backlog")
	w.Images = rapid.SliceOfN(rapid.SampledFrom([]string{"web", "db"}), 0, 2).Draw(t, "images")
	w.Apps = rapid.MapOf(rapid.SampledFrom([]string{"a", "b"}), rapid.IntRange(0, 9)).Draw(t, "apps")
	if rapid.Bool().Draw(t, "priced") {
		w.Attributes = cluster.Attributes{"price": cluster.Number(rapid.Float64Range(-1, 10).Draw(t, "price"))}
	}
	return w
})

// TestCELTermsEqualGoTerms: a built-in term and the same in CEL agree on every request and record.
func TestCELTermsEqualGoTerms(t *testing.T) {
	for _, b := range placement.Builtins() {
		expr, written := celTerms[b.Name]
		if !written {
			continue
		}
		term := score(t, expr)
		rapid.Check(t, func(t *rapid.T) {
			r := placement.Request{App: rapid.SampledFrom([]string{"a", "c"}).Draw(t, "app"),
				Image:     rapid.SampledFrom([]string{"", "web"}).Draw(t, "image"),
				Resources: resources.Draw(t, "wants"),
				Regions: rapid.SampledFrom([][]cluster.Region{nil, {"fra"}, {"iad", "ams", "fra"},
					{"ams", "iad", "fra"}}).Draw(t, "regions")}
			w := record.Draw(t, "worker")
			if b.Name == "region" && len(r.Regions) == 1 {
				w.Region = "fra" // elsewhere the judge says no, and no term is asked
			}
			if got, want := term.Of(&r, &w), b.Of(&r, &w); math.Abs(got-want) > 1e-12 {
				t.Fatalf("%s: CEL says %v, Go %v", b.Name, got, want)
			}
		})
	}
}

// The shipped policies load, spread is the default, and every value lies from 0 to 1.
func TestBuiltinPoliciesLoadAndScoreZeroToOne(t *testing.T) {
	names := []string{}
	for _, s := range policy.Builtins() {
		names = append(names, s.Name)
		if s.Name == policy.DefaultName {
			got, want := placement.Rank(placement.Request{App: "a"}, fleet(), s.Bind(nil)),
				placement.Rank(placement.Request{App: "a"}, fleet(), placement.Default())
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("spread is not the default: %s", d)
			}
		}
		if !s.Shared() || s.Description == "" {
			t.Errorf("%s cannot be shared, or says nothing of itself", s.Name)
		}
		p := s.Bind(nil)
		rapid.Check(t, func(t *rapid.T) {
			r, w := placement.Request{App: "a", Image: "web", Resources: resources.Draw(t, "wants")},
				record.Draw(t, "worker")
			for _, term := range p.Terms {
				if x := term.Of(&r, &w); !(x >= 0 && x <= 1) {
					t.Fatalf("%s: %s is %v", s.Name, term.Name, x)
				}
			}
		})
	}
	if got := strings.Join(names, " "); got != "binpack cheap-latency gpu-fragmentation least-waiting spread" {
		t.Errorf("shipped are %s", got)
	}
}

// The built-in gpu-fragmentation scores as FGD does on its own types.
func TestGPUFragmentationPolicyScoresAsFGD(t *testing.T) {
	p := load(t, "name='x'\n[[score]]\nname='f'\nbuiltin='gpu-fragmentation'\n[[typical]]\nshare=3\ncpu=4000\ngpu=500\n[[typical]]\nshare=1\ncpu=8000\ngpu=2000\n")
	of := fgd.FGD([]fgd.Typical{{Demand: fgd.Demand{CPU: 4000, GPUs: 1, Milli: 500}, Share: 0.75},
		{Demand: fgd.Demand{CPU: 8000, GPUs: 2, Milli: 1000}, Share: 0.25}})
	rapid.Check(t, func(t *rapid.T) {
		w := fgd.Worker{CPU: 16_000, Mem: 1 << 16, CPUCap: 32_000, MemCap: 1 << 16,
			GPUs: rapid.Int32Range(1, 8).Draw(t, "gpus")}
		rec := cluster.Record{State: cluster.Ready, Capacity: cluster.Resources{CPU: 32_000, Memory: 1 << 16,
			GPU: int64(w.GPUs) * 1000},
			Used: cluster.Resources{CPU: 16_000}}
		for i := range w.GPUs {
			w.Left[i] = rapid.Int32Range(0, 10).Draw(t, "left") * 100
			rec.GPUs = append(rec.GPUs, cluster.GPU{Kind: "t4", Free: int64(w.Left[i])})
			rec.Used.GPU += 1000 - int64(w.Left[i])
		}
		gpu := rapid.SampledFrom([]int64{0, 300, 500, 1000, 2000}).Draw(t, "gpu")
		d := fgd.Demand{CPU: 4000, Mem: 100, GPUs: int32((gpu + 999) / 1000), Milli: int32(min(gpu, 1000))}
		r := placement.Request{Resources: cluster.Resources{CPU: 4000, Memory: 100, GPU: gpu}, GPUKind: "t4"}
		if !w.Fits(&d) {
			return
		}
		want, _ := of.Score(&w, &d)
		if got := p.Terms[0].Of(&r, &rec); got != want/100 || !placement.Judge(r, rec).Fits {
			t.Fatalf("got %v, want %v of %+v", got, want/100, w)
		}
	})
}
