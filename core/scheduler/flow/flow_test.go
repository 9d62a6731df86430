package flow_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/scheduler/flow"
)

// TestPenaltiesMatchGoldenFile prints CoCo's table and holds it against the file.
func TestPenaltiesMatchGoldenFile(t *testing.T) {
	var b strings.Builder
	all := []flow.Class{flow.Turtle, flow.Sheep, flow.Rabbit, flow.Devil}
	fmt.Fprintf(&b, "%-8s%8s%8s%8s%8s\n", "", all[0], all[1], all[2], all[3])
	for _, c := range all {
		fmt.Fprintf(&b, "%-8s", c)
		for _, o := range all {
			fmt.Fprintf(&b, "%8d", c.Penalty(o))
		}
		b.WriteByte('\n')
	}
	for _, n := range [][4]int{{}, {1, 0, 0, 0}, {0, 0, 0, 1}, {1, 1, 1, 1}, {0, 0, 0, 8}} {
		fmt.Fprintf(&b, "beside %v on 8 slots:", n)
		for _, c := range all {
			fmt.Fprintf(&b, " %s %d", c, flow.CoCo(c, n, 8))
		}
		b.WriteByte('\n')
	}
	want, err := os.ReadFile(filepath.Join("testdata", "coco.golden"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("the table differs (-want +got):\n%s", d)
	}
}

func TestQuincyCostsMatchHandComputation(t *testing.T) {
	d := flow.Data{Total: 10, OnWorker: 1, OnRack: 4}
	if d.Moved() != 4+2*5 || flow.Wait(7) != 4 {
		t.Errorf("moved %d, a wait of 7 s costs %d", d.Moved(), flow.Wait(7))
	}
}

func network(t testing.TB, m flow.Model, workers, slots int) *flow.Network {
	t.Helper()
	n, err := flow.New(m)
	if err != nil {
		t.Fatal(err)
	}
	for range workers {
		if _, err := n.AddWorker(slots); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func add(t testing.TB, n *flow.Network, k flow.Task) int {
	t.Helper()
	i, err := n.AddTask(k)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func schedule(t testing.TB, n *flow.Network) []flow.Change {
	t.Helper()
	c, err := n.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLoadSpreadingPlacesTasksEvenly places tasks evenly, moves none that has a place, and leaves over what there is no slot for.
func TestLoadSpreadingPlacesTasksEvenly(t *testing.T) {
	n := network(t, flow.LoadSpreading, 4, 3)
	for range 8 {
		add(t, n, flow.Task{Unscheduled: 100})
	}
	count := map[int]int{}
	for _, c := range schedule(t, n) {
		count[c.To]++
	}
	if d := cmp.Diff(map[int]int{0: 2, 1: 2, 2: 2, 3: 2}, count); d != "" {
		t.Error(d)
	}
	for range 6 {
		add(t, n, flow.Task{Unscheduled: 100})
	}
	left := 0
	for _, c := range schedule(t, n) {
		if c.From >= 0 {
			t.Errorf("task %d was moved from %d to %d", c.Task, c.From, c.To)
		}
	}
	for i := range 14 {
		if n.On(i) < 0 {
			left++
		}
	}
	if left != 2 {
		t.Errorf("%d tasks have no slot, want 2", left)
	}
}

// TestQuincyPrefersLocalData, unless waiting for the slot costs more than moving the data.
func TestQuincyPrefersLocalData(t *testing.T) {
	n := network(t, flow.Quincy, 2, 1)
	a := add(t, n, flow.Task{Anywhere: 10, Unscheduled: 50, Prefers: map[int]int64{1: 1}})
	b := add(t, n, flow.Task{Anywhere: 3, Unscheduled: 50, Prefers: map[int]int64{1: 0}})
	schedule(t, n)
	if n.On(a) != 1 || n.On(b) != 0 || n.Cost() != 4 {
		t.Errorf("a on %d, b on %d, cost %d", n.On(a), n.On(b), n.Cost())
	}
	if err := n.SetUnscheduled(b, 0); err != nil {
		t.Fatal(err)
	}
	schedule(t, n)
	if n.On(b) != -1 || n.On(a) != 1 {
		t.Errorf("a on %d, b on %d", n.On(a), n.On(b))
	}
}

// TestInterferingTasksAreKeptApart: the next rabbit goes beside the turtle, and the next devil too, rather than to each other.
func TestInterferingTasksAreKeptApart(t *testing.T) {
	n := network(t, flow.Interfering, 2, 4)
	devil := add(t, n, flow.Task{Class: flow.Devil, Unscheduled: 5000})
	schedule(t, n)
	rabbit := add(t, n, flow.Task{Class: flow.Rabbit, Unscheduled: 5000})
	schedule(t, n)
	if n.On(devil) < 0 || n.On(rabbit) < 0 || n.On(devil) == n.On(rabbit) {
		t.Errorf("devil on %d, rabbit on %d", n.On(devil), n.On(rabbit))
	}
}

// TestSlotsAreNeverExceeded draws rounds of arrivals and ends: no worker has more tasks than slots, every task has one place,
// and the changes say what changed.
func TestSlotsAreNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, err := flow.New(rapid.SampledFrom([]flow.Model{flow.LoadSpreading, flow.Quincy, flow.Interfering}).Draw(t,
			"model"))
		if err != nil {
			t.Fatal(err)
		}
		slots := []int{}
		for range rapid.IntRange(1, 4).Draw(t, "workers") {
			k := rapid.IntRange(1, 3).Draw(t, "slots")
			slots = append(slots, k)
			if _, err := n.AddWorker(k); err != nil {
				t.Fatal(err)
			}
		}
		on := map[int]int{}
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for i := range on {
				if rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
					if err := n.RemoveTask(i); err != nil {
						t.Fatal(err)
					}
					delete(on, i)
				}
			}
			for range rapid.IntRange(0, 5).Draw(t, "arrivals") {
				k := flow.Task{
					Class:       flow.Class(rapid.IntRange(0, 3).Draw(t, "class")),
					Anywhere:    rapid.Int64Range(0, 9).Draw(t, "anywhere"),
					Unscheduled: rapid.Int64Range(0, 500).Draw(t, "unscheduled"),
					Prefers: map[int]int64{rapid.IntRange(0, len(slots)-1).Draw(t, "prefers"): rapid.Int64Range(0,
						9).Draw(t, "cost")},
				}
				i, err := n.AddTask(k)
				if err != nil {
					t.Fatal(err)
				}
				on[i] = -1
			}
			changes, err := n.Schedule()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range changes {
				if on[c.Task] != c.From || c.From == c.To {
					t.Fatalf("%+v, and the task was on %d", c, on[c.Task])
				}
				on[c.Task] = c.To
			}
			taken := make([]int, len(slots))
			for i, w := range on {
				if n.On(i) != w {
					t.Fatalf("task %d is on %d and was said to be on %d", i, n.On(i), w)
				}
				if w >= 0 {
					taken[w]++
				}
			}
			for w := range slots {
				if taken[w] > slots[w] {
					t.Fatalf("worker %d has %d tasks in %d slots", w, taken[w], slots[w])
				}
			}
		}
	})
}

