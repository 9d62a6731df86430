package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// TestCanaryStepsCountNewReplicas: how many replicas are new at each step is told beforehand, and of the step while it is on.
func TestCanaryStepsCountNewReplicas(t *testing.T) {
	g := release.Group{Name: "web", Replicas: 3, Config: &machine.Config{Image: good},
		Update: &release.Update{Strategy: release.Canary,
			Steps: []release.CanaryStep{{Percent: 1}, {Percent: 34}}, MinUp: during(time.Second)}}
	r := newRig(t, 1, g, true)
	if p := Foresee(r.now, &r.want, r.standing()); p.Groups[0].Canary != nil {
		t.Errorf("the first release is new at %v", p.Groups[0].Canary)
	}
	r.rest()
	r.roll(g, other)
	if p := Foresee(r.now, &r.want, r.standing()); !slices.Equal(p.Groups[0].Canary, []int{1, 2}) {
		t.Errorf("the plan has %v new", p.Groups[0].Canary)
	}
	for step, want := range [][]release.CanaryAt{
		{{Group: "web", New: 1, Wanted: 3}}, {{Group: "web", New: 2, Wanted: 3}}, nil,
	} {
		for range 100 {
			r.tick()
		}
		told := release.Service{App: "shop", Head: r.want.Head, Release: r.want.Release, Before: r.want.Before,
			Tenure: release.Tenure{Notes: release.Notes{Progress: r.want.Progress}}}
		if s := told.Tell(nil); !slices.Equal(s.Canary, want) {
			t.Errorf("at step %d: %v, want %v", step, s.Canary, want)
		}
		r.follow(release.Change{Promote: step + 1, Why: release.WhyPromote}, nil)
	}
}

// TestCanaryReplacesAddedReplicasFirst: replicas that are added with the release are its first, so that no old machine goes for
// them, and at each step one old machine stays at least, beside the new one where there is only one replica.
func TestCanaryReplacesAddedReplicasFirst(t *testing.T) {
	volume := &machine.Config{Image: good, Mounts: []machine.Mount{{Name: "data", Path: "/d"}}}
	canary := &release.Update{Strategy: release.Canary, MinUp: during(time.Second)}
	most := &release.Update{Strategy: release.Canary, Steps: []release.CanaryStep{{Percent: 99}},
		MinUp: during(time.Second)}
	for _, tt := range []struct {
		name     string
		from, to int // replicas
		update   *release.Update
		config   *machine.Config
		scale    int // at the step, to so many; 0: not
		old, new int // ready machines at the step
	}{
		{"3 to 4", 3, 4, canary, nil, 0, 3, 1},
		{"4 to 3", 4, 3, canary, nil, 0, 2, 1},
		{"most of 3", 3, 3, most, nil, 0, 1, 2},
		{"one", 1, 1, canary, nil, 0, 1, 1},
		{"one with a volume", 1, 1, canary, volume, 0, 1, 0},
		{"8, scaled to 1", 8, 8, canary, nil, 1, 1, 1},
		{"1, scaled to 3", 1, 1, canary, nil, 3, 2, 1},
	} {
		g := release.Group{Name: "web", Replicas: tt.from, Config: &machine.Config{Image: good}, Update: tt.update}
		if tt.config != nil {
			g.Config = tt.config
		}
		r := newRig(t, 1, g, true)
		r.rest()
		g.Replicas = tt.to
		r.roll(g, other)
		r.log = append(r.log, tt.name)
		r.pass(2 * time.Minute)
		if tt.scale > 0 {
			r.scale("web", tt.scale)
			r.pass(2 * time.Minute)
		}
		have := map[string]int{}
		for _, m := range r.machines {
			if m.Ready && m.Index < max(tt.to, tt.scale) {
				have[r.image(m)]++
			}
		}
		if have[good] != tt.old || have[other] != tt.new {
			r.t.Fatalf("%s: %v are ready at the step, want %d and %d", tt.name, have, tt.old, tt.new)
		}
		all := release.Service{App: "a", Head: r.want.Head, Release: r.want.Release, Before: r.want.Before,
			Tenure: release.Tenure{Notes: release.Notes{Progress: r.want.Progress}}}
		if s := all.Tell(func(string) int { return have[other] }); s.State != release.RolledWaiting {
			r.t.Fatalf("%s: at the step the rollout is %s", tt.name, s.State)
		}
		r.rest() // which promotes it
		r.ends(other, release.Done, false)
	}
}
