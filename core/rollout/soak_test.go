package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// TestOldMachineWaitsForAStableReplacement: the old one goes once the new one has been ready for a while without a break, with checks as
// without.
func TestOldMachineWaitsForAStableReplacement(t *testing.T) {
	for _, checks := range []bool{false, true} {
		r := releaseOf("two", map[string]int{"web": 1})
		if checks {
			r.Groups[0].Config.Checks = map[string]machine.CheckConfig{"c": {}}
		}
		want := &Want{App: "a", Release: r, Head: next(t, nil, release.Change{Release: r.ID()}, r, nil)}
		now := time.Unix(1e9, 0)
		standing := []release.Standing{{ID: "old", State: machine.Started, Ready: true,
			Replica: machine.Replica{Group: "web", Spec: "old"}}, {ID: "new", State: machine.Started, Ready: true,
			Replica: machine.Replica{Group: "web", Spec: r.Spec(&r.Groups[0], 0), Epoch: 1}}}
		s := NewSteward(cluster.Term{})
		s.Begin(cluster.Term{Number: 1, Member: "m"})
		removes := func(after time.Duration, ready bool) bool {
			now = now.Add(after)
			standing[1].Ready = ready
			return len(s.Step(now, want, standing).Orders) == 1
		}
		watch := r.Groups[0].MinUp()
		if removes(0, true) || removes(watch-1, true) || removes(1, false) || removes(watch, true) ||
			removes(watch-1, true) {
			t.Errorf("checks %v: the old one goes before the new one was ready for long enough", checks)
		}
		if !removes(1, true) {
			t.Errorf("checks %v: the old one stays", checks)
		}
	}
}

// TestDeathDuringTheWatchUndoesTheRollout: a death during the watch undoes the rollout: of the last machine, of a
// counted one, and in a group whose old machine went first.
func TestDeathDuringTheWatchUndoesTheRollout(t *testing.T) {
	one := release.Group{Name: "web", Replicas: 1, Config: &machine.Config{Image: good}}
	volume := &machine.Config{Image: good, Mounts: []machine.Mount{{Name: "data", Path: "/d"}}}
	for _, tt := range []struct {
		name  string
		g     release.Group
		dies  int           // the replica
		after time.Duration // since it was started
		undo  bool
	}{
		{"the only one", one, 0, 9 * time.Second, true},
		{"the first of three", release.Group{Name: "web", Replicas: 3, Config: &machine.Config{Image: good}}, 0,
			20 * time.Second, true},
		{"the last of three", release.Group{Name: "web", Replicas: 3, Config: &machine.Config{Image: good}}, 2,
			9 * time.Second, true},
		{"with a volume", release.Group{Name: "web", Replicas: 1, Config: volume, Update: &release.Update{}}, 0,
			9 * time.Second, true},
		{"when all is over", one, 0, time.Minute, false},
	} {
		for _, checks := range []bool{false, true} {
			c := *tt.g.Config
			if tt.g.Config = &c; checks {
				c.Checks = map[string]machine.CheckConfig{"c": {}}
			}
			r := newRig(t, 1, tt.g, true)
			r.rest()
			r.roll(tt.g, other)
			r.log = append(r.log, tt.name)
			died := false
			r.each = func() {
				for id, m := range r.machines {
					if since, up := r.starts[id]; up && !died && r.image(m) == other && m.Index == tt.dies &&
						r.now.Sub(since) >= tt.after {
						m.State, m.Died, m.Ready, m.Deaths, died = machine.Stopped, true, false, 1, true
					}
				}
			}
			for range 200 {
				r.tick()
			}
			if !died {
				t.Fatalf("%s: nothing died", tt.name)
			}
			r.rest()
			if tt.undo {
				r.ends(good, release.Done, true)
			} else {
				r.ends(other, release.Done, false)
			}
		}
	}
}

// TestRolloutWaitsForAllReady: it is not done while a machine that was ready before fails its checks, and fails when that
// lasts until the deadline.
func TestRolloutWaitsForAllReady(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		g := release.Group{Name: "web", Replicas: 2, Config: &machine.Config{Image: good},
			Update: &release.Update{Deadline: during(time.Minute)}}
		r := newRig(t, 1, g, true)
		r.rest()
		r.roll(g, other)
		since := time.Time{}
		r.sick = func(m *release.Standing) bool { // the first new machine, while the other one is watched
			if r.image(m) != other || m.Index != 0 || r.now.Sub(r.starts[m.ID]) < 15*time.Second {
				return false
			}
			if since.IsZero() {
				since = r.now
			}
			return !recovers || r.now.Sub(since) < 30*time.Second
		}
		r.each = func() {
			p := r.want.Progress
			if p.Of(r.want.Head) && p.State == release.Done && !p.Undo && r.now.Sub(since) < 40*time.Second {
				r.t.Fatalf("it is done %v after a machine was sick", r.now.Sub(since))
			}
		}
		for range 300 {
			r.tick()
		}
		p := r.want.Progress
		if since.IsZero() || p.State != release.Done || p.Undo == recovers {
			t.Errorf("recovers %v: since %v, %+v", recovers, since, p)
		}
		if !recovers && !strings.Contains(p.Why, "not ready") {
			t.Errorf("it says %q", p.Why)
		}
	}
}

// TestFlappingMachinesFailTheRollout: a rollout of flapping machines fails at the deadline: no machine is replaced by
// one that passes half of its checks, nor by one whose check fails every other time, which only its worker sees.
func TestFlappingMachinesFailTheRollout(t *testing.T) {
	for _, missed := range []bool{false, true} {
		for _, u := range []release.Update{{}, {MaxSurge: "3"}, {Strategy: release.BlueGreen},
			{Strategy: release.Canary, Steps: []release.CanaryStep{{Percent: 34, For: during(time.Second)}}}} {
			g := release.Group{Name: "web", Replicas: 3, Config: &machine.Config{Image: good}, Update: &u}
			u.Deadline = during(30 * time.Second)
			r := newRig(t, 1, g, true)
			r.rest()
			r.roll(g, other)
			fails := func(m *release.Standing) bool {
				return r.image(m) == other && r.now.Sub(r.starts[m.ID])/(3*time.Second)%2 == 1
			}
			if !missed {
				r.sick = fails
			}
			r.each = func() {
				old := 0
				for _, m := range r.machines {
					if missed && m.Ready && fails(m) {
						m.Missed = fmt.Sprint("check c fails now and then at ", r.now)
					}
					if r.image(m) == good && m.Ready {
						old++
					}
				}
				if old < 3 {
					t.Fatalf("%+v: %d old machines are up", u, old)
				}
			}
			for range 300 {
				r.tick()
			}
			r.ends(good, release.Done, true)
			if why := r.want.Progress.Why; !strings.Contains(why, "without a break") &&
				!strings.Contains(why, "not ready") {
				t.Errorf("it says %q", why)
			}
		}
	}
}
