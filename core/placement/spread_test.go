package placement_test

import (
	"maps"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// TestSpreadIgnoresClosedWorkers: a worker that may not take the request is no empty place; one that is full is.
func TestSpreadIgnoresClosedWorkers(t *testing.T) {
	big := cluster.Resources{CPU: 4000, Memory: 4000}
	for name, c := range map[string]struct {
		change func(w *cluster.Record, r *placement.Request)
		skew   int
		counts bool
	}{
		"open":      {func(*cluster.Record, *placement.Request) {}, 1, true},
		"full":      {func(w *cluster.Record, _ *placement.Request) { w.Used = big }, 1, true},
		"cordoned":  {func(w *cluster.Record, _ *placement.Request) { w.State = cluster.Cordoned }, 1, false},
		"draining":  {func(w *cluster.Record, _ *placement.Request) { w.State = cluster.Draining }, 1, false},
		"reserved":  {func(w *cluster.Record, _ *placement.Request) { w.Reserved = []string{"db"} }, 1, false},
		"too small": {func(w *cluster.Record, _ *placement.Request) { w.Capacity.CPU = 50 }, 1, false},
		"elsewhere": {func(w *cluster.Record, r *placement.Request) {
			w.Region, r.Regions = "iad", []cluster.Region{"ams"}
		}, 1, false},
		"of another kind": {func(_ *cluster.Record, r *placement.Request) {
			r.Scheduling.Require = []cluster.Requirement{{Attribute: "worker", Op: cluster.NotIn,
				Values: []cluster.Value{cluster.Text("c")}}}
		}, 1, false},
		"tolerated": {func(w *cluster.Record, r *placement.Request) {
			w.Reserved, r.Scheduling.Tolerate = []string{"db"}, []string{"db"}
		}, 1, true},
		"only wished for": {func(w *cluster.Record, _ *placement.Request) { w.State = cluster.Cordoned }, 0, true},
	} {
		r := placement.Request{App: "a", Resources: cluster.Resources{CPU: 100}, Scheduling: machine.Scheduling{
			Spread: []machine.Spread{{Attribute: "worker", MaxSkew: c.skew}}}}
		var view cluster.View
		for _, id := range []cluster.WorkerID{"a", "b", "c"} {
			w := cluster.Record{Worker: id, Region: "ams", State: cluster.Ready, Capacity: big}
			if id == "c" {
				c.change(&w, &r)
			} else {
				w.Apps = map[string]int{"a": 1}
			}
			view.Workers = append(view.Workers, w)
		}
		want := map[string]int{"a": 1, "b": 1}
		if c.counts {
			want["c"] = 0
		}
		r = placement.Resolve(r, view, nil)
		if got := r.Fleet.Spread[0]; !maps.Equal(got, want) {
			t.Errorf("%s: counted %v, want %v", name, got, want)
		}
		if c.skew > 0 && placement.Judge(r, view.Workers[0]).Fits == c.counts {
			t.Errorf("%s: the next at worker a: fits %v", name, !c.counts)
		}
	}
}
