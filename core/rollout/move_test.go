package rollout

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// of returns the machines of a slot of the only group.
func (r *rig) of(index int) (list []*release.Standing) {
	for _, m := range r.machines {
		if m.Index == index {
			list = append(list, m)
		}
	}
	return list
}

// moveTo has a machine be at a worker; "": it stays.
func (r *rig) moveTo(id string, to cluster.WorkerID) {
	index := 0
	if m := r.machines[id]; m != nil {
		index = m.Index
	}
	rolled := release.Service{Head: r.want.Head, Release: r.want.Release,
		Tenure: release.Tenure{Notes: release.Notes{Progress: r.want.Progress}}}
	stands := func(id string) bool { return r.machines[id] != nil }
	c, err := rolled.Move([]release.MoveTo{{Machine: id, Group: "web", Index: index, To: to}}, stands, r.now)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	if len(c.Moves) > 0 {
		r.follow(c, nil)
	}
}

// moveAny has some machine be at some worker, or stay.
func (w *world) moveAny(t *rapid.T) {
	if len(w.machines) == 0 {
		return
	}
	m := w.machines[rapid.SampledFrom(slices.Sorted(maps.Keys(w.machines))).Draw(t, "which")]
	to := rapid.SampledFrom(append([]cluster.WorkerID{""}, workers...)).Draw(t, "to")
	w.follow(release.Change{Moves: []release.MoveTo{{Machine: m.ID, Group: m.Group, Index: m.Index, To: to,
		Until: w.now.Add(time.Hour)}}, Why: release.WhyMove}, nil)
}

// threeOn returns a rig of up to three replicas that stand, w3 without any.
func threeOn(t *testing.T, g release.Group) *rig {
	r := newRig(t, 1, g, true)
	r.rest()
	r.layout(map[cluster.WorkerID]int{"w1": (len(r.machines) + 1) / 2, "w2": len(r.machines) / 2})
	r.want.Places = zoned{"w1": {"a", 9}, "w2": {"a", 9}, "w3": {"b", 9}}
	r.watched = true
	return r
}

// goOn has what is ordered carried out where it wants to be, for some seconds.
func (r *rig) goOn(seconds int, each func()) {
	for range 2 * seconds {
		r.live()
		for _, o := range r.step(r.t).Orders {
			r.log = append(r.log, fmt.Sprintf("%v %s %v %s at %q %v: %s", r.now.Unix()-1e9, o.Verb, o.Slot(), o.Machine,
				o.Home, o.Only, o.Why))
		}
		for len(r.under) > 0 {
			r.end(0, carried, r.under[0].Home)
		}
		r.hold()
		if each != nil {
			each()
		}
		r.now = r.now.Add(500 * time.Millisecond)
	}
}

// TestMoveReplacesBeforeRemoving: a machine that somebody wants at another worker is replaced there before it goes, goes first where two cannot be,
// and stays where it has a volume. No other is touched, and nothing undoes it; also where the steward dies meanwhile.
func TestMoveReplacesBeforeRemoving(t *testing.T) {
	for name, g := range groupsOf(3, release.Undo) {
		for kill := range 16 {
			r := threeOn(t, g)
			old := r.of(0)[0]
			before := map[string]bool{}
			for id := range r.machines {
				before[id] = true
			}
			r.moveTo(old.ID, "w3")
			step := 0
			r.goOn(40, func() {
				if step++; step == kill {
					r.steward = NewSteward(cluster.Term{Number: r.term})
				}
				now := r.of(0)
				if alone := len(now) == 1 && now[0].ID != old.ID; alone && g.Order() == release.StartFirst &&
					r.now.Sub(r.starts[now[0].ID]) < g.MinUp() {
					r.t.Fatalf("%s: the old one went before the new one was up for %v", name, g.MinUp())
				}
			})
			now := r.of(0)
			moved := len(now) == 1 && now[0].Worker == "w3" && now[0].ID != old.ID && now[0].Ready
			if g.Movable() != moved || len(r.machines) != g.Replicas {
				r.t.Fatalf("%s, the steward dies at %d: %v", name, kill, r.standing())
			}
			for id, m := range r.machines {
				if m.Index != 0 && !before[id] {
					r.t.Fatalf("%s: %+v is new", name, m)
				}
			}
			if n := r.step(r.t); n.Busy || len(n.Orders) > 0 {
				r.t.Fatalf("%s: it goes on: %+v", name, n)
			}
		}
	}
}

// TestMovesOfAGroupGoOneByOne: of several machines of a group one is replaced at a time.
func TestMovesOfAGroupGoOneByOne(t *testing.T) {
	for name, g := range groupsOf(6, release.Undo) {
		if g.Replicas != 6 {
			continue
		}
		r := threeOn(t, g)
		for _, m := range r.standing() {
			r.moveTo(m.ID, "w3")
		}
		r.goOn(120, func() {
			ready := 0
			for _, m := range r.machines {
				if m.Ready {
					ready++
				}
			}
			if ready < 5 || len(r.machines) > 7 {
				r.t.Fatalf("%s: %d of %d are ready", name, ready, len(r.machines))
			}
		})
		if got := r.where(); got != "0/0/6" {
			r.t.Fatalf("%s: %s", name, got)
		}
	}
}

// TestFailedMoveLeavesTheMachine: a failed move leaves the machine in place: the worker is gone or refuses, the new
// machine is not ready in time, or the move is cancelled.
func TestFailedMoveLeavesTheMachine(t *testing.T) {
	there := func(m *release.Standing) bool { return m.Worker == "w3" }
	for name, act := range map[string]func(r *rig, id string){
		"gone": func(r *rig, _ string) { r.want.Places = zoned{"w1": {"a", 9}, "w2": {"a", 9}} },
		"refuses": func(r *rig, _ string) {
			for range 60 {
				r.live()
				r.step(r.t)
				for len(r.under) > 0 {
					if !r.under[0].Only || r.under[0].Home != "w3" {
						r.t.Fatalf("ordered %+v", r.under[0].Order)
					}
					r.end(0, refused, "")
				}
				r.hold()
				r.now = r.now.Add(time.Second)
			}
			if r.want.Unmade == nil || r.want.Unmade[0].Index != 0 {
				r.t.Fatalf("nothing says why: %+v", r.want.Unmade)
			}
		},
		"not ready, stays": func(r *rig, id string) {
			r.sick = there
			r.goOn(30, nil)
			if len(r.of(0)) != 2 {
				r.t.Fatalf("%v", r.standing())
			}
			r.moveTo(id, "")
		},
		"not ready in time": func(r *rig, _ string) {
			r.sick = there
			r.goOn(30, nil)
			r.now = r.now.Add(time.Hour)
		},
		"stays": func(r *rig, id string) { r.moveTo(id, "") },
	} {
		r := threeOn(t, groupsOf(3, release.Undo)["rolling"])
		id := r.of(0)[0].ID
		r.moveTo(id, "w3")
		act(r, id)
		if name == "refuses" {
			r.moveTo(id, "")
		}
		r.goOn(30, nil)
		if now := r.of(0); len(now) != 1 || now[0].ID != id || !now[0].Ready {
			r.t.Fatalf("%s: %v", name, r.standing())
		}
	}
}
