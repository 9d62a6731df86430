package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// Images of machines in these tests: what becomes of one that is started.
const (
	good  = "good"  // it is ready a second later
	other = "other" // the same
	crash = "crash" // it ends by itself after a second
	mute  = "mute"  // it is never ready
)

// rig is a world whose machines do something by themselves.
type rig struct {
	*world
	t       failer
	rnd     *rand.Rand
	starts  map[string]time.Time
	clean   bool // each order is carried out, and answered
	kill    int  // the step at which the steward dies; 0: at none
	steps   int
	log     []string
	watched bool                         // what is there is held against what may be missing
	asleep  bool                         // machines rest once they were ready
	each    func()                       // nil, or called after each look
	away    bool                         // what all images need is not there: they crash
	sick    func(*release.Standing) bool // nil, or whether a machine that is up fails its checks
	refuses string                       // of which image; "": of any
	full    int                          // no machine is made for slots of this index and later; 0: each has room
}

type logs struct {
	*testing.T
	r *rig
}

func (l *logs) Fatalf(format string, args ...any) {
	l.T.Helper()
	for _, line := range l.r.log[max(0, len(l.r.log)-60):] {
		l.Log(line)
	}
	l.T.Fatalf(format, args...)
}

func newRig(t *testing.T, seed uint64, g release.Group, clean bool) *rig {
	w := &world{now: time.Unix(1e9, 0).UTC(), machines: map[string]*release.Standing{},
		obeyed:  map[cluster.WorkerID]cluster.Term{},
		steward: NewSteward(cluster.Term{}), releases: map[string]*release.Release{}}
	r := &rig{world: w, rnd: rand.New(rand.NewPCG(seed, 1)), starts: map[string]time.Time{}, clean: clean}
	r.t = &logs{t, r}
	r.roll(g, good)
	return r
}

// roll deploys a group with an image.
func (r *rig) roll(g release.Group, image string) {
	c := *g.Config
	c.Image = image
	g.Config = &c
	to := &release.Release{Schema: release.Schema, Groups: []release.Group{g}, Note: image, At: r.now}
	if err := to.Check(); err != nil {
		r.t.Fatalf("%v", err)
	}
	r.follow(release.Change{Release: to.ID(), Why: release.WhyDeploy}, to)
	r.log = append(r.log, fmt.Sprintf("deploy %s, number %d", image, r.want.Head.Number))
}

func (r *rig) image(m *release.Standing) string {
	of := r.releases[m.Release]
	if of == nil || of.Group(m.Group) == nil {
		return ""
	}
	return of.Group(m.Group).Config.Image
}

// live has the machines do what they do.
func (r *rig) live() {
	for _, id := range slices.Sorted(maps.Keys(r.machines)) {
		m := r.machines[id]
		if m.State != machine.Started {
			delete(r.starts, id)
			continue
		}
		since, known := r.starts[id]
		if !known {
			r.starts[id], since = r.now, r.now
		}
		if r.now.Sub(since) < time.Second {
			continue
		}
		image := r.image(m)
		if r.away {
			image = crash
		}
		switch image {
		case good, other:
			if m.Ready && r.asleep && r.now.Sub(since) > 8*time.Second {
				m.State, m.Ready, m.Rests = machine.Suspended, false, true
				continue
			}
			m.Ready = r.sick == nil || !r.sick(m)
		case crash:
			m.State, m.Died, m.Ready, m.Deaths = machine.Stopped, true, false, min(m.Deaths+1, machine.MaxDeaths)
			m.Loops = m.Deaths == machine.MaxDeaths
		}
	}
}

