package policy_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/policy"
)

func source(t testing.TB, text string) *policy.Source {
	t.Helper()
	s, err := policy.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// numbered is a policy that differs from others by n only.
func numbered(t testing.TB, n int) *policy.Source {
	return source(t, fmt.Sprintf("name = 'p'\n[[score]]\nname = 's'\nweight = %d\nbuiltin = 'region'\n", n))
}

func TestShelf(t *testing.T) {
	var s policy.Shelf
	at := time.Unix(1, 0)
	weight := func() string {
		live, _ := s.Live("p")
		return strings.Fields(strings.Split(live.Text, "weight = ")[1])[0]
	}
	put := func(v policy.Version) {
		for _, old := range s.Excess(v.Policy) {
			s.Remove(old.Policy, old.Number)
		}
		s.Put(v)
	}
	apply := func(n int) int {
		t.Helper()
		v, isNew, err := s.Next(numbered(t, n), at)
		if err != nil {
			t.Fatal(err)
		}
		if isNew {
			put(v)
		}
		return v.Number
	}
	back := func(to int) (policy.Version, error) {
		v, err := s.Rollback("p", to, at)
		if err == nil {
			put(v)
		}
		return v, err
	}
	if _, err := back(0); !fault.Is(err, fault.NotFound) {
		t.Errorf("rolling back nothing gave %v", err)
	}
	if a, b, c := apply(1), apply(2), apply(2); a != 1 || b != 2 || c != 2 {
		t.Errorf("versions %d %d %d: the same text makes no new version", a, b, c)
	}
	apply(3)
	for want, number := 2, 4; want >= 1; want, number = want-1, number+1 { // rolling back twice goes back twice
		if v, err := back(0); err != nil || v.Number != number || v.Of != want || weight() != fmt.Sprint(want) {
			t.Errorf("got %+v, %v, want version %d of %d", v, err, number, want)
		}
	}
	if _, err := back(0); fault.CodeOf(err) != "no_earlier_version" {
		t.Errorf("rolling back the first gave %v", err)
	}
	if v, err := back(3); err != nil || v.Number != 6 || v.Of != 3 || weight() != "3" {
		t.Errorf("back to 3 gave %+v, %v", v, err)
	}
	if _, err := back(99); fault.CodeOf(err) != "policy_version" {
		t.Errorf("back to a version that never was gave %v", err)
	}
	for i := range 40 {
		apply(i)
	}
	if list := s.Versions("p"); len(list) != policy.MaxVersions || list[0].Number != list[len(list)-1].Number-policy.MaxVersions+1 {
		t.Errorf("%d versions are kept", len(list))
	}
	for i := range policy.MaxPolicies + 1 {
		src := source(t, fmt.Sprintf("name = 'p%d'\n[[score]]\nname = 's'\nbuiltin = 'region'\n", i))
		v, _, err := s.Next(src, at)
		if full := i >= policy.MaxPolicies-1; full != fault.Is(err, fault.Exhausted) {
			t.Errorf("policy %d: %v", i, err)
		}
		if err == nil {
			s.Put(v)
		}
	}
}

func TestDiff(t *testing.T) {
	from := source(t, "name = 'p'\nsample = 10\n[[filter]]\nname = 'zone'\nexpr = 'worker.region == \"a\"'\n[[score]]\nname = 's'\nweight = 2\nbuiltin = 'region'\n")
	to := source(t, "name = 'p'\n# a comment\nstrategy = 'race'\n[[score]]\nname = 's'\nweight = 3\nbuiltin = 'region'\n[[score]]\nname = 'new'\nexpr = '1'\n")
	var got []string
	for _, c := range policy.Changes(from, to) {
		got = append(got, c.String())
	}
	want := "- filter zone: worker.region == \"a\"\n~ score s: 2 * region -> 3 * region\n+ score new: 1 * (1)\n~ sample: 10 -> 0\n~ strategy: direct -> race"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s", s)
	}
	golden(t, filepath.Join("testdata", "diff.txt"), policy.TextDiff("p version 1", from.Text, "p version 2", to.Text))
	if policy.TextDiff("a", "x", "a", "x") != "" || len(policy.Changes(to, to)) != 0 {
		t.Error("a policy differs from itself")
	}
}

func always(p placement.Policy) policy.Chooser {
	return func(*placement.Request) *placement.Policy { return &p }
}

