package release

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func releaseOf(image string, counts map[string]int) *Release {
	r := &Release{Schema: Schema, At: time.Unix(1e9, 0).UTC()}
	for _, name := range []string{"a", "b", "web"} {
		if n, there := counts[name]; there {
			r.Groups = append(r.Groups, Group{Name: name, Replicas: n, Config: &machine.Config{Image: image}})
		}
	}
	return r
}

func next(t *testing.T, h *Head, c Change, r, before *Release) *Head {
	t.Helper()
	n, err := h.Next(c, r, before, Progress{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestScaledCountSurvivesDeploys: a number that somebody chose stays, until the release says another one than before.
func TestScaledCountSurvivesDeploys(t *testing.T) {
	one := releaseOf("one", map[string]int{"a": 1, "web": 3})
	h := next(t, nil, Change{Release: one.ID()}, one, nil)
	h = next(t, h, Change{Counts: map[string]int{"web": 5}, Why: WhyScale}, one, one)
	two := releaseOf("two", map[string]int{"a": 2, "web": 3})
	h = next(t, h, Change{Release: two.ID()}, two, one)
	if h.Count(two.Group("web")) != 5 || h.Count(two.Group("a")) != 2 {
		t.Error("after a deploy that says what it said:", h.Counts)
	}
	three := releaseOf("three", map[string]int{"a": 2, "web": 4})
	if g := next(t, h, Change{Release: three.ID()}, three, two); g.Count(three.Group("web")) != 4 {
		t.Error("after a deploy that says another number:", g.Counts)
	}
	if g := next(t, h, Change{Release: three.ID()}, three, nil); g.Count(three.Group("web")) != 5 {
		t.Error("where nobody knows what the release before said:", g.Counts)
	}
	back := next(t, h, Change{Counts: map[string]int{"web": 3}}, two, two)
	if len(back.Counts) != 0 {
		t.Error("the release's own number is no choice:", back.Counts)
	}
	none := releaseOf("none", map[string]int{"a": 2})
	if g := next(t, h, Change{Release: none.ID()}, none, two); len(g.Counts) != 0 {
		t.Error("of a group that is no more:", g.Counts)
	}
	if _, err := h.Next(Change{Counts: map[string]int{"wbe": 2}}, two, two,
		Progress{}); !fault.Is(err, fault.NotFound) ||
		!strings.Contains(err.Error(), "a, web") {
		t.Error(err)
	}
}

// TestConcurrentHeadsAreDetectedAsForks: heads that were written without knowing of each other are told from those that follow on each other.
func TestConcurrentHeadsAreDetectedAsForks(t *testing.T) {
	r := releaseOf("one", map[string]int{"web": 3})
	first := next(t, nil, Change{Release: r.ID(), By: "me"}, r, nil)
	left := next(t, first, Change{Counts: map[string]int{"web": 4}, By: "left"}, r, r)
	right := next(t, first, Change{Counts: map[string]int{"web": 5}, By: "right"}, r, r)
	late := right
	for range 3 {
		late = next(t, late, Change{Restart: true}, r, r)
	}
	if late.Restarted != 3 || late.Number != 5 || len(late.Past) != 4 || late.Past[3].By != "me" {
		t.Errorf("%+v", late)
	}
	for _, tt := range []struct {
		name     string
		new, old *Head
		want     bool
	}{
		{"the same", first, first, false}, {"its child", left, first, false}, {"its parent", first, left, false},
		{"a grandchild", late, first, false}, {"beside", left, right, true}, {"beside, further on", late, left, true},
	} {
		if got := tt.new.Overtakes(tt.old); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	for range 30 {
		late = next(t, late, Change{Restart: true}, r, r)
	}
	if len(late.Past) != MaxKept || late.Overtakes(first) {
		t.Errorf("%d heads before it are kept; far behind: %v", len(late.Past), late.Overtakes(first))
	}
	if err := late.Check(); err != nil {
		t.Error(err)
	}
}

// TestInvalidReleasesAreRefused: each is refused, with a sentence.
func TestInvalidReleasesAreRefused(t *testing.T) {
	config := &machine.Config{Image: "i"}
	group := func(f func(*Group)) *Release {
		g := Group{Name: "web", Replicas: 2, Config: &machine.Config{Image: "i"}}
		f(&g)
		return &Release{Schema: Schema, Groups: []Group{g}}
	}
	many := &Release{Schema: Schema}
	for i := range MaxGroups + 1 {
		many.Groups = append(many.Groups, Group{Name: "g" + strings.Repeat("x", i%40) + string(rune('a'+i/40)),
			Config: config})
	}
	for _, tt := range []struct {
		name string
		r    *Release
		want string // in the sentence
	}{
		{"nothing", &Release{Schema: Schema}, "1 to 64 groups; got 0"},
		{"65 groups", many, "got 65"},
		{"a newer schema", &Release{Schema: 2}, "a newer souk wrote it, so upgrade this one"},
		{"none", &Release{}, "schema 0"},
		{"10,000 replicas", group(func(g *Group) { g.Replicas = 10_000 }), "10000 replicas; 0 to 1000"},
		{"-1", group(func(g *Group) { g.Replicas = -1 }), "-1 replicas"},
		{"a name", group(func(g *Group) { g.Name = "Web!" }), `"Web!" cannot name a group`},
		{"two of a name", &Release{Schema: Schema, Groups: []Group{{Name: "a", Config: config},
			{Name: "a", Config: config}}}, "two groups a"},
		{"no config", group(func(g *Group) { g.Config = nil }), "no config"},
		{"auto_destroy", group(func(g *Group) { g.Config.AutoDestroy = true }), "auto_destroy"},
		{"a schedule", group(func(g *Group) { g.Config.Schedule = "daily" }), "schedule"},
		{"one volume", group(func(g *Group) { g.Config.Mounts = []machine.Mount{{Volume: "vol_1"}} }),
			"a volume, which one machine can have"},
		{"more machines than replicas", group(func(g *Group) {
			g.Config.Services = []machine.Service{{CreateUpTo: new(3)}}
		}), "create_up_to"},
		{"a long note", &Release{Schema: Schema, Groups: group(func(*Group) {}).Groups,
			Note: strings.Repeat("x", 201)}, "at most 200 bytes"},
		{"257 KiB", group(func(g *Group) { g.Config.Env = map[string]string{"A": strings.Repeat("x", 257<<10)} }),
			"262144 are the most"},
	} {
		if err := tt.r.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	good := group(func(*Group) {})
	if err := good.Check(); err != nil || len(good.ID()) != 32 || good.ID() != good.ID() {
		t.Error(err, good.ID())
	}
}

// TestStewardChoiceIsAgreedAndStable: all agree, one that is busy stays, and one more member moves little.
func TestStewardChoiceIsAgreedAndStable(t *testing.T) {
	three := []cluster.WorkerID{"w1", "w2", "w3"}
	busy := Tenure{Term: termOf(3, "w2"), Busy: true}
	if got := StewardOf("app", three, busy); got != "w2" {
		t.Error("a busy one goes on:", got)
	}
	if got := StewardOf("app", three[:1], busy); got != "w1" {
		t.Error("it is not heard:", got)
	}
	if got := StewardOf("app", nil, busy); got != "" {
		t.Error("nobody is there:", got)
	}
	moved, by := 0, map[string]int{}
	for i := range 300 {
		app := string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		before, after := StewardOf(app, three, Tenure{}), StewardOf(app, append(three[:3:3], "w4"), Tenure{})
		by[string(before)]++
		if before != after {
			if moved++; after != "w4" {
				t.Errorf("%s moved from %s to %s", app, before, after)
			}
		}
	}
	if moved < 40 || moved > 120 || by["w1"] < 60 || by["w2"] < 60 || by["w3"] < 60 {
		t.Errorf("%d of 300 moved; %v", moved, by)
	}
}

func termOf(n uint64, member cluster.WorkerID) cluster.Term {
	return cluster.Term{Number: n, Member: member}
}

// TestUndoReturnsToTheLastSuccess: an undo returns to the release of the last successful rollout, past failed deploys.
func TestUndoReturnsToTheLastSuccess(t *testing.T) {
	releases := map[string]*Release{}
	for _, name := range []string{"a", "b", "c"} {
		releases[name] = releaseOf(name, map[string]int{"web": 3})
	}
	name := func(id string) string {
		for n, r := range releases {
			if r.ID() == id {
				return n
			}
		}
		return ""
	}
	for _, tt := range []struct {
		steps string // each a deploy (a, b, c), or what came of it (done, undone, paused), or what somebody says
		want  string // the release that is in force, and the one from before
	}{
		{"a", "a"}, {"a done", "a"}, {"a b", "b"}, {"a done b", "b a"}, {"a done b c", "c a"},
		{"a done b undone", "a a"}, {"a done b undone c", "c a"}, {"a done b done c", "c b"},
		{"a done b a", "a"}, {"a done b paused c", "c a"}, {"a done b paused resume", "b a"},
		{"a done b undone resume", "b a"}, {"a done b undone scale", "a"}, {"a done b scale", "b a"},
		{"a done restart", "a a"}, {"a done b undone restart", "a a"}, {"a done b pause", "b a"},
		{"a done b pause resume", "b a"}, {"a done b pause promote", "b a"},
	} {
		var h *Head
		var p Progress
		for _, word := range strings.Fields(tt.steps) {
			var in Target
			if h != nil {
				in = h.InForce(p)
			}
			before := releases[name(in.Release)]
			c, to := Change{Why: word}, before
			switch word {
			case "done", "undone", "paused":
				p = Progress{Rollout: h.Rollout, Release: h.Release, State: Done, Undo: word == "undone"}
				if word == "paused" {
					p.State = Paused
				}
				continue
			case "restart":
				c.Restart = true
			case "resume":
				c.Resume, to = true, releases[name(h.Release)]
			case "scale":
				c.Counts = map[string]int{"web": 5}
			case "pause":
				c.Pause = true
			case "promote":
				c.Promote = 1
			default:
				to = releases[word]
				c.Release = to.ID()
			}
			n, err := h.Next(c, to, before, p)
			if err != nil {
				t.Fatalf("%s: %v", tt.steps, err)
			}
			h = n
		}
		got := name(h.InForce(p).Release)
		if h.Before != nil {
			got += " " + name(h.Before.Release)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.steps, got, tt.want)
		}
	}
}
