package rollout

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// running lists the runs of a kind that go on, whoever knows of them.
func (e *estate) running(kind machine.Run) (out []release.Standing) {
	for _, id := range hosts {
		for _, key := range slices.Sorted(maps.Keys(e.workers[id].has)) {
			if m := e.workers[id].has[key]; m.Run == kind && !m.Over() {
				out = append(out, m)
			}
		}
	}
	return out
}

func (e *estate) once(t *rapid.T) {
	for id, n := range e.made {
		if n > 1 {
			t.Fatalf("machine %s was made %d times", id, n)
		}
	}
}

// TestEachScheduledRunStartsOnce, whatever order is late or lost, whoever dies, whichever members take themselves for the
// steward, and though the clock of one is 4 minutes ahead.
func TestEachScheduledRunStartsOnce(t *testing.T) {
	for _, overlap := range []release.Overlap{release.Forbid, release.AllowBoth, release.ReplaceThat} {
		t.Run(string(overlap), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { startsOnce(t, overlap) })
		})
	}
}

func startsOnce(t *rapid.T, overlap release.Overlap) {
	one := 1
	e := newEstate(release.Group{OnLost: release.Never, Cron: &release.Cron{Schedule: "* * * * *", Overlap: overlap,
		Keep: &one}})
	members := []cluster.WorkerID{"m1", "m2"}
	for _, m := range members {
		e.stewards[m] = NewSteward(cluster.Term{})
	}
	e.ahead = map[cluster.WorkerID]time.Duration{"m2": 4 * time.Minute}
	actions := e.actions(t, members)
	actions["finish"] = func(t *rapid.T) {
		if list := e.running(machine.RunScheduled); len(list) > 0 {
			m := rapid.SampledFrom(list).Draw(t, "run")
			e.finish(m.Worker, m.ID, rapid.IntRange(0, 1).Draw(t, "code"))
		}
	}
	actions[""] = e.once
	t.Repeat(actions)
	finishAll := func() {
		for _, m := range e.running(machine.RunScheduled) {
			e.finish(m.Worker, m.ID, 0)
		}
	}
	finishAll()
	e.settle(t)
	finishAll()
	e.now = e.now.Add(10 * time.Minute) // beyond what the clock that is ahead has settled
	e.settle(t)
	e.once(t)
	made := 0
	for _, id := range hosts {
		for _, m := range e.workers[id].has {
			if m.Epoch == release.Minute(e.now) || m.Epoch == release.Minute(e.now)-1 {
				made++
			}
		}
	}
	if at := e.want.Runs["web"].At; at+1 < release.Minute(e.now) || made == 0 {
		t.Fatalf("%v is settled at %v, %d made: %v", e.want.Runs, e.now, made, e.machines())
	}
}

// TestReleaseCommandRunsOnceAndAlone: of the commands of releases that follow on each other each runs once, never two at a time,
// and no machine of a release is made before its command has ended with 0.
func TestReleaseCommandRunsOnceAndAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		with := func(image string) *release.Release {
			at := time.Unix(int64(rapid.IntRange(0, 1000).Draw(t, "at")), 0)
			return &release.Release{Groups: []release.Group{{OnLost: release.Never}}, At: at,
				Command: &release.Command{Exec: []string{"migrate"}}, Note: image}
		}
		e := newEstate(release.Group{OnLost: release.Never})
		e.release(with("two"), "two")
		members := []cluster.WorkerID{"m1", "m2"}
		for _, m := range members {
			e.stewards[m] = NewSteward(cluster.Term{})
		}
		done := map[string]bool{}
		actions := e.actions(t, members)
		actions["deploy"] = func(t *rapid.T) { e.release(with("three"), "three") }
		finish := func(code int) {
			for _, m := range e.running(machine.RunCommand) {
				e.finish(m.Worker, m.ID, code)
				done[m.Release] = done[m.Release] || code == 0
			}
		}
		actions["finish"] = func(t *rapid.T) { finish(rapid.IntRange(0, 1).Draw(t, "code")) }
		actions[""] = func(t *rapid.T) {
			e.once(t)
			if list := e.running(machine.RunCommand); len(list) > 1 {
				t.Fatalf("two commands run: %v", list)
			}
			for _, id := range hosts {
				for _, m := range e.workers[id].has {
					if r := e.releases[m.Release]; m.Run == "" && r.Command != nil && !done[m.Release] {
						t.Fatalf("%+v is made before its release's command is done", m)
					}
				}
			}
		}
		t.Repeat(actions)
		for range 3 { // the command of the newest release may yet begin
			finish(0)
			func() {
				for range 40 {
					for _, id := range hosts {
						e.workers[id].cut = false
						e.tell(id)
					}
					e.look("m1", func() cluster.WorkerID { return "w1" })
					for _, x := range e.wires {
						if !x.arrived {
							e.arrive(x)
						}
						if x.by != nil {
							e.answer(x)
							x.by = nil
						}
					}
					e.wires, e.now = nil, e.now.Add(time.Second)
				}
			}()
			actions[""](t)
		}
		e.settle(t)
		p := &e.want.Progress
		if p.State == "" || p.Command == "" && e.want.Head.Command {
			t.Fatalf("it ended %+v", p)
		}
	})
}