// tick is one look of the steward, and half a second.
func (r *rig) tick() (busy bool) {
	r.steps++
	if r.steps == r.kill || !r.clean && r.steps < 80 && r.rnd.IntN(20) == 0 {
		r.steward = NewSteward(cluster.Term{Number: r.term})
		r.log = append(r.log, "the steward dies")
	}
	r.live()
	before := r.want.Progress
	n := r.step(r.t)
	if p := r.want.Progress; p.State != before.State || p.Undo != before.Undo || p.Step != before.Step {
		r.log = append(r.log, fmt.Sprintf("progress %+v", p))
	}
	for _, o := range n.Orders {
		r.log = append(r.log, fmt.Sprintf("%v %s %v %s %s", r.now.Unix()-1e9, o.Verb, o.Slot(), o.Machine, o.Why))
	}
	for i := len(r.under) - 1; i >= 0; i-- {
		outcome := carried
		o := &r.under[i]
		if o.Verb == Make && r.full > 0 && o.Replica.Index >= r.full &&
			(r.refuses == "" || r.releases[o.Replica.Release].Groups[0].Config.Image == r.refuses) {
			outcome = refused
		}
		if !r.clean {
			if r.rnd.IntN(3) == 0 {
				continue
			}
			outcome = []int{carried, carried, carried, carried, carried, carried, refused, lost}[r.rnd.IntN(8)]
		}
		r.end(i, outcome, workers[r.rnd.IntN(len(workers))])
	}
	if r.watched {
		r.hold()
	}
	if r.each != nil {
		r.each()
	}
	r.now = r.now.Add(500 * time.Millisecond)
	return n.Busy || len(r.under) > 0
}

// hold fails where more replicas lack a machine, or more machines are there, than the group allows.
func (r *rig) hold() {
	in := r.want.Head.InForce(r.want.Progress)
	g := &r.releases[in.Release].Groups[0]
	n := r.want.Head.Wanted(g, r.want.Scaled)
	two, none := g.Surge(n)
	serving := map[int]bool{}
	for _, m := range r.machines {
		if (m.Ready || m.Asleep()) && !m.Cordoned {
			serving[m.Index] = true
		}
	}
	if g.OnFailure() != release.GoOn && len(serving) < n-none {
		r.t.Fatalf("%d of %d replicas serve, and %d may not: %v", len(serving), n, none, r.standing())
	}
	if r.clean && g.OnFailure() != release.GoOn && len(r.machines) > n+two {
		r.t.Fatalf("%d machines of %d, and %d more may be: %v", len(r.machines), n, two, r.standing())
	}
}

// rest goes on until there is nothing to do, and promotes the steps of canaries that wait for it.
func (r *rig) rest() {
	quiet := 0
	for range 6000 {
		if r.tick() {
			quiet = 0
			continue
		}
		if quiet++; quiet < 8 {
			continue
		}
		p := &r.want.Progress
		if p.State == "" && !r.want.Head.Paused && p.Of(r.want.Head) || !p.Of(r.want.Head) {
			if r.want.Release.Groups[0].Strategy() != release.Canary {
				r.t.Fatalf("it rests, and is not over: %+v", p)
			}
			r.follow(release.Change{Promote: p.Step + 1, Why: release.WhyPromote}, nil)
			r.log = append(r.log, fmt.Sprint("promote ", p.Step+1))
			quiet = 0
			continue
		}
		return
	}
	r.t.Fatalf("it does not come to rest: %+v, %v", r.want.Progress, r.standing())
}

// ends fails where not all machines are of one image and ready, or the rollout has not come to what it should.
func (r *rig) ends(image string, state release.State, undo bool) {
	p := &r.want.Progress
	if p.State != state || p.Undo != undo {
		r.t.Fatalf("it ended %+v", p)
	}
	if (undo || state == release.Paused) != (p.Why != "" && len(p.Failed) > 0) {
		r.t.Fatalf("it says %q of %+v", p.Why, p.Failed)
	}
	in := r.want.Head.InForce(*p)
	g := &r.releases[in.Release].Groups[0]
	have := map[int]int{}
	for _, m := range r.machines {
		switch {
		case state == release.Done && (r.image(m) != image || m.Cordoned || !(m.Ready || m.Asleep())):
			r.t.Fatalf("%v of %s, %+v", m.ID, r.image(m), m)
		case r.image(m) == image && m.Ready:
			have[m.Index]++
		}
	}
	want := r.want.Head.Wanted(g, r.want.Scaled)
	if !r.asleep && (len(have) != want || state == release.Done && len(r.machines) != want) {
		r.t.Fatalf("%d of %d replicas have a machine of %s: %v", len(have), want, image, r.standing())
	}
}

