package rollout

import (
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// TestReplacementStaysOnItsWorker: where the machine was whose place it takes, unless that one must leave, or none was made
// there.
func TestReplacementStaysOnItsWorker(t *testing.T) {
	for name, g := range groupsOf(3, release.Undo) {
		r := newRig(t, 1, g, true)
		r.rest()
		old := map[int]cluster.WorkerID{}
		for _, m := range r.machines {
			old[m.Index] = m.Worker
			m.Leaves = m.Index == 1
		}
		r.roll(g, other)
		for range 400 {
			r.live()
			for _, o := range r.step(r.t).Orders {
				want := old[o.Replica.Index]
				if o.Replica.Index == 1 {
					want = ""
				}
				if o.Verb == Make && o.Home != want && (o.Replica.Index != 1 || g.Steps() == nil) {
					t.Errorf("%s: %v is made with the home %q, want %q", name, o.Slot(), o.Home, want)
				}
			}
			for len(r.under) > 0 {
				r.end(0, carried, "w2")
			}
			r.now = r.now.Add(1e9)
		}
	}
	g := release.Group{Name: "web", Config: &machine.Config{Image: good}}
	l := g.Launch(release.Slot{Group: "web", Index: 0}, "0123456789abcd", "w1", 0)
	if p := l.Scheduling.Prefer; len(p) != 1 || p[0].Weight != 1000 || p[0].Values[0] != cluster.Text("w1") {
		t.Errorf("%+v", p)
	}
	g.Scheduling = &machine.Scheduling{Prefer: make([]cluster.Preference, cluster.MaxRequirements)}
	if l := g.Launch(release.Slot{Group: "web", Index: 0}, "0123456789abcd", "w1",
		0); len(l.Scheduling.Prefer) != cluster.MaxRequirements {
		t.Error("more is wished for than may be")
	}
}

// TestStewardWaitsForThePreviousRelease: a steward that has not got it yet cannot tell what a canary keeps, or an undo returns to.
func TestStewardWaitsForThePreviousRelease(t *testing.T) {
	for _, undo := range []bool{false, true} {
		g := groupsOf(4, release.Undo)["canary"]
		r := newRig(t, 1, g, true)
		r.rest()
		r.roll(g, crash)
		r.want.Progress = release.Progress{Rollout: r.want.Head.Rollout, Release: r.want.Head.Release, Undo: undo}
		if undo {
			r.want.Progress.Why, r.want.Progress.Failed = "it failed", []release.Failure{{Group: "web",
				Why: "it failed"}}
		}
		before := r.want.Before
		r.want.Before = nil
		if n := r.step(r.t); len(n.Orders) > 0 || n.Busy {
			t.Errorf("undo %v: %+v", undo, n)
		}
		r.want.Before = before
		r.rest()
		r.ends(good, release.Done, true)
	}
}
