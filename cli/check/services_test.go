package check

import (
	"slices"
	"testing"

	"github.com/soukhq/souk/api"
)

// TestCheckFindsSurplusReplicasOnly: what is one too many is found, and what is missing or cannot be heard is no fault.
func TestCheckFindsSurplusReplicasOnly(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots []api.SlotStatus
		want  []string
	}{
		{"as it is to be", []api.SlotStatus{{Index: 0, Machine: "a"}, {Index: 1, Machine: "b"}}, nil},
		{"one is missing", []api.SlotStatus{{Index: 0, Machine: "a"}, {Index: 1}}, nil},
		{"one is held", []api.SlotStatus{{Index: 0, Machine: "a", Held: "it dies"}}, nil},
		{"two, one unheard", []api.SlotStatus{{Index: 0, Machine: "a"}, {Index: 0, Machine: "b", Unheard: true}}, nil},
		{"two", []api.SlotStatus{{Index: 0, Machine: "a"}, {Index: 0, Machine: "b"}},
			[]string{"shop, replica 0 of group web: machines a and b stand for it"}},
		{"not wanted", []api.SlotStatus{{Index: 2, Extra: true, Machine: "a", Worker: "w1"}},
			[]string{"shop, replica 2 of group web: it is not wanted, and machine a of worker w1 stands for it"}},
	} {
		var i Invariant
		checkGroup(&i, "shop", &api.GroupStatus{Name: "web", Wanted: 2, Slots: c.slots})
		if got := i.close(); !slices.Equal(got.Evidence, c.want) || got.OK != (c.want == nil) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
