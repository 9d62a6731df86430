package rollout

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// TestAMachineWithoutChecksSoaks: the old one goes once the new one has been up for a while without a break; where there
// are checks it goes when they pass.
func TestAMachineWithoutChecksSoaks(t *testing.T) {
	for _, checks := range []bool{false, true} {
		r := release("two", map[string]int{"web": 1})
		if checks {
			r.Groups[0].Config.Checks = map[string]machine.CheckConfig{"c": {}}
		}
		want := &Want{App: "a", Release: r, Head: next(t, nil, Change{Release: r.ID()}, r, nil)}
		now := time.Unix(1e9, 0)
		standing := []Standing{{ID: "old", State: machine.Started, Ready: true,
			Replica: machine.Replica{Group: "web", Spec: "old"}}, {ID: "new", State: machine.Started, Ready: true,
			Replica: machine.Replica{Group: "web", Spec: r.Spec(&r.Groups[0], 0), Epoch: 1}}}
		s := NewSteward(cluster.Term{})
		s.Begin(cluster.Term{Number: 1, Member: "m"})
		removes := func(after time.Duration, ready bool) bool {
			now = now.Add(after)
			standing[1].Ready = ready
			return len(s.Step(now, want, standing).Orders) == 1
		}
		if got := removes(0, true); got != checks {
			t.Errorf("checks %v: the old one goes at once: %v", checks, got)
		}
		if checks {
			continue
		}
		if removes(soakFor-1, true) || removes(1, false) || removes(soakFor, true) || removes(soakFor-1, true) {
			t.Error("the old one goes before the new one was up for long enough")
		}
		if !removes(1, true) {
			t.Error("the old one stays")
		}
	}
}
