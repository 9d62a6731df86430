package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// holding is a group whose machine has volumes.
func holding(name string, volumes ...string) release.Group {
	c := &machine.Config{Image: good}
	for _, v := range volumes {
		c.Mounts = append(c.Mounts, machine.Mount{Volume: v, Path: "/" + v})
	}
	return release.Group{Name: name, Replicas: 1, Config: c, Update: &release.Update{MinUp: during(3 * time.Second)}}
}

// serving is a group of machines with a port of their worker, of which there is one.
func serving(name string, n, port int) release.Group {
	return release.Group{Name: name, Replicas: n, Config: &machine.Config{Image: good, Network: &machine.Network{
		Publish: []machine.Publish{{HostPort: port, Port: 80}}}},
		Update: &release.Update{MinUp: during(3 * time.Second)}}
}

// deploy has groups wanted.
func (r *rig) deploy(groups ...release.Group) {
	c, to := deployed(groups, 0)
	r.follow(c, to)
}

// refuse has no machine made that needs a volume which another one has, as a broker would, or more than workers with a port.
func (r *rig) refuse(o *Order) bool {
	g := r.releases[o.Replica.Release].Group(o.Replica.Group)
	for _, n := range claimsOf(g) {
		have := 0
		for _, m := range r.machines {
			if claims(r.releases[m.Release].Group(m.Group), n) {
				have++
			}
		}
		if n.volume != "" && have > 0 || have >= len(workers) {
			return true
		}
	}
	return false
}

// rolled goes on until there is nothing to do, and returns how often a machine was refused for what another one has.
func (r *rig) rolled() (refusals int) {
	for quiet := 0; quiet < 8; quiet++ {
		if r.steps++; r.steps > 3000 {
			r.t.Fatalf("it does not come to rest: %+v, %v", r.want.Progress, r.standing())
		}
		r.live()
		n := r.step(r.t)
		if n.Busy || len(r.under) > 0 {
			quiet = 0
		}
		for _, o := range n.Orders {
			r.log = append(r.log, fmt.Sprintf("%v %s %v %s", r.now.Unix()-1e9, o.Verb, o.Slot(), o.Why))
		}
		for i := len(r.under) - 1; i >= 0; i-- {
			outcome := carried
			if !r.clean && r.rnd.IntN(3) == 0 {
				continue
			}
			if o := &r.under[i].Order; o.Verb == Make && r.refuse(o) {
				refusals, outcome = refusals+1, refused
			}
			r.end(i, outcome, workers[r.rnd.IntN(len(workers))])
		}
		r.now = r.now.Add(500 * time.Millisecond)
	}
	return refusals
}

// TestReassignedVolumeOrPortIsFreedFirst: a volume or a port that a release gives to another group is free before that one's machine is
// made, whichever of them has changed, and the plan says so.
func TestReassignedVolumeOrPortIsFreedFirst(t *testing.T) {
	after := func(g release.Group, name string) release.Group {
		g.After = []string{name}
		return g
	}
	job := holding("job", "v")
	job.Cron, job.Update = &release.Cron{Schedule: "0 3 * * *"}, nil
	for _, tt := range []struct {
		name     string
		from, to []release.Group
		yields   string // of the plan
	}{
		{"another name", []release.Group{holding("db", "v")}, []release.Group{holding("data", "v")}, "db/0"},
		{"a mount moves", []release.Group{holding("a", "v"), holding("b")}, []release.Group{holding("a"), holding("b",
			"v")}, "a/0"},
		{"to a new group", []release.Group{holding("b", "v")}, []release.Group{holding("a", "v"), holding("b")}, "b/0"},
		{"and waits for it", []release.Group{holding("a", "v")}, []release.Group{holding("b", "v"),
			after(holding("a"), "b")}, "a/0"},
		{"two change places", []release.Group{holding("a", "v"), holding("b", "u")},
			[]release.Group{holding("a", "u"), holding("b", "v")}, ""},
		{"and one waits", []release.Group{holding("a", "v"), holding("b", "u")},
			[]release.Group{holding("a", "u"), after(holding("b", "v"), "a")}, ""},
		{"one of two", []release.Group{holding("a", "v", "u")}, []release.Group{holding("a", "v"), holding("b", "u")},
			"a/0"},
		{"a job's turn", []release.Group{holding("db", "v")}, []release.Group{job}, ""},
		{"a port", []release.Group{serving("db", 3, 5432)}, []release.Group{serving("data", 3, 5432)}, "db/0"},
	} {
		r := newRig(t, 1, tt.from[0], true)
		r.deploy(tt.from...)
		r.rolled()
		r.deploy(tt.to...)
		p, yields := Foresee(r.now, &r.want, r.standing()), []string{}
		for _, g := range p.Groups {
			for _, x := range g.Replicas {
				if strings.Contains(x.Why, "goes first") {
					yields = append(yields, x.Slot.String())
				}
			}
		}
		if got := strings.Join(yields, " "); got != tt.yields {
			t.Errorf("%s: %q go first, want %q: %s", tt.name, got, tt.yields, textOf(&p))
		}
		if n := r.rolled(); n > 0 {
			r.t.Fatalf("%s: %d refusals", tt.name, n)
		}
		r.stands(tt.name, tt.to)
	}
}

