package rollout

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// served is a group with a service of limits, that scales.
func served(soft, hard int, a release.Autoscale) release.Group {
	s := machine.Service{InternalPort: 80}
	if soft > 0 || hard > 0 {
		s.Concurrency = &machine.Concurrency{SoftLimit: soft, HardLimit: hard}
	}
	return release.Group{Name: "web", Replicas: a.Min, Autoscale: &a,
		Config: &machine.Config{Image: "good", Services: []machine.Service{s}}}
}

// TestAutoscaleFollowsTheLoad: a group of which n machines are wanted and that has a load, after a while with another.
func TestAutoscaleFollowsTheLoad(t *testing.T) {
	a := release.Autoscale{Min: 2, Max: 10, DownAfter: during(time.Minute)}
	for name, tt := range map[string]struct {
		g            release.Group
		n            int
		load, before float64
		blind        bool
		want         int
		later        int // a minute on, then each step's time
	}{
		"as it should be":        {served(20, 0, a), 3, 60, 60, false, 3, 3},
		"a little beyond":        {served(20, 0, a), 3, 66, 66, false, 3, 3},
		"beyond":                 {served(20, 0, a), 3, 67, 67, false, 4, 4},
		"far beyond":             {served(20, 0, a), 3, 170, 60, false, 9, 9},
		"beyond all":             {served(20, 0, a), 3, 1000, 60, false, 10, 10},
		"less":                   {served(20, 0, a), 8, 100, 160, false, 8, 6},
		"nothing":                {served(20, 0, a), 10, 0, 200, false, 10, 8},
		"the least":              {served(20, 0, a), 2, 0, 0, false, 2, 2},
		"full by its hard limit": {served(0, 20, a), 3, 48, 48, false, 4, 4}, // 20 are told as 16
		"one at a time":          {served(0, 1, a), 3, 3, 3, false, 4, 4},
		"not one at a time":      {served(0, 1, a), 3, 2, 2, false, 3, 3},
		"a soft limit far below": {served(10, 100, a), 3, 30, 30, false, 3, 3},
		"not known yet":          {served(20, 0, a), 8, 0, 160, true, 8, 8},
	} {
		now := time.Unix(1e9, 0)
		s := newScaler(now, tt.n)
		s.choose(now, &tt.g, tt.n, release.Loads{Heard: tt.before, All: tt.before})
		s.count = tt.n
		got, _ := s.choose(now, &tt.g, tt.n, release.Loads{Heard: tt.load, All: tt.load, Blind: tt.blind})
		if got != tt.want {
			t.Errorf("%s: %d at once, want %d", name, got, tt.want)
		}
		s.count = got
		got, _ = s.choose(now.Add(time.Minute), &tt.g, got, release.Loads{Heard: tt.load, All: tt.load,
			Blind: tt.blind})
		if got != tt.later {
			t.Errorf("%s: %d later, want %d", name, got, tt.later)
		}
	}
}

// TestFullMachinesScaleUp: whatever the limits, machines that are all full have another made.
func TestFullMachinesScaleUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hard := rapid.IntRange(1, 5000).Draw(t, "hard")
		g := served(rapid.IntRange(1, hard).Draw(t, "soft"), hard, release.Autoscale{Min: 1, Max: 1000})
		n := rapid.IntRange(1, 900).Draw(t, "n")
		load := float64(n * Reported(hard))
		s := newScaler(time.Unix(1e9, 0), n)
		if got, _ := s.choose(time.Unix(1e9, 0), &g, n, release.Loads{Heard: load, All: load}); got <= n {
			t.Fatalf("%d machines with %v stay %d, enough is %v", n, load, got, enough(&g))
		}
	})
}

