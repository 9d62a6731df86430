package release

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
)

func during(d time.Duration) *machine.Duration { return &machine.Duration{Duration: d} }

// TestInvalidUpdateRulesAreRefused: each invalid update rule is refused with its fault.
func TestInvalidUpdateRulesAreRefused(t *testing.T) {
	volume := &machine.Config{Image: "good", Mounts: []machine.Mount{{Name: "data", Path: "/d"}}}
	web := &machine.Config{Image: machine.HostImage, Services: []machine.Service{{InternalPort: 80}}}
	for _, tt := range []struct {
		u    Update
		c    *machine.Config
		want string // "": it can be
	}{
		{u: Update{}}, {u: Update{MaxSurge: "0"}}, {u: Update{MaxSurge: "25%", MaxUnavailable: "2"}},
		{u: Update{Strategy: "blue"}, want: "strategy"}, {u: Update{Order: "last"}, want: "order"},
		{u: Update{OnFailure: "cry"}, want: "on_failure"}, {u: Update{MaxSurge: "a lot"}, want: "max_surge"},
		{u: Update{MaxSurge: "101%"}, want: "max_surge"}, {u: Update{MaxUnavailable: "-1"}, want: "max_unavailable"},
		{u: Update{MaxSurge: "1001"}, want: "max_surge"},
		{u: Update{Deadline: during(0)}, want: "deadline"},
		{u: Update{Deadline: during(25 * time.Hour)}, want: "deadline"},
		{u: Update{MinUp: during(-1)}, want: "min_up"}, {u: Update{MinUp: during(5 * time.Minute)}, want: "deadline"},
		{u: Update{Order: StartFirst}, c: volume, want: "its volume"}, {u: Update{}, c: volume},
		{u: Update{Strategy: BlueGreen}, c: volume, want: "its volume"},
		{u: Update{Strategy: BlueGreen}, c: web, want: "port of the host"}, {u: Update{Strategy: Canary}, c: web},
		{u: Update{Strategy: BlueGreen, Order: StartFirst}, c: web},
		{u: Update{Strategy: BlueGreen, MaxSurge: "2"}, want: "max_surge"},
		{u: Update{Order: StopFirst, MaxSurge: "2"}, want: "max_surge"},
		{u: Update{Steps: []CanaryStep{{Percent: 5}}}, want: "steps"},
		{u: Update{Strategy: Canary, Steps: []CanaryStep{{Percent: 5}, {Percent: 50}}}},
		{u: Update{Strategy: Canary, Steps: []CanaryStep{{Percent: 50}, {Percent: 5}}}, want: "larger"},
		{u: Update{Strategy: Canary, Steps: []CanaryStep{{Percent: 100}}}, want: "per cent"},
		{u: Update{Strategy: Canary, Steps: []CanaryStep{{Percent: 5, For: during(0)}}}, want: "lasts"},
		{u: Update{Strategy: Canary, Steps: make([]CanaryStep, MaxSteps+1)}, want: "20 at most"},
	} {
		g := Group{Name: "web", Replicas: 1, Config: tt.c, Update: &tt.u}
		if g.Config == nil {
			g.Config = &machine.Config{Image: "good"}
		}
		err := (&Release{Schema: Schema, Groups: []Group{g}}).Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.u, err, tt.want)
		}
	}
	groups := func(after ...string) *Release {
		r := &Release{Schema: Schema}
		for i, name := range []string{"a", "b", "c"} {
			r.Groups = append(r.Groups, Group{Name: name, Config: &machine.Config{Image: "good"}})
			if after[i] != "" {
				r.Groups[i].After = []string{after[i]}
			}
		}
		return r
	}
	for _, tt := range []struct {
		r    *Release
		want string
	}{
		{groups("", "a", "b"), ""}, {groups("b", "c", ""), ""}, {groups("a", "", ""), "a comes after a"},
		{groups("b", "c", "a"), "a comes after b comes after c comes after a"}, {groups("x", "", ""), "group x"},
	} {
		err := tt.r.Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}
