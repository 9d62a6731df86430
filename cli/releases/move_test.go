package releases

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// TestMoveProgressIsPrintedUntilItEnds: what is said while a replica moves, when that is over, and when it comes to nothing.
func TestMoveProgressIsPrintedUntilItEnds(t *testing.T) {
	w := moving{app: "shop", slot: release.Slot{Group: "web", Index: 1}, machine: "m1", from: "a", to: "b"}
	leaves := func(change ...func(*api.SlotStatus)) *api.SlotStatus {
		x := &api.SlotStatus{Index: 1, Machine: "m1", Worker: "a", Ready: true, To: "b"}
		for _, f := range change {
			f(x)
		}
		return x
	}
	comes := func(change ...func(*api.SlotStatus)) *api.SlotStatus {
		x := &api.SlotStatus{Index: 1, Machine: "m2", Worker: "b"}
		for _, f := range change {
			f(x)
		}
		return x
	}
	ready := func(x *api.SlotStatus) { x.Ready = true }
	asleep := func(x *api.SlotStatus) { x.Asleep = true }
	unfit := func(x *api.SlotStatus) { x.Unfit = "check alive" }
	at := func(worker cluster.WorkerID) func(*api.SlotStatus) {
		return func(x *api.SlotStatus) { x.Worker = worker }
	}
	to := func(worker cluster.WorkerID) func(*api.SlotStatus) {
		return func(x *api.SlotStatus) { x.To = worker }
	}
	for name, tt := range map[string]struct {
		old, next *api.SlotStatus
		text      string
		code      fault.Code // over: neither
	}{
		"begun":         {leaves(), nil, "another is to be made at b", ""},
		"refused there": {leaves(func(x *api.SlotStatus) { x.Unmade = "no room" }), nil, "at b: no room", "stays"},
		"made":          {leaves(), comes(unfit), "coming up at b: check alive", ""},
		"held":          {leaves(), comes(func(x *api.SlotStatus) { x.Held = "it dies" }), "at b: it dies", "stays"},
		"ready":         {leaves(), comes(ready), "m2 is ready at b; m1 at a goes", ""},
		"over":          {nil, comes(ready), "", ""},
		"over, asleep":  {nil, comes(asleep), "", ""},
		"went first":    {nil, nil, "it has no machine", ""},
		"and comes":     {nil, comes(), "m2 is coming up at b", ""},
		"elsewhere":     {nil, comes(ready, at("c")), "went to c instead", "elsewhere"},
		"taken back":    {leaves(to("")), nil, "no longer moves to b", "overtaken"},
		"to another":    {leaves(to("c")), comes(), "no longer moves to b", "overtaken"},
	} {
		s := api.ServiceStatus{Groups: []api.GroupStatus{{Name: "db"}, {Name: "web", Slots: []api.SlotStatus{{Index: 0,
			Machine: "m9", Ready: true}}}}}
		for _, x := range []*api.SlotStatus{tt.old, tt.next} {
			if x != nil {
				s.Groups[1].Slots = append(s.Groups[1].Slots, *x)
			}
		}
		old, next := w.find(&s)
		text, over, err := w.stands(old, next, true)
		if err != nil {
			text = err.Error()
		}
		if over != (tt.text == "") || fault.CodeOf(err) != tt.code || !strings.Contains(text, tt.text) {
			t.Errorf("%s: %q, %v, %v", name, text, over, err)
		}
	}
	if _, _, err := w.stands(leaves(to("")), nil, false); err != nil {
		t.Error("before the member that is asked has heard of it:", err)
	}
}