// TestAutoscaleStaysInBoundsAndSettles: the number stays within its bounds, is never less than what was needed within the time until
// machines go, and comes to rest where the load does, with no look left.
func TestAutoscaleStaysInBoundsAndSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(1, 20).Draw(t, "min")
		after := time.Duration(rapid.IntRange(1, 600).Draw(t, "after")) * time.Second
		g := served(rapid.IntRange(1, 50).Draw(t, "soft"), 0,
			release.Autoscale{Min: least, Max: least + rapid.IntRange(0, 80).Draw(t, "more"), DownAfter: during(after)})
		now := time.Unix(1e9, 0)
		n := rapid.IntRange(least, g.Autoscale.Max).Draw(t, "n")
		s := newScaler(now, n)
		type was struct {
			need int
			till time.Time
		}
		seen := []was{{n, now}}
		load := 0.0
		look := func() time.Time {
			l := release.Loads{Heard: load, All: load}
			got, again := s.choose(now, &g, n, l)
			if got < g.Autoscale.Min || got > g.Autoscale.Max {
				t.Fatalf("%d of %+v", got, g.Autoscale)
			}
			seen[len(seen)-1].till = now
			for _, w := range seen {
				if got < n && w.need > got && now.Sub(w.till) < after {
					t.Fatalf("from %d to %d, and %v ago %d were needed", n, got, now.Sub(w.till), w.need)
				}
			}
			if got < n && n-got > max(1, n/4) {
				t.Fatalf("from %d to %d at once", n, got)
			}
			need := min(needs(&g, load), got)
			if seen[len(seen)-1].need != need {
				seen = append(seen, was{need, now})
			}
			if got < n {
				s.down = now
			}
			n, s.count = got, got
			return again
		}
		for range rapid.IntRange(0, 30).Draw(t, "looks") {
			load = float64(rapid.IntRange(0, 3000).Draw(t, "load"))
			look()
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
		}
		for range 400 {
			before := n
			again := look()
			if again.IsZero() && n == before {
				if most := enough(&g) * float64(n); load > tolerance*most && n < g.Autoscale.Max {
					t.Fatalf("it rests at %d with a load of %v", n, load)
				}
				if more := needs(&g, load); more < n {
					t.Fatalf("it rests at %d, and %d are enough", n, more)
				}
				return
			}
			if n == before {
				now = again
			}
		}
		t.Fatalf("it does not come to rest: %d, %v", n, load)
	})
}

// scaling is a group in a rig whose load is told of its machines.
func scaling(t *testing.T, seed uint64, g release.Group, clean bool) (*rig, func(load int)) {
	g.Autoscale = &release.Autoscale{Min: 1, Max: 8, Target: 10, DownAfter: during(20 * time.Second)}
	c := *g.Config
	c.Services, g.Config = []machine.Service{{InternalPort: 80}}, &c
	r := newRig(t, seed, g, clean)
	load := 0
	r.each = func() {
		up := 0
		for _, m := range r.machines {
			if m.Load = 0; m.Ready {
				up++
			}
		}
		for _, m := range r.machines {
			if m.Ready {
				m.Load = (load + up - 1) / up
			}
		}
	}
	return r, func(n int) { load = n }
}

// count is how many machines of web are wanted.
func (w *world) count() int {
	in := w.releases[w.want.Head.InForce(w.want.Progress).Release]
	return w.want.Head.Wanted(in.Group("web"), w.want.Scaled)
}

// TestAutoscaleWorksDuringRollouts, good and bad ones, and while stewards die: a rollout ends as it would without, and the
// number follows the load.
func TestAutoscaleWorksDuringRollouts(t *testing.T) {
	for _, clean := range []bool{true, false} {
		for name, g := range groupsOf(3, release.Undo) {
			if name == "volume" || name == "single" {
				continue
			}
			for _, image := range []string{other, crash, mute} {
				r, load := scaling(t, 7, g, clean)
				load(30)
				r.rest()
				g.Autoscale, g.Config = r.want.Release.Groups[0].Autoscale, r.want.Release.Groups[0].Config
				r.roll(g, image)
				head := r.want.Head.Number
				for i := range 60 {
					if i == 3 {
						load(60)
					}
					r.tick()
				}
				if n := r.count(); n < 6 {
					r.t.Fatalf("%s, %s: %d machines for a load of 60", name, image, n)
				}
				r.steward = NewSteward(cluster.Term{Number: r.term})
				load(12)
				r.rest()
				for range 300 { // it goes down slowly, and new stewards wait longer
					r.tick()
				}
				r.rest()
				if n := r.count(); n != 2 || len(r.machines) != 2 {
					r.t.Fatalf("%s, %s: %d machines, %d wanted, for a load of 12", name, image, len(r.machines), n)
				}
				if r.want.Head.Number != head && g.Strategy() != release.Canary {
					r.t.Fatalf("%s: a head was written", name)
				}
				if image == other {
					r.ends(other, release.Done, false)
				} else {
					r.ends(good, release.Done, true)
				}
			}
		}
	}
}

