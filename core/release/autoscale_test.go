package release

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
)

// served is a group with a service of limits, that scales.
func served(soft, hard int, a Autoscale) Group {
	s := machine.Service{InternalPort: 80}
	if soft > 0 || hard > 0 {
		s.Concurrency = &machine.Concurrency{SoftLimit: soft, HardLimit: hard}
	}
	return Group{Name: "web", Replicas: a.Min, Autoscale: &a,
		Config: &machine.Config{Image: "good", Services: []machine.Service{s}}}
}

// TestInvalidAutoscalesAreRefused: each invalid autoscale rule is refused with its fault.
func TestInvalidAutoscalesAreRefused(t *testing.T) {
	two := func(a Autoscale) Autoscale { a.Min, a.Max = 2, 4; return a }
	volume := served(1, 0, two(Autoscale{}))
	volume.Replicas, volume.Config.Mounts = 1, []machine.Mount{{Name: "data", Path: "/d"}}
	single := served(1, 0, two(Autoscale{}))
	single.Replicas, single.Single = 1, true
	alone := single
	alone.Autoscale = &Autoscale{Min: 1, Max: 1}
	many := served(1, 0, two(Autoscale{}))
	many.Replicas = 5
	none := served(0, 0, two(Autoscale{Target: 5}))
	none.Config = &machine.Config{Image: "good"}
	for _, tt := range []struct {
		g    Group
		want string // "": it can be
	}{
		{served(20, 25, two(Autoscale{})), ""}, {served(0, 0, two(Autoscale{Target: 5})), ""}, {alone, ""},
		{served(0, 0, two(Autoscale{Metric: CPU})), ""}, {served(0, 25, two(Autoscale{Metric: Concurrency})), ""},
		{served(1, 0, Autoscale{Min: 0, Max: 2}), "min = 0"},
		{served(1, 0, Autoscale{Min: 3, Max: 2}), "min not above"},
		{served(1, 0, Autoscale{Min: 1, Max: 1001}), "1 to 1000"}, {volume, "has a volume"}, {single, "is single"},
		{many, "replicas = 5, and autoscale 2 to 4"}, {served(1, 0, two(Autoscale{Metric: "memory"})), "memory"},
		{served(1, 0, two(Autoscale{DownAfter: during(0)})), "down_after"},
		{served(1, 0, two(Autoscale{DownAfter: during(25 * time.Hour)})), "down_after"},
		{served(1, 0, two(Autoscale{Target: -1})), "target = -1"}, {none, "no services"},
		{served(0, 0, two(Autoscale{})), "nothing says how much"},
		{served(1, 0, two(Autoscale{Metric: CPU, Target: 101})), "1 to 100 per cent"},
	} {
		err := (&Release{Schema: Schema, Groups: []Group{tt.g}}).Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.g.Autoscale, err, tt.want)
		}
	}
}

// TestScaledCountsOfAStewardAreBounded: a steward's word is bounded.
func TestScaledCountsOfAStewardAreBounded(t *testing.T) {
	for _, x := range []Scaled{{Count: -1}, {Count: 1001}, {Lacks: strings.Repeat("x", MaxLacks+1)}} {
		if err := (&Tenure{Notes: Notes{Scaled: map[string]Scaled{"web": x}}}).Check(); err == nil {
			t.Errorf("%+v is taken", x)
		}
	}
}
