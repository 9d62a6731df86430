package rollout

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// slotOf is a machine of a slot that serves.
func slotOf(index int, change ...func(m *release.Standing)) release.Standing {
	m := release.Standing{ID: fmt.Sprint("m", index), Worker: cluster.WorkerID(fmt.Sprint("w", index)),
		State: machine.Started,
		Ready: true, Replica: machine.Replica{Group: "web", Index: index, Spec: "s"}}
	for _, f := range change {
		f(&m)
	}
	return m
}

// TestScaleDownKeepsTheMostMissedSlots: where fewer are wanted those stay that would be missed most.
func TestScaleDownKeepsTheMostMissedSlots(t *testing.T) {
	load := func(n int) func(m *release.Standing) { return func(m *release.Standing) { m.Load = n } }
	at := func(w cluster.WorkerID) func(m *release.Standing) { return func(m *release.Standing) { m.Worker = w } }
	died := func(m *release.Standing) { m.State, m.Died, m.Ready = machine.Stopped, true, false }
	sleeps := func(m *release.Standing) { m.State, m.Rests, m.Ready = machine.Stopped, true, false }
	for _, tt := range []struct {
		name string
		n    int
		has  []release.Standing
		want []int
	}{
		{"none", 3, nil, []int{0, 1, 2}},
		{"all that stand", 3, []release.Standing{slotOf(1), slotOf(5), slotOf(7)}, []int{1, 5, 7}},
		{"and the lowest free", 4, []release.Standing{slotOf(1), slotOf(5)}, []int{0, 1, 2, 5}},
		{"equal ones", 2, []release.Standing{slotOf(0), slotOf(1), slotOf(2)}, []int{0, 1}},
		{"a busy one", 2, []release.Standing{slotOf(0), slotOf(1, load(1)), slotOf(2), slotOf(3, load(3))},
			[]int{1, 3}},
		{"one that is dead", 2, []release.Standing{slotOf(0, died, load(9)), slotOf(1), slotOf(2)}, []int{1, 2}},
		{"one that rests", 2, []release.Standing{slotOf(0, sleeps), slotOf(1), slotOf(2)}, []int{1, 2}},
		{"one that is dead, one that rests", 1, []release.Standing{slotOf(0, died), slotOf(1, sleeps)}, []int{1}},
		{"one that takes no request", 1, []release.Standing{slotOf(0,
			func(m *release.Standing) { m.Cordoned = true }), slotOf(1)},
			[]int{1}},
		{"one that is not heard", 1, []release.Standing{slotOf(0, func(m *release.Standing) { m.Unheard = true }),
			slotOf(1)},
			[]int{1}},
		{"another release", 1, []release.Standing{slotOf(0, func(m *release.Standing) { m.Spec = "old" }, load(2)),
			slotOf(1)},
			[]int{1}},
		{"two machines of a slot", 1, []release.Standing{slotOf(0, load(2)), slotOf(1, load(1)),
			slotOf(1, load(3), func(m *release.Standing) { m.ID = "twin" })}, []int{1}},
		{"the fullest worker", 2, []release.Standing{slotOf(0, at("a")), slotOf(1, at("a")), slotOf(2, at("b"))},
			[]int{0, 2}},
		{"each worker in turn", 2, []release.Standing{slotOf(0, at("a")), slotOf(1, at("a")), slotOf(2, at("a")),
			slotOf(3, at("b")), slotOf(4, at("b"))}, []int{0, 3}},
		{"a run is none", 1, []release.Standing{slotOf(3,
			func(m *release.Standing) { m.Run = machine.RunScheduled })}, []int{0}},
		{"no more", 0, []release.Standing{slotOf(0, load(1))}, []int{}},
	} {
		if got := WantedSlots("web", "s", tt.n, tt.has); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestScaleDownKeepsTheBusiestSlots: so many are chosen, all that stand where that is no more, and none that is left out serves more
// requests than one that stays.
func TestScaleDownKeepsTheBusiestSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		has := map[int]release.Standing{}
		for range rapid.IntRange(0, 8).Draw(t, "machines") {
			index := rapid.IntRange(0, 9).Draw(t, "index")
			has[index] = slotOf(index, func(m *release.Standing) {
				m.Load = rapid.IntRange(0, 3).Draw(t, "load")
				m.Worker = rapid.SampledFrom(workers).Draw(t, "worker")
			})
		}
		var standing []release.Standing
		for index := range 10 {
			if m, is := has[index]; is {
				standing = append(standing, m)
			}
		}
		n := rapid.IntRange(0, 10).Draw(t, "wanted")
		got := WantedSlots("web", "s", n, standing)
		if len(got) != n || len(slices.Compact(slices.Clone(got))) != n || !slices.IsSorted(got) {
			t.Fatalf("%v of %d", got, n)
		}
		for index, m := range has {
			if slices.Contains(got, index) {
				continue
			}
			if len(has) <= n {
				t.Fatalf("%d stands, and is not among %v", index, got)
			}
			for _, stays := range got {
				if x, is := has[stays]; !is || x.Load < m.Load {
					t.Fatalf("%d, with %d requests, goes, and %d stays: %v", index, m.Load, stays, x)
				}
			}
		}
	})
}

// TestScaleDownRemovesIdleMachines: a smaller service, scaled by hand or automatically, loses its idle machines; later
// load changes or another steward do not choose others.
func TestScaleDownRemovesIdleMachines(t *testing.T) {
	for _, by := range []string{"hand", "a release"} {
		w := newWorld(map[string]int{"web": 6})
		w.settle(t)
		busy := map[int]bool{2: true, 5: true}
		for _, m := range w.machines {
			if busy[m.Index] {
				m.Load = 1
			}
		}
		if by == "hand" {
			w.scale("web", 2)
		} else {
			w.deploy("two", map[string]int{"web": 2})
		}
		p := Foresee(w.now, &w.want, w.standing())
		for _, r := range p.Groups[0].Replicas {
			if goes := r.Does == release.Destroy; goes == busy[r.Slot.Index] {
				t.Errorf("by %s: the plan says %s %s", by, r.Does, r.Slot)
			}
		}
		w.step(t)
		for _, m := range w.machines {
			m.Load = map[bool]int{true: 0, false: 3}[busy[m.Index]]
		}
		w.settle(t)
		left := func() (out []int) {
			for _, m := range w.machines {
				out = append(out, m.Index)
			}
			slices.Sort(out)
			return out
		}
		if got := left(); !slices.Equal(got, []int{2, 5}) {
			t.Errorf("by %s: %v are left", by, got)
		}
		w.steward = NewSteward(cluster.Term{Number: w.term})
		w.settle(t)
		if got := left(); !slices.Equal(got, []int{2, 5}) {
			t.Errorf("by %s: %v are left to another steward", by, got)
		}
		w.scale("web", 3)
		w.settle(t)
		if got := left(); !slices.Equal(got, []int{0, 2, 5}) {
			t.Errorf("by %s: %v are there when one more is wanted", by, got)
		}
	}
}
