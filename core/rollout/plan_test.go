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

// TestForeseeTellsEachReplicasChange says per replica what a deploy does.
func TestForeseeTellsEachReplicasChange(t *testing.T) {
	web := func(n int, image string, u *release.Update) release.Group {
		return release.Group{Name: "web", Replicas: n, Config: &machine.Config{Image: image}, Update: u}
	}
	for _, tt := range []struct {
		name     string
		from, to []release.Group
		change   func(w *world, r *release.Release) // before the new head is written
		restart  bool                               // in the place of a deploy
		want     string                             // replicas, then the groups
		first    string                             // orders of the first step
	}{
		{name: "nothing", from: []release.Group{web(2, good, nil)}, to: []release.Group{web(2, good, nil)},
			want: "web/0 keep, web/1 keep; web rolling start-first 2 now 2 most 2"},
		{name: "other image", from: []release.Group{web(4, good, nil)}, to: []release.Group{web(4, other,
			&release.Update{MaxSurge: "2"})},
			want:  "web/0 update, web/1 update, web/2 update, web/3 update; web rolling start-first 4 now 4 most 6",
			first: "make web/0, make web/1"},
		{name: "more", from: []release.Group{web(1, good, nil)}, to: []release.Group{web(3, good, nil)},
			want:  "web/0 keep, web/1 create, web/2 create; web rolling start-first 3 now 1 most 3",
			first: "make web/1, make web/2"},
		{name: "fewer", from: []release.Group{web(2, good, nil)}, to: []release.Group{web(1, other, nil)},
			want:  "web/0 update, web/1 destroy; web rolling start-first 1 now 2 most 3",
			first: "make web/0"},
		{name: "stop first", from: []release.Group{web(3, good, nil)}, to: []release.Group{web(3, other,
			&release.Update{Order: release.StopFirst})},
			want:  "web/0 update, web/1 update, web/2 update; web rolling stop-first 3 now 3 most 3",
			first: "remove web/0, make web/0"},
		{name: "blue and green", from: []release.Group{web(2, good, nil)}, to: []release.Group{web(2, other,
			&release.Update{Strategy: release.BlueGreen})},
			want:  "web/0 update, web/1 update; web bluegreen start-first 2 now 2 most 4",
			first: "make web/0, make web/1"},
		{name: "canary", from: []release.Group{web(4, good, nil)}, to: []release.Group{web(4, other,
			&release.Update{Strategy: release.Canary})},
			want:  "web/0 update, web/1 update, web/2 update, web/3 update; web canary start-first 4 now 4 most 5",
			first: "make web/0"},
		{name: "another group", from: []release.Group{web(1, good, nil)},
			to:    []release.Group{{Name: "job", Replicas: 1, Config: &machine.Config{Image: good}}},
			want:  "job/0 create, web/0 destroy; job rolling start-first 1 now 0 most 1; web 0 now 1 most 1",
			first: "make job/0"},
		{name: "after another", from: []release.Group{web(1, good, nil)}, to: []release.Group{web(1, other, nil),
			{Name: "job", Replicas: 1, Config: &machine.Config{Image: good}, After: []string{"web"}}},
			want: "web/0 update, job/0 create; web rolling start-first 1 now 1 most 2; " +
				"job rolling start-first 1 now 0 most 1",
			first: "make job/0, make web/0"},
		{name: "a job that is new", from: []release.Group{web(1, good, nil)}, to: []release.Group{web(1, other, nil),
			{Name: "job", Replicas: 1, Config: &machine.Config{Image: good}, Cron: &release.Cron{Schedule: "@daily"}}},
			want:  "web/0 update; web rolling start-first 1 now 1 most 2; job rolling start-first 0 now 0 most 0",
			first: "make web/0"},
		{name: "secrets", from: []release.Group{web(1, good, nil)}, to: []release.Group{web(1, good, nil)},
			change: func(w *world, r *release.Release) { r.Keys = map[string]time.Time{"A": w.now} },
			want:   "web/0 restart (secrets); web rolling start-first 1 now 1 most 2", first: "make web/0"},
		{name: "restart", from: []release.Group{web(1, good, nil)}, restart: true,
			want: "web/0 restart; web rolling start-first 1 now 1 most 2", first: "make web/0"},
		{name: "a drained worker", from: []release.Group{web(2, good, nil)}, to: []release.Group{web(2, good, nil)},
			change: func(w *world, _ *release.Release) {
				for _, m := range w.machines {
					m.Leaves = m.Index == 1
				}
			},
			want: "web/0 keep, web/1 move; web rolling start-first 2 now 2 most 3", first: "make web/1"},
	} {
		w := newWorld(map[string]int{})
		w.follow(deployed(tt.from, 0))
		w.settle(t)
		switch {
		case tt.restart:
			w.restart()
		default:
			r := &release.Release{Schema: release.Schema, Groups: tt.to}
			if tt.change != nil {
				tt.change(w, r)
			}
			w.follow(release.Change{Release: r.ID(), Why: release.WhyDeploy}, r)
		}
		p := Foresee(w.now, &w.want, w.standing())
		if got := textOf(&p); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
		var first []string
		for _, o := range p.First {
			first = append(first, fmt.Sprint(o.Verb, " ", o.Slot()))
		}
		if got := strings.Join(first, ", "); got != tt.first {
			t.Errorf("%s: first %s, want %s", tt.name, got, tt.first)
		}
	}
}