// TestRolloutEndsWithoutRoomForScaleUp: where there is no room for what the load asks for, the rollout is done all the same, what
// was refused is said once, and nothing more is asked for.
func TestRolloutEndsWithoutRoomForScaleUp(t *testing.T) {
	for _, before := range []bool{false, true} {
		endsUnfilled(t, before)
	}
}

// endsUnfilled has each strategy do so, where the load comes before the release or with it.
func endsUnfilled(t *testing.T, before bool) {
	for name, g := range groupsOf(2, release.Undo) {
		if name == "volume" || name == "single" {
			continue
		}
		r, load := scaling(t, 3, g, true)
		load(20)
		r.rest()
		g.Autoscale, g.Config = r.want.Release.Groups[0].Autoscale, r.want.Release.Groups[0].Config
		r.full = 3 // of the indexes from 3 on no machine is made
		load(60)
		if before {
			for range 60 {
				r.tick()
			}
		}
		r.roll(g, other)
		writes := 0
		last := r.want.Scaled["web"]
		for range 1000 {
			r.tick()
			if now := r.want.Scaled["web"]; now != last {
				writes++
				last = now
			}
			p := r.want.Progress
			if g.Strategy() == release.Canary && !(p.Of(r.want.Head) && p.State == release.Done) && r.steps%40 == 0 {
				r.follow(release.Change{Promote: p.Step + 1, Why: release.WhyPromote}, nil)
			}
		}
		if p := r.want.Progress; !p.Of(r.want.Head) || p.State != release.Done || p.Undo {
			r.t.Fatalf("%s, %v: %+v, %v", name, before, p, r.standing())
		}
		if x := r.want.Scaled["web"]; x.Count != 6 || !strings.Contains(x.Lacks, "no") || writes > 4 {
			r.t.Fatalf("%s: %+v after %d writes", name, x, writes)
		}
		r.full = 0
		for range 100 {
			r.tick()
		}
		if x := r.want.Scaled["web"]; x.Lacks != "" || len(r.machines) != 6 {
			r.t.Fatalf("%s: with room there are %d machines: %+v", name, len(r.machines), x)
		}
	}
}

// TestRolloutWithoutRoomIsUndone, also where the machine went first and its slot is one that an autoscale may leave out.
func TestRolloutWithoutRoomIsUndone(t *testing.T) {
	g := groupsOf(3, release.Undo)["stop first"]
	r, load := scaling(t, 3, g, true)
	load(30)
	r.rest()
	for range 60 {
		r.tick()
	}
	r.refuses, r.full = other, 1
	r.roll(r.want.Release.Groups[0], other)
	for range 600 {
		r.tick()
	}
	r.ends(good, release.Done, true)
}

// TestPlanIgnoresReplicasWithoutRoom: a release is not refused for machines that the load asks for and that have no room.
func TestPlanIgnoresReplicasWithoutRoom(t *testing.T) {
	g := groupsOf(1, release.Undo)["rolling"]
	r, load := scaling(t, 1, g, true)
	r.full = 3
	load(60)
	for range 100 {
		r.tick()
	}
	p := Foresee(r.now, &r.want, r.standing())
	if r.count() != 6 || p.Groups[0].Wanted != 6 || len(p.First) > 0 {
		t.Errorf("%d are wanted, and the plan is %+v", r.count(), p)
	}
}