func during(d time.Duration) *machine.Duration { return &machine.Duration{Duration: d} }

// groups are groups of all strategies.
func groupsOf(n int, then release.OnFailure) map[string]release.Group {
	five := []release.CanaryStep{{Percent: 20, For: during(5 * time.Second)}, {Percent: 50}}
	out := map[string]release.Group{}
	for name, u := range map[string]release.Update{
		"rolling":       {},
		"in twos":       {MaxSurge: "2"},
		"surge and not": {MaxSurge: "1", MaxUnavailable: "50%"},
		"stop first":    {Order: release.StopFirst, MaxUnavailable: "2"},
		"canary":        {Strategy: release.Canary},
		"canary steps":  {Strategy: release.Canary, Steps: five, MaxSurge: "50%"},
		"bluegreen":     {Strategy: release.BlueGreen},
		"immediate":     {Strategy: release.Immediate},
	} {
		u.OnFailure, u.Deadline, u.MinUp = then, during(time.Minute), during(3*time.Second)
		out[name] = release.Group{Name: "web", Replicas: n, Config: &machine.Config{Image: good}, Update: &u}
	}
	volume := out["stop first"]
	volume.Replicas, volume.Config = min(n, 1), &machine.Config{Mounts: []machine.Mount{{Name: "data", Path: "/d"}}}
	volume.Update = &release.Update{Deadline: during(time.Minute), MinUp: during(3 * time.Second), OnFailure: then}
	out["volume"] = volume
	single := volume
	single.Single, single.Config = true, &machine.Config{Image: good}
	out["single"] = single
	return out
}

// TestRolloutsEndGoodOrUndone: with any strategy, failing orders and dying stewards, a good release ends with its
// machines, a bad one with the former machines, and never fewer serve than the group allows.
func TestRolloutsEndGoodOrUndone(t *testing.T) { rollouts(t, 300) }

// TestLongRolloutsEndGoodOrUndone is TestRolloutsEndGoodOrUndone many times.
func TestLongRolloutsEndGoodOrUndone(t *testing.T) { rollouts(t, 10_000) }

func rollouts(t *testing.T, seeds uint64) {
	names := slices.Sorted(maps.Keys(groupsOf(1, release.Undo)))
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 2))
		name, then := names[rnd.IntN(len(names))], []release.OnFailure{release.Undo, release.Undo, release.Undo,
			release.Pause, release.GoOn}[rnd.IntN(5)]
		image := []string{other, other, crash, mute}[rnd.IntN(4)]
		g := groupsOf(1+rnd.IntN(8), then)[name]
		if rnd.IntN(2) == 0 {
			c := *g.Config
			c.Checks, g.Config = map[string]machine.CheckConfig{"c": {}}, &c
		}
		r := newRig(t, seed, g, rnd.IntN(2) == 0)
		r.log = append(r.log, fmt.Sprintf("seed %d: %d replicas, %s, %s, then %s", seed, g.Replicas, name, image, then))
		r.rest()
		r.ends(good, release.Done, false)
		r.watched = true
		r.roll(g, image)
		back, meanwhile := good, rnd.IntN(6)
		for range rnd.IntN(20) {
			r.tick()
		}
		switch {
		case meanwhile == 0 && name != "volume" && name != "single":
			r.watched = false
			r.follow(release.Change{Counts: map[string]int{"web": 1 + rnd.IntN(8)}, Why: release.WhyScale}, nil)
		case meanwhile == 1: // another deploy takes over, and what it would go back to is the first
			r.watched = false
			if p := r.want.Progress; p.Of(r.want.Head) && p.State == release.Done && !p.Undo {
				back = image
			}
			image = []string{other, crash}[rnd.IntN(2)]
			r.roll(g, image)
		}
		r.rest()
		switch {
		case image == other:
			r.ends(other, release.Done, false)
		case then == release.Undo:
			// Who scales what was undone wants the release from before.
			r.ends(back, release.Done, meanwhile != 0 || r.want.Progress.Undo)
		case then == release.Pause && r.want.Progress.State == release.Paused && !r.want.Progress.Undo:
			r.roll(g, other) // and another deploy goes on
			r.rest()
			r.ends(other, release.Done, false)
		case then == release.GoOn && r.want.Progress.State == release.Done:
		default:
			r.t.Fatalf("%s ended with %+v", image, r.want.Progress)
		}
	}
}

