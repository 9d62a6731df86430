package market_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestRefusalAdvisesLessOnlyForLackOfRoom: a refusal advises to ask for less only where room is missing.
func TestRefusalAdvisesLessOnlyForLackOfRoom(t *testing.T) {
	worker := cluster.Record{Worker: "w1", Region: "iad", State: cluster.Ready, Incarnation: 1, Version: 1,
		Capacity:   cluster.Resources{CPU: 1000, Memory: 1000},
		Attributes: cluster.Attributes{"rack": cluster.Text("r1")}}
	require := func(text string) machine.Scheduling {
		q, err := cluster.ParseRequirement(text)
		if err != nil {
			t.Fatal(err)
		}
		return machine.Scheduling{Require: []cluster.Requirement{q}}
	}
	none := placement.Policy{Name: "none", Filters: []placement.Filter{{Name: "never",
		Wanted: "another", Of: func(*placement.Request, *cluster.Record) (bool, string) { return false, "this one" }}}}
	for name, x := range map[string]struct {
		request placement.Request
		policy  placement.Policy
		want    string
	}{
		"room": {placement.Request{Resources: cluster.Resources{CPU: 2000}}, placement.Default(),
			"add a larger worker"},
		"misspelt": {placement.Request{Scheduling: require("rakc == r1")}, placement.Default(),
			`did you mean "rack"?`},
		"attribute": {placement.Request{Scheduling: require("zone == a")}, placement.Default(),
			"no worker has the attribute zone"},
		"value": {placement.Request{Scheduling: require("rack == r2")}, placement.Default(),
			"change the requirement"},
		"near": {placement.Request{Scheduling: machine.Scheduling{Affinity: []machine.Affinity{{App: "nope"}}}},
			placement.Default(), "start what it must be near to first"},
		"both": {placement.Request{Scheduling: require("rack == r2"), Resources: cluster.Resources{CPU: 2000}},
			placement.Default(), "change the requirement"},
		"policy": {placement.Request{}, none, "choose another policy"},
	} {
		t.Run(name, func(t *testing.T) {
			view := cluster.View{Workers: []cluster.Record{worker}}
			x.request.App, x.request.Machine = "a", "d891275c2e5118"
			b := market.NewBuyer(placement.Resolve(x.request, view, nil), view, x.policy)
			out := b.Step(market.In{})
			if !out.Done || out.Err == nil {
				t.Fatalf("%+v", out)
			}
			text := fault.As(out.Err).Text
			if !strings.Contains(text, x.want) || (name != "room" && strings.Contains(text, "ask for less")) {
				t.Errorf("%s", text)
			}
		})
	}
}
