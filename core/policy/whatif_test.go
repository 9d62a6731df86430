package policy_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/core/policy/whatif"
	"github.com/soukhq/souk/machine"
)

func always(p placement.Policy) whatif.Chooser {
	return func(*placement.Request) *placement.Policy { return &p }
}

// TestPlanTellsMovesRefusalsAndEvictions: a plan lists the moves, the refusals, and the victims that preempting
// machines would evict.
func TestPlanTellsMovesRefusalsAndEvictions(t *testing.T) {
	room := cluster.Resources{CPU: 4000, Memory: 4096}
	view := cluster.View{Workers: []cluster.Record{
		{Worker: "w1", Region: "ams", State: cluster.Ready, Capacity: room,
			Used: cluster.Resources{CPU: 3000, Memory: 3072}, Machines: 3, Apps: map[string]int{"a": 2, "b": 1}},
		{Worker: "w2", Region: "fra", State: cluster.Ready, Capacity: room,
			Used: cluster.Resources{CPU: 4000, Memory: 3072}, Machines: 1,
			Evictable: []cluster.Evictable{{Rank: 0, Resources: cluster.Resources{CPU: 4000, Memory: 3072},
				Machines: 4}}},
		{Worker: "w3", Region: "fra", State: cluster.Ready, Capacity: room},
	}}
	one := cluster.Resources{CPU: 1000, Memory: 1024}
	placed := []whatif.Placed{
		{Request: placement.Request{App: "a", Machine: "m1", Resources: one}, Worker: "w1"},
		{Request: placement.Request{App: "a", Machine: "m2", Resources: one}, Worker: "w1"},
		{Request: placement.Request{App: "b", Machine: "m3", Resources: cluster.Resources{CPU: 4000, Memory: 4096},
			Scheduling: machine.Scheduling{Band: machine.BandService}}, Worker: "w3"},
		{Request: placement.Request{App: "c", Machine: "m4", Resources: one}, Worker: "gone"},
	}
	view.Workers[2].Used = placed[2].Request.Resources
	then := load(t, "name = 'p'\n[[filter]]\nname = 'not-w3'\nexpr = 'worker.id != \"w3\" && worker.region == "+
		"\"fra\" || request.app == \"a\"'\n[[score]]\nname = 's'\nbuiltin = 'packed'\n")
	before := fmt.Sprint(view)
	got, err := whatif.Compare(nil, view, placed, always(placement.Default()), always(then))
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
	if len(m.Evicts) != 1 || m.Evicts[0] != (whatif.Evicted{Worker: "w2", Rank: 0, Machines: 4}) {
		t.Errorf("it would evict %+v", m.Evicts)
	}
	back := whatif.Replay([]whatif.Decided{{Request: placed[0].Request, View: view, Winner: "w3"}},
		always(placement.Default()))
	if back.Compared != 1 || len(back.Moves) != 1 || back.Moves[0].New != "w1" {
		t.Errorf("replayed: %+v", back)
	}
}

// A policy compared with itself moves nothing, and a plan says what Best says of each machine.
func TestPlanOfTheSamePolicyMovesNothing(t *testing.T) {
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
		var placed []whatif.Placed
		for i := range rapid.IntRange(0, 5).Draw(t, "machines") {
			placed = append(placed, whatif.Placed{Worker: rapid.SampledFrom(view.Workers).Draw(t, "on").Worker,
				Request: placement.Request{App: "a", Machine: fmt.Sprint(i), Resources: resources.Draw(t, "has")}})
		}
		if same, _ := whatif.Compare(nil, view, placed, always(p), always(p)); same.Same != len(placed) ||
			same.Compared != len(placed) {
			t.Fatalf("%+v", same)
		}
		diff, _ := whatif.Compare(nil, view, placed, always(p), always(q))
		if diff.Same+len(diff.Moves)+len(diff.Nowhere) != diff.Compared {
			t.Fatalf("%+v", diff)
		}
	})
}

// Taking a machine out of a record and putting it back leaves the sums as they were.
func TestWithoutAndBackLeavesTheSums(t *testing.T) {
	w := cluster.Record{Used: cluster.Resources{CPU: 3, GPU: 1500}, Machines: 2, Apps: map[string]int{"a": 1},
		GPUs: []cluster.GPU{{Kind: "t4", Free: 500}, {Kind: "a100", Free: 0}, {Kind: "t4", Free: 1000}}}
	got := whatif.Without(w, &placement.Request{App: "a", Resources: cluster.Resources{CPU: 1, GPU: 500},
		GPUKind: "t4"})
	if got.Used.CPU != 2 || got.Machines != 1 || len(got.Apps) != 0 || got.GPUs[0].Free != 1000 ||
		w.GPUs[0].Free != 500 || w.Apps["a"] != 1 {
		t.Errorf("%+v of %+v", got, w)
	}
}
