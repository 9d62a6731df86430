package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// TestWalkVisitsOnlyChangedApps: the walk visits each app once whose machines or workers have changed.
func TestWalkVisitsOnlyChangedApps(t *testing.T) {
	f := fleet.New()
	walk := fleet.NewWalk(func(m *fleet.Machine) bool { return m.State != machine.Stopped },
		func(_ string, list []fleet.Seen) bool {
			return slices.ContainsFunc(list, func(m fleet.Seen) bool { return m.Name == "kept" })
		})
	expect := func(what, want string) {
		t.Helper()
		var got []string
		for _, app := range walk.Look(f.Snapshot()) {
			one := app + ":"
			for _, m := range walk.Of(app) {
				one += fmt.Sprint(" ", m.ID, " ", m.Heard)
			}
			got = append(got, one)
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %q, want %q", what, text, want)
		}
		if more := walk.Look(f.Snapshot()); len(more) > 0 {
			t.Errorf("%s: %v are told again", what, more)
		}
	}
	machineOf := func(app, id, name string, s machine.State) func(*fleet.Edit) {
		return func(e *fleet.Edit) {
			e.Machine(fleet.Machine{ID: id, App: app, Name: name, Worker: "w", State: s})
		}
	}
	f.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: "w", State: cluster.MemberAlive})
		e.Record(cluster.Record{Worker: "w"}, 1)
		machineOf("a", "a1", "kept", machine.Started)(e)
		machineOf("a", "a2", "x", machine.Started)(e)
		machineOf("a", "a3", "y", machine.Stopped)(e)
		machineOf("b", "b1", "x", machine.Started)(e)
	})
	expect("what is noted", "a: a1 true a2 true")
	f.Update(machineOf("a", "a3", "y", machine.Suspended))
	f.Update(machineOf("b", "b1", "kept", machine.Started))
	expect("two have changed", "a: a1 true a2 true a3 true, b: b1 true")
	f.Update(machineOf("b", "b2", "z", machine.Stopped))
	expect("a machine that does not count", "")
	f.Update(func(e *fleet.Edit) { e.Member(fleet.Member{ID: "w", State: cluster.MemberSuspect}) })
	expect("a worker is suspected", "")
	f.Update(func(e *fleet.Edit) { e.Member(fleet.Member{ID: "w", State: cluster.MemberDead}) })
	expect("a worker fell silent", "a: a1 false a2 false a3 false, b: b1 false")
	f.Update(machineOf("b", "b1", "x", machine.Started))
	expect("one is noted no more", "b:")
}