// stands fails where the rollout is not done, or not each group has its machines.
func (r *rig) stands(name string, groups []release.Group) {
	if p := r.want.Progress; p.State != release.Done || p.Undo {
		r.t.Fatalf("%s: %+v", name, p)
	}
	wanted := 0
	for _, g := range groups {
		if g.Cron == nil {
			wanted += g.Replicas
		}
	}
	if len(r.machines) != wanted {
		r.t.Fatalf("%s: %v", name, r.standing())
	}
	for _, m := range r.machines {
		if m.Spec != r.want.Release.Spec(r.want.Release.Group(m.Group), 0) || !m.Ready {
			r.t.Fatalf("%s: %+v", name, m)
		}
	}
}

// TestPortReassignmentKeepsUpdateLimits: of several machines of a group that gets another name one at a time lacks its port, or as many as
// may.
func TestPortReassignmentKeepsUpdateLimits(t *testing.T) {
	for most, update := range map[int]release.Update{1: {}, 2: {MaxUnavailable: "2"}} {
		update.MinUp = during(3 * time.Second)
		r := newRig(t, 1, serving("db", 3, 5432), true)
		r.rest()
		to := serving("data", 3, 5432)
		to.Update = &update
		r.deploy(to)
		r.each = func() {
			ready := 0
			for _, m := range r.machines {
				if m.Ready {
					ready++
				}
			}
			if ready < 3-most {
				r.t.Fatalf("%d of 3 are ready: %v", ready, r.standing())
			}
		}
		r.rest()
		r.stands("a port", []release.Group{to})
	}
}

// TestUndoRestoresReassignedVolumesAndPorts: what went first comes back, and has what it had.
func TestUndoRestoresReassignedVolumesAndPorts(t *testing.T) {
	for _, to := range [][]release.Group{{holding("data", "v")}, {holding("db"), holding("data", "v")}} {
		r := newRig(t, 1, holding("db", "v"), true)
		r.rest()
		for i := range to {
			c := *to[i].Config
			c.Image = crash
			to[i].Config = &c
		}
		r.deploy(to...)
		r.rolled()
		if p := r.want.Progress; p.State != release.Done || !p.Undo || len(r.machines) != 1 {
			r.t.Fatalf("%+v: %v", p, r.standing())
		}
		for _, m := range r.machines {
			if m.Group != "db" || r.image(m) != good || !m.Ready {
				r.t.Fatalf("%+v", m)
			}
		}
	}
}

// TestRandomVolumeReassignmentsSettle: groups draw names and volumes for each release, and orders end in any order: each release comes to
// stand.
func TestRandomVolumeReassignmentsSettle(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		r := newRig(t, seed, holding("z"), seed%2 == 0)
		for range 4 {
			has := map[string][]string{}
			for _, volume := range []string{"u", "v", "w"} {
				name := []string{"a", "b", "c", "d"}[rnd.IntN(4)]
				has[name] = append(has[name], volume)
			}
			for _, name := range []string{"a", "b"} {
				if rnd.IntN(2) == 0 && has[name] == nil {
					has[name] = []string{}
				}
			}
			var groups []release.Group
			for _, name := range slices.Sorted(maps.Keys(has)) {
				g := holding(name, has[name]...)
				if len(groups) > 0 && rnd.IntN(3) == 0 {
					g.After = []string{groups[0].Name}
				}
				groups = append(groups, g)
			}
			r.deploy(groups...)
			r.log = append(r.log, fmt.Sprintf("seed %d: %v", seed, has))
			r.steps = 0
			r.rolled()
			r.stands("draw", groups)
		}
	}
}