// TestStewardDeathAtAnyStepChangesNoOutcome: the death of the steward at any step of any strategy does not change the
// rollout's end.
func TestStewardDeathAtAnyStepChangesNoOutcome(t *testing.T) {
	for name, g := range groupsOf(5, release.Undo) {
		for _, image := range []string{other, crash} {
			steps := 1
			for kill := 0; kill <= steps; kill++ {
				r := newRig(t, 1, g, true)
				r.rest()
				r.steps, r.kill, r.watched = 0, kill, true
				r.roll(g, image)
				r.log = append(r.log, fmt.Sprintf("%s, %s, the steward dies at step %d", name, image, kill))
				r.rest()
				if kill == 0 {
					steps = r.steps
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

// TestSleepingGroupWakesOneToJudgeARelease: the release of a sleeping group is judged by one woken machine; the others
// are made asleep.
func TestSleepingGroupWakesOneToJudgeARelease(t *testing.T) {
	for name, g := range groupsOf(4, release.Undo) {
		c := *g.Config
		g.Config, c.Services = &c, []machine.Service{{InternalPort: 80}}
		for _, image := range []string{other, crash} {
			r := newRig(t, 1, g, true)
			r.asleep = true
			r.log = append(r.log, name+" "+image)
			for range 100 {
				r.tick()
			}
			for _, m := range r.machines {
				if !m.Asleep() {
					r.t.Fatalf("%+v is up", m)
				}
			}
			r.watched = true
			r.roll(g, image)
			started := map[string]bool{}
			for range 150 {
				r.tick()
				for id, m := range r.machines {
					if r.image(m) == image && m.State == machine.Started {
						started[id] = true
					}
				}
				p := r.want.Progress
				if !(p.Of(r.want.Head) && (p.State == release.Done || p.Undo)) && g.Strategy() == release.Canary {
					r.follow(release.Change{Promote: p.Step + 1, Why: release.WhyPromote}, nil)
				}
			}
			if len(started) != 1 {
				r.t.Fatalf("%d machines of %s were up", len(started), image)
			}
			r.ends(cmp.Or(map[string]string{crash: good}[image], image), release.Done, image == crash)
		}
	}
}

// TestGroupsRollOutAfterTheirDependencies: the machines of one are replaced once those of the other are as they are to be.
func TestGroupsRollOutAfterTheirDependencies(t *testing.T) {
	w := newWorld(map[string]int{"a": 2, "b": 2})
	w.settle(t)
	r := releaseOf("two", map[string]int{"a": 2, "b": 2})
	r.Group("a").After = []string{"b"}
	w.follow(release.Change{Release: r.ID(), Why: release.WhyDeploy}, r)
	for range 200 {
		n := w.step(t)
		for _, o := range n.Orders {
			if o.Verb != Make || o.Replica.Group != "a" {
				continue
			}
			for _, m := range w.machines {
				if m.Group == "b" && (m.Release != r.ID() || !m.Ready) {
					t.Fatalf("%v is made while %+v", o.Slot(), m)
				}
			}
		}
		for len(w.under) > 0 {
			w.end(0, carried, "w1")
		}
		for _, m := range w.machines {
			m.Ready = true
		}
		w.now = w.now.Add(time.Second)
	}
	w.check(t)
}

// TestDrainedMachineIsReplacedFirst: a machine that must leave its worker is replaced first, or removed first where
// two cannot exist.
func TestDrainedMachineIsReplacedFirst(t *testing.T) {
	for name, g := range groupsOf(3, release.Undo) {
		r := newRig(t, 1, g, true)
		r.rest()
		r.watched = true
		for _, m := range r.machines {
			m.Leaves = m.Index == 0
		}
		r.rest()
		for _, m := range r.machines {
			if m.Leaves != (name == "volume") {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if len(r.machines) != g.Replicas {
			t.Errorf("%s: %d machines", name, len(r.machines))
		}
	}
}