// deployed returns the change that deploys groups.
func deployed(groups []release.Group, secrets uint64) (release.Change, *release.Release) {
	r := &release.Release{Schema: release.Schema, Groups: groups, Secrets: secrets}
	return release.Change{Release: r.ID(), Why: release.WhyDeploy}, r
}

func textOf(p *Plan) string {
	var slots, groups []string
	for _, g := range p.Groups {
		for _, r := range g.Replicas {
			text := fmt.Sprint(r.Slot, " ", r.Does)
			if strings.Contains(r.Why, "secrets") {
				text += " (secrets)"
			}
			slots = append(slots, text)
		}
		text := fmt.Sprintf("%s %s %s %d now %d most %d", g.Name, g.Strategy, g.Order, g.Wanted, g.Now, g.Most)
		groups = append(groups, strings.Join(strings.Fields(text), " "))
	}
	return strings.Join(slots, ", ") + "; " + strings.Join(groups, "; ")
}

// TestRolloutFollowsItsPlan: where no machine fails, each replica becomes what was planned, and there are never more machines
// than the plan's worst moment has.
func TestRolloutFollowsItsPlan(t *testing.T) { appliedAsPlanned(t, 1000) }

func appliedAsPlanned(t *testing.T, seeds uint64) {
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 3))
		pick := func(image string) release.Group {
			all := groupsOf(rnd.IntN(8), release.Undo)
			names := slices.Sorted(maps.Keys(all))
			g := all[names[rnd.IntN(len(names))]]
			c := *g.Config
			c.Image = image
			if rnd.IntN(2) == 0 {
				c.Checks = map[string]machine.CheckConfig{"c": {}}
			}
			g.Config = &c
			return g
		}
		groups := func(image string) []release.Group {
			list := []release.Group{pick(image)}
			if rnd.IntN(2) == 0 {
				list = append(list, release.Group{Name: "job", Replicas: rnd.IntN(4),
					Config: &machine.Config{Image: image}})
				if rnd.IntN(2) == 0 {
					list[rnd.IntN(2)].After = []string{list[0].Name}
					list[0].After = nil
				}
			}
			return list
		}
		r := newRig(t, seed, groupsOf(1, release.Undo)["rolling"], true)
		r.follow(deployed(groups(good), 0))
		r.rest()
		for _, id := range slices.Sorted(maps.Keys(r.machines)) {
			switch rnd.IntN(8) {
			case 0:
				delete(r.machines, id)
			case 1:
				r.machines[id].Leaves = true
			}
		}
		switch rnd.IntN(6) {
		case 0:
			r.restart()
		case 1:
			r.follow(deployed(r.want.Release.Groups, 3))
		default:
			r.follow(deployed(groups([]string{good, other, other}[rnd.IntN(3)]), 0))
		}
		r.applied(seed)
	}
}

// applied plans, has the steward do all, and holds it against the plan.
func (r *rig) applied(seed uint64) {
	p := Foresee(r.now, &r.want, r.standing())
	r.log = append(r.log, fmt.Sprintf("seed %d: %s", seed, textOf(&p)))
	r.follow(release.Change{Promote: release.MaxSteps, Why: release.WhyPromote}, nil) // what waits may wait long
	before, most := maps.Clone(r.machines), map[string]int{}
	r.each = func() {
		now := map[string]int{}
		for _, m := range r.machines {
			now[m.Group]++
			most[m.Group] = max(most[m.Group], now[m.Group])
		}
	}
	r.each()
	r.rest()
	if q := r.want.Progress; q.State != release.Done || q.Undo {
		r.t.Fatalf("it ended %+v", q)
	}
	left := maps.Clone(r.machines)
	for _, g := range p.Groups {
		if most[g.Name] > g.Most {
			r.t.Fatalf("%d machines of %s at once, and %d were planned", most[g.Name], g.Name, g.Most)
		}
		for _, x := range g.Replicas {
			_, stays := r.machines[x.Machine]
			at := slices.IndexFunc(r.standing(), func(m release.Standing) bool { return m.Slot() == x.Slot })
			var found release.Standing
			if at >= 0 {
				found = r.standing()[at]
			}
			_, old := before[found.ID]
			var ok bool
			switch x.Does {
			case release.Keep:
				ok = stays && found.ID == x.Machine
			case release.Renew, release.Restart, release.Move:
				ok = !stays && at >= 0 && !old
			case release.Create:
				ok = x.Machine == "" && at >= 0 && !old
			case release.Destroy:
				ok = !stays
			}
			if !ok {
				r.t.Fatalf("%+v was planned, and there is %+v", x, found)
			}
			delete(left, found.ID)
		}
	}
	if len(left) > 0 {
		r.t.Fatalf("%v were not planned", left)
	}
}