func TestUnknownWorkersAndTasksAreRefused(t *testing.T) {
	n := network(t, flow.Quincy, 1, 1)
	if _, err := n.AddTask(flow.Task{Prefers: map[int]int64{7: 1}}); err == nil {
		t.Error("a worker that is not there can be preferred")
	}
	if _, err := n.AddWorker(0); err == nil {
		t.Error("a worker without slots was taken")
	}
	if n.RemoveTask(3) == nil || n.SetUnscheduled(3, 1) == nil {
		t.Error("a task that is not there was changed")
	}
}

// TestRunningTasksKeepTheirSlots: who has begun is not moved, fills the cheapest slots, and leaves them open when it
// ends.
func TestRunningTasksKeepTheirSlots(t *testing.T) {
	for _, m := range []flow.Model{flow.LoadSpreading, flow.Quincy, flow.Interfering} {
		n := network(t, m, 2, 2)
		for round := range 3 {
			a, b, c := add(t, n, flow.Task{Unscheduled: 100}), add(t, n, flow.Task{Unscheduled: 100}),
				add(t, n, flow.Task{Unscheduled: 100})
			if m == flow.Interfering {
				for _, i := range []int{a, b, c} {
					if err := n.SetUnscheduled(i, flow.MaxCost); err != nil {
						t.Fatal(err)
					}
				}
			}
			schedule(t, n)
			count := [2]int{}
			for _, i := range []int{a, b, c} {
				w, err := n.Begin(i)
				if err != nil {
					t.Fatalf("%d, round %d: %v", m, round, err)
				}
				count[w]++
			}
			if count[0] == 3 || count[1] == 3 {
				t.Fatalf("%d, round %d: three tasks in the two slots of one worker", m, round)
			}
			d := add(t, n, flow.Task{Unscheduled: flow.MaxCost})
			e := add(t, n, flow.Task{Unscheduled: flow.MaxCost - 1})
			schedule(t, n)
			if w := n.On(d); w < 0 || count[w] != 1 || n.On(e) >= 0 {
				t.Fatalf("%d, round %d: of one slot left, on %d, %d", m, round, n.On(d), n.On(e))
			}
			for w, k := range count {
				for range k {
					if err := n.End(w, flow.Turtle); err != nil {
						t.Fatal(err)
					}
				}
			}
			if n.RemoveTask(d) != nil || n.RemoveTask(e) != nil || n.End(0, flow.Turtle) == nil {
				t.Fatal("the network is not empty again")
			}
		}
	}
}
