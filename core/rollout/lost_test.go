package rollout

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestLostWorkerPolicyDecidesReplacement: the group's policy decides about a slot whose worker is silent, and about
// which machine stays when the worker returns.
func TestLostWorkerPolicyDecidesReplacement(t *testing.T) {
	now := time.Unix(1e9, 0)
	mount := []machine.Mount{{Name: "data", Path: "/data"}}
	after := &machine.Duration{Duration: time.Minute}
	for _, tt := range []struct {
		name   string
		group  release.Group
		usual  time.Duration // Want.LostAfter
		silent time.Duration
		want   string // of the steward while the worker is silent
		gone   string // the machine that is removed when it is heard again
	}{
		{"no word", release.Group{}, 0, 4 * time.Second, "make", "new"},
		{"replace", release.Group{OnLost: release.Replace}, 0, 4 * time.Second, "make", "new"},
		{"fenced", release.Group{OnLost: release.Fenced}, 0, 4 * time.Second, "make", "old"},
		{"never", release.Group{OnLost: release.Never}, 0, time.Hour, "", "new"},
		{"a volume", release.Group{Config: &machine.Config{Image: "i", Mounts: mount}}, 0, time.Hour, "", "new"},
		{"pace wan", release.Group{}, 10 * time.Second, 9 * time.Second, "", "new"},
		{"pace wan, over", release.Group{}, 10 * time.Second, 10 * time.Second, "make", "new"},
		{"pace wan, and a word", release.Group{LostAfter: after}, 10 * time.Second, 59 * time.Second, "", "new"},
		{"it stops", release.Group{StopAfter: &machine.Duration{Duration: 2 * time.Second}}, 0, 3 * time.Second,
			"make", "new"},
		{"it stops late", release.Group{Single: true, StopAfter: after}, 0, time.Hour, "", "new"},
		{"single", release.Group{Single: true}, 0, time.Hour, "", "new"},
		{"later", release.Group{LostAfter: after}, 0, 59 * time.Second, "", "new"},
		{"later, over", release.Group{LostAfter: after}, 0, time.Minute, "make", "new"},
	} {
		g := tt.group
		g.Name, g.Replicas = "web", 1
		if g.Config == nil {
			g.Config = &machine.Config{Image: "i"}
		}
		r := &release.Release{Schema: release.Schema, Groups: []release.Group{g}}
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		want := &Want{App: "a", Release: r, LostAfter: tt.usual, Head: next(t, nil, release.Change{Release: r.ID()},
			r, nil)}
		old := release.Standing{ID: "old", Worker: "w1", State: machine.Started, Unheard: true,
			Silent:  now.Add(-tt.silent),
			Replica: machine.Replica{Group: "web", Epoch: 4096, Spec: r.Spec(&g, 0)}}
		look := func(standing ...release.Standing) (got string) {
			s := NewSteward(cluster.Term{})
			s.Begin(cluster.Term{Number: 2, Member: "m"})
			n := s.Step(now, want, standing)
			if n.Tell {
				seen := *want
				seen.Progress = n.Progress
				n = s.Step(now, &seen, standing)
			}
			for _, o := range n.Orders {
				got += string(o.Verb)
				if o.Verb == Remove {
					got += " " + o.Machine
				}
			}
			return got
		}
		if got := look(old); got != tt.want {
			t.Errorf("%s: %q while the worker is silent, want %q", tt.name, got, tt.want)
		}
		younger := old
		old.Unheard, old.Ready = false, true
		younger.ID, younger.Epoch, younger.Unheard, younger.Ready = "new", 8192, false, true
		if got := look(old, younger); got != "remove "+tt.gone {
			t.Errorf("%s: %q once it is heard, want %s to be removed", tt.name, got, tt.gone)
		}
	}
	for name, g := range map[string]release.Group{
		"a word":                    {OnLost: "perhaps"},
		"no time":                   {LostAfter: &machine.Duration{}},
		"a stop too late":           {StopAfter: &machine.Duration{Duration: 2*time.Second + 1}},
		"a stop too late for wan":   {LostAfter: after, StopAfter: after},
		"a stop at once":            {OnLost: release.Never, StopAfter: &machine.Duration{}},
		"a single that is replaced": {Single: true, OnLost: release.Replace},
		"a single that is fenced":   {Single: true, OnLost: release.Fenced},
		"two of a single":           {Single: true, Replicas: 2},
		"a volume that is replaced": {OnLost: release.Replace, Config: &machine.Config{Image: "i", Mounts: mount}},
	} {
		if g.Name = "web"; g.Config == nil {
			g.Config = &machine.Config{Image: "i"}
		}
		if err := (&release.Release{Schema: release.Schema, Groups: []release.Group{g}}).Check(); !fault.Is(err,
			fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
