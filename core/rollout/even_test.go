package rollout

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// zoned are workers with a zone each, and how many more machines they take.
type zoned map[cluster.WorkerID]*zone

type zone struct {
	name string
	room int
}

func (h zoned) Workers() []cluster.WorkerID { return slices.Sorted(maps.Keys(h)) }

func (h zoned) Value(w cluster.WorkerID, attribute string) string {
	switch {
	case h[w] == nil:
		return ""
	case attribute == "worker":
		return string(w)
	}
	return h[w].name
}

func (h zoned) Takes(w cluster.WorkerID, _ *release.Group) bool { return h[w].room > 0 }

// layout places as many machines of a group at each worker, and returns them as text that says how many each has.
func (r *rig) layout(at map[cluster.WorkerID]int) {
	var list []*release.Standing
	for _, id := range slices.Sorted(maps.Keys(r.machines)) {
		list = append(list, r.machines[id])
	}
	for _, w := range slices.Sorted(maps.Keys(at)) {
		for range at[w] {
			list[0].Worker, list = w, list[1:]
		}
	}
}

func (r *rig) where() string {
	at := map[cluster.WorkerID]int{}
	for _, m := range r.machines {
		at[m.Worker]++
	}
	return fmt.Sprint(at["w1"], "/", at["w2"], "/", at["w3"])
}

// evenly goes on until the rollout is over. Each machine is made where its order wants it, and elsewhere it would be made at w1.
func (r *rig) evenly() {
	for range 400 {
		r.live()
		r.step(r.t)
		for len(r.under) > 0 {
			at := r.under[0].Home
			if at == "" {
				at = "w1"
			}
			r.end(0, carried, at)
		}
		r.now = r.now.Add(1e9)
	}
}

// TestDeployRebalancesUnevenGroups: the next rollout of any strategy spreads an uneven group evenly again; an even
// group stays in place.
func TestDeployRebalancesUnevenGroups(t *testing.T) {
	free := zoned{"w1": {"a", 9}, "w2": {"a", 9}, "w3": {"b", 9}}
	full := zoned{"w1": {"a", 9}, "w2": {"a", 9}, "w3": {"b", 0}}
	gone := zoned{"w1": {"a", 9}, "w2": {"a", 9}}
	zones := []machine.Spread{{Attribute: "zone"}}
	for _, tt := range []struct {
		name   string
		at     map[cluster.WorkerID]int
		spread []machine.Spread
		places Places
		want   string
	}{
		{"a host came back", map[cluster.WorkerID]int{"w1": 2, "w2": 1}, nil, free, "1/1/1"},
		{"all at one", map[cluster.WorkerID]int{"w1": 6}, nil, free, "2/2/2"},
		{"spread as well as can be", map[cluster.WorkerID]int{"w1": 2, "w2": 1, "w3": 1}, nil, free, "2/1/1"},
		{"no room there", map[cluster.WorkerID]int{"w1": 2, "w2": 1}, nil, full, "2/1/0"},
		{"it takes nothing", map[cluster.WorkerID]int{"w1": 2, "w2": 1}, nil, gone, "2/1/0"},
		{"zones", map[cluster.WorkerID]int{"w1": 2, "w2": 2}, zones, free, "1/1/2"},
		{"even zones", map[cluster.WorkerID]int{"w1": 2, "w3": 2}, zones, free, "2/0/2"},
	} {
		n := 0
		for _, has := range tt.at {
			n += has
		}
		for name, g := range groupsOf(n, release.Undo) {
			if g.Replicas != n { // it has one machine at most
				continue
			}
			if tt.spread != nil {
				g.Scheduling = &machine.Scheduling{Spread: tt.spread}
			}
			r := newRig(t, 1, g, true)
			r.rest()
			r.layout(tt.at)
			r.want.Places = tt.places
			uneven := len(Uneven(&r.want.Release.Groups[0], r.want.Release.Spec(&g, 0), n, r.standing(), tt.places)) > 0
			if moved := r.where() != tt.want; uneven != moved {
				t.Errorf("%s, %s: uneven is %v", tt.name, name, uneven)
			}
			r.roll(g, other)
			r.follow(release.Change{Promote: release.MaxSteps, Why: release.WhyPromote}, nil)
			r.evenly()
			if got := r.where(); got != tt.want {
				t.Errorf("%s, %s: %s, want %s", tt.name, name, got, tt.want)
			}
		}
	}
}

// TestRebalanceMovesAsFewAsPossible: what moves as it says leaves no two workers that are free further apart than one machine, and moves as few as can be.
func TestRebalanceMovesAsFewAsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var standing []release.Standing
		at := map[cluster.WorkerID]int{}
		for i := range rapid.IntRange(0, 9).Draw(t, "machines") {
			m := slotOf(i, func(m *release.Standing) { m.Worker = rapid.SampledFrom(workers).Draw(t, "worker") })
			standing = append(standing, m)
			at[m.Worker]++
		}
		g := release.Group{Name: "web", Replicas: 3, Config: &machine.Config{Image: good}}
		n := len(standing)
		least := 0
		for _, w := range workers {
			least += max(0, n/len(workers)-at[w])
		}
		moves := Uneven(&g, "s", n, standing, zoned{"w1": {"", 9}, "w2": {"", 9}, "w3": {"", 9}})
		for i := range standing {
			if to := moves[standing[i].ID]; to != "" {
				at[standing[i].Worker]--
				at[to]++
			}
		}
		for _, w := range workers {
			if at[w] < n/len(workers) || at[w] > (n+len(workers)-1)/len(workers) {
				t.Fatalf("%v, after %v", at, moves)
			}
		}
		if len(moves) > least+len(workers)-1 {
			t.Fatalf("%d move, and %d have to", len(moves), least)
		}
	})
}