// A plan tells who would go where, who nowhere, and whom those who may preempt would evict.
func TestPlan(t *testing.T) {
	room := cluster.Resources{CPU: 4000, Memory: 4096}
	view := cluster.View{Workers: []cluster.Record{
		{Worker: "w1", Region: "ams", State: cluster.Ready, Capacity: room, Used: cluster.Resources{CPU: 3000, Memory: 3072}, Machines: 3, Apps: map[string]int{"a": 2, "b": 1}},
		{Worker: "w2", Region: "fra", State: cluster.Ready, Capacity: room, Used: cluster.Resources{CPU: 4000, Memory: 3072}, Machines: 1,
			Evictable: []cluster.Evictable{{Rank: 0, Resources: cluster.Resources{CPU: 4000, Memory: 3072}, Machines: 4}}},
		{Worker: "w3", Region: "fra", State: cluster.Ready, Capacity: room},
	}}
	one := cluster.Resources{CPU: 1000, Memory: 1024}
	placed := []policy.Placed{
		{Request: placement.Request{App: "a", Machine: "m1", Resources: one}, Worker: "w1"},
		{Request: placement.Request{App: "a", Machine: "m2", Resources: one}, Worker: "w1"},
		{Request: placement.Request{App: "b", Machine: "m3", Resources: cluster.Resources{CPU: 4000, Memory: 4096}, Scheduling: machine.Scheduling{Band: machine.BandService}}, Worker: "w3"},
		{Request: placement.Request{App: "c", Machine: "m4", Resources: one}, Worker: "gone"},
	}
	view.Workers[2].Used = placed[2].Request.Resources
	then := load(t, "name = 'p'\n[[filter]]\nname = 'not-w3'\nexpr = 'worker.id != \"w3\" && worker.region == \"fra\" || request.app == \"a\"'\n[[score]]\nname = 's'\nbuiltin = 'packed'\n")
	before := fmt.Sprint(view)
	got, err := policy.NewPlan(nil, view, placed, always(placement.Default()), always(then))
	if err != nil || fmt.Sprint(view) != before {
		t.Error("the view was changed, or", err)
	}
	if got.Compared != 3 || got.Same != 2 || len(got.Moves) != 0 || len(got.Nowhere) != 1 {
		t.Fatalf("%+v", got)
	}
	m := got.Nowhere[0]
	if m.Machine != "m3" || m.Old != "w3" || m.Is != "w3" || len(m.Why) != 1 || m.Why[0].Code != placement.CodePolicy {
		t.Errorf("%+v", m)
	}
	if len(m.Evicts) != 1 || m.Evicts[0] != (policy.Evicted{Worker: "w2", Rank: 0, Machines: 4}) {
		t.Errorf("it would evict %+v", m.Evicts)
	}
	back := policy.Replay([]policy.Decided{{Request: placed[0].Request, View: view, Winner: "w3"}}, always(placement.Default()))
	if back.Compared != 1 || len(back.Moves) != 1 || back.Moves[0].New != "w1" {
		t.Errorf("replayed: %+v", back)
	}
}

// A policy compared with itself moves nothing, and a plan says what Best says of each machine.
func TestPlanOfItself(t *testing.T) {
	builtins := policy.Builtins()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(builtins).Draw(t, "policy").Bind(nil)
		q := rapid.SampledFrom(builtins).Draw(t, "other").Bind(nil)
		view := cluster.View{}
		for i := range rapid.IntRange(1, 5).Draw(t, "workers") {
			w := record.Draw(t, "worker")
			w.Worker = cluster.WorkerID(fmt.Sprintf("w%d", i))
			view.Workers = append(view.Workers, w)
		}
		var placed []policy.Placed
		for i := range rapid.IntRange(0, 5).Draw(t, "machines") {
			placed = append(placed, policy.Placed{Worker: rapid.SampledFrom(view.Workers).Draw(t, "on").Worker,
				Request: placement.Request{App: "a", Machine: fmt.Sprint(i), Resources: resources.Draw(t, "has")}})
		}
		if same, _ := policy.NewPlan(nil, view, placed, always(p), always(p)); same.Same != len(placed) || same.Compared != len(placed) {
			t.Fatalf("%+v", same)
		}
		diff, _ := policy.NewPlan(nil, view, placed, always(p), always(q))
		if diff.Same+len(diff.Moves)+len(diff.Nowhere) != diff.Compared {
			t.Fatalf("%+v", diff)
		}
	})
}

// Taking a machine out of a record and putting it back leaves the sums as they were.
func TestWithout(t *testing.T) {
	w := cluster.Record{Used: cluster.Resources{CPU: 3, GPU: 1500}, Machines: 2, Apps: map[string]int{"a": 1},
		GPUs: []cluster.GPU{{Kind: "t4", Free: 500}, {Kind: "a100", Free: 0}, {Kind: "t4", Free: 1000}}}
	got := policy.Without(w, &placement.Request{App: "a", Resources: cluster.Resources{CPU: 1, GPU: 500}, GPUKind: "t4"})
	if got.Used.CPU != 2 || got.Machines != 1 || len(got.Apps) != 0 || got.GPUs[0].Free != 1000 || w.GPUs[0].Free != 500 || w.Apps["a"] != 1 {
		t.Errorf("%+v of %+v", got, w)
	}
}