// TestManualScaleOverridesAutoscale: 0 turns it off, and a number is where it goes on from.
func TestManualScaleOverridesAutoscale(t *testing.T) {
	g := groupsOf(1, release.Undo)["rolling"]
	r, load := scaling(t, 1, g, true)
	load(45)
	r.rest()
	for range 60 {
		r.tick()
	}
	hand := func(n int) {
		of := release.Service{App: "a", Head: r.want.Head, Release: r.want.Release,
			Tenure: release.Tenure{Notes: release.Notes{Progress: r.want.Progress, Scaled: r.want.Scaled}}}
		if c := of.Scale(map[string]int{"web": n}); c.Why != "" {
			r.follow(c, nil)
		}
	}
	is := func(what string, n int) {
		t.Helper()
		if got := r.count(); got != n {
			t.Fatalf("%s: %d are wanted, not %d: %+v %+v", what, got, n, r.want.Scaled, r.want.Head)
		}
	}
	is("for 45", 5)
	number := r.want.Head.Number
	hand(5)
	if r.want.Head.Number != number {
		t.Fatal("the same number writes a head")
	}
	hand(1) // as the release says, and other than it has chosen
	is("set to 1", 1)
	r.rest()
	for range 20 {
		r.tick()
	}
	is("after that, for 45", 5)
	hand(0)
	r.rest()
	for range 100 {
		r.tick()
	}
	if is("off", 0); len(r.machines) > 0 {
		t.Fatalf("it is off: %v", r.standing())
	}
	hand(7)
	r.rest()
	is("on again", 7)
	load(0)
	for range 30 {
		r.tick()
	}
	is("within the time until machines go", 7)
	for range 300 {
		r.tick()
	}
	is("idle", 1)
	if _, err := r.want.Head.Next(release.Change{Counts: map[string]int{"web": 9}, At: r.now}, r.want.Release,
		r.want.Release,
		r.want.Progress); err == nil || !strings.Contains(err.Error(), "autoscale of 1 to 8 machines, and 9") {
		t.Fatal(err)
	}
}

// TestSleepingGroupIsNotScaled: a group at rest keeps its machines, and its load is measured afresh once one is up.
func TestSleepingGroupIsNotScaled(t *testing.T) {
	g := groupsOf(1, release.Undo)["rolling"]
	r, load := scaling(t, 1, g, true)
	load(30)
	r.rest()
	for range 60 {
		r.tick()
	}
	load(0)
	for _, m := range r.machines {
		m.State, m.Ready, m.Rests, m.Load = machine.Suspended, false, true, 0
	}
	for range 1000 {
		r.tick()
	}
	if len(r.machines) != 3 || r.count() != 3 {
		t.Fatalf("%d machines, %d wanted", len(r.machines), r.count())
	}
	for _, m := range r.machines {
		if m.Index == 0 {
			m.State, m.Ready = machine.Started, true
		}
	}
	for range 30 {
		r.tick()
	}
	if len(r.machines) != 3 {
		t.Fatalf("%d machines a moment after one was woken", len(r.machines))
	}
	for range 300 {
		r.tick()
	}
	if len(r.machines) != 1 {
		t.Fatalf("%d machines are left of a group that rests", len(r.machines))
	}
}

// TestSilentWorkersDelayScaleDownOnly: what their machines had to do counts for how many may go, and not for how many come.
func TestSilentWorkersDelayScaleDownOnly(t *testing.T) {
	g := served(10, 0, release.Autoscale{Min: 1, Max: 9, DownAfter: during(time.Second)})
	standing := []release.Standing{
		{ID: "a", State: machine.Started, Ready: true, Load: 12},
		{ID: "b", State: machine.Started, Unheard: true, Load: 25},
		{ID: "c", State: machine.Destroying, Load: 90}, {ID: "d", State: machine.Suspended, Rests: true, Load: 90},
	}
	for i := range standing {
		standing[i].Group = "web"
	}
	l := g.LoadsOf(standing)
	if l != (release.Loads{Heard: 12, All: 37, Up: 2}) {
		t.Fatalf("%+v", l)
	}
	now := time.Unix(1e9, 0)
	s := newScaler(now, 6)
	for range 100 {
		now = now.Add(time.Minute)
		n, _ := s.choose(now, &g, s.count, l)
		s.count = n
	}
	if s.count != 4 {
		t.Errorf("%d are left", s.count)
	}
	cpu := g
	cpu.Autoscale = &release.Autoscale{Min: 1, Max: 9, Metric: release.CPU}
	used := 90
	standing[0].CPU = &used
	if l := cpu.LoadsOf(standing[:1]); l != (release.Loads{Heard: 90, All: 90, Up: 1}) || needs(&cpu, l.Heard) != 2 {
		t.Errorf("by cpu: %+v", l)
	}
	standing[0].CPU = nil
	if l := cpu.LoadsOf(standing[:1]); !l.Blind {
		t.Errorf("by cpu: %+v", l)
	}
	standing[0].Ready = false
	if l := cpu.LoadsOf(standing[:1]); l.Blind {
		t.Errorf("by cpu, coming up: %+v", l)
	}
}
