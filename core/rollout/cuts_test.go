package rollout

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// half is a member that may carry the service, as one side of a cut knows it.
type half struct {
	id      cluster.WorkerID
	own     []cluster.WorkerID // workers of its side
	steward *Steward
	begun   uint64 // the highest term that it has begun
	busy    bool   // it has something to do, or waits for its time
	objects
	seen map[string]release.Standing // machines, as it last heard of them
}

// objects are what members write and merge: of each the newest stands.
type objects struct {
	tenure  release.Tenure
	head    *release.Head
	told    time.Time // when tenure was written
	changed time.Time // when head was
}

func (o *objects) merge(other *objects) {
	if other.told.After(o.told) {
		o.tenure, o.told = other.tenure, other.told
	}
	if other.changed.After(o.changed) {
		o.head, o.changed = other.head, other.changed
	}
}

// event is what happens at a time.
type event struct {
	at time.Time
	do func()
}

// cuts is a cluster of two halves with one service.
type cuts struct {
	t        *testing.T
	rnd      *rand.Rand
	now      time.Time
	halves   [2]*half
	machines map[string]*release.Standing // the truth
	starts   map[string]time.Time
	obeyed   map[cluster.WorkerID]cluster.Term
	releases map[string]*release.Release
	group    release.Group
	sleeps   bool // machines rest once they were ready
	cut      bool // neither half reaches the other
	apart    bool // what members write does not get to the other half
	since    time.Time
	coming   []event
	terms    []cluster.Term // that were begun
	writes   time.Duration
	log      []string
}

func newCuts(t *testing.T, seed uint64) *cuts {
	c := &cuts{t: t, rnd: rand.New(rand.NewPCG(seed, 3)), now: time.Unix(1e9, 0).UTC(),
		machines: map[string]*release.Standing{},
		starts:   map[string]time.Time{}, obeyed: map[cluster.WorkerID]cluster.Term{},
		releases: map[string]*release.Release{}}
	c.halves = [2]*half{{id: "a", own: []cluster.WorkerID{"a", "c"}}, {id: "b", own: []cluster.WorkerID{"b", "d"}}}
	config := &machine.Config{Image: good}
	if c.sleeps = c.rnd.IntN(3) == 0; c.sleeps || c.rnd.IntN(2) == 0 {
		config.Services = []machine.Service{{InternalPort: 80}}
	}
	c.group = release.Group{Name: "web", Replicas: 1 + c.rnd.IntN(5), Config: config,
		Update: &release.Update{MinUp: during(time.Duration(c.rnd.IntN(4)) * time.Second)}}
	if c.rnd.IntN(3) == 0 {
		c.group.Update.Order = release.StopFirst
	}
	return c
}

func (c *cuts) logf(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf("%v ", c.now.Sub(time.Unix(1e9, 0)))+fmt.Sprintf(format, args...))
}

func (c *cuts) fail(format string, args ...any) {
	c.t.Helper()
	for _, line := range c.log[max(0, len(c.log)-80):] {
		c.t.Log(line)
	}
	c.t.Fatalf(format, args...)
}

// stamp returns the time of a write, which no other has.
func (c *cuts) stamp() time.Time {
	c.writes++
	return c.now.Add(c.writes)
}

// after has something done a while later.
func (c *cuts) after(most time.Duration, do func()) {
	c.coming = append(c.coming, event{c.now.Add(time.Duration(c.rnd.Int64N(int64(most)))), do})
}

// deploy has another release wanted, at one half.
func (c *cuts) deploy(h *half, image string) {
	g, config := c.group, *c.group.Config
	config.Image = image
	g.Config = &config
	r := &release.Release{Schema: release.Schema, Groups: []release.Group{g}, At: c.now, Note: image}
	c.releases[r.ID()] = r
	var before *release.Release
	if h.head != nil {
		before = c.releases[h.head.InForce(h.tenure.Progress).Release]
	}
	head, err := h.head.Next(release.Change{Release: r.ID(), Why: release.WhyDeploy, At: c.now}, r, before,
		h.tenure.Progress)
	if err != nil {
		c.fail("%v", err)
	}
	h.head, h.changed = head, c.stamp()
	c.logf("deploy %s at %s, number %d", image, h.id, head.Number)
	c.spread(h)
}

// spread has the other half hear of what one has written.
func (c *cuts) spread(from *half) {
	if c.apart {
		return
	}
	written := from.objects
	to := c.halves[0]
	if to == from {
		to = c.halves[1]
	}
	c.after(600*time.Millisecond, func() {
		if !c.apart {
			to.merge(&written)
		}
	})
}

// hear has a half hear of the machines.
func (c *cuts) hear(h *half) {
	heard := func(w cluster.WorkerID) bool { return !c.cut || slices.Contains(h.own, w) }
	maps.DeleteFunc(h.seen, func(id string, m release.Standing) bool {
		return heard(m.Worker) &&
			c.machines[id] == nil
	})
	for id, m := range c.machines {
		if heard(m.Worker) {
			h.seen[id] = *m
		}
	}
	for id, m := range h.seen {
		m.Unheard, m.Silent = !heard(m.Worker), c.since
		m.Ready = m.Ready && !m.Unheard
		h.seen[id] = m
	}
}

// look is one look of a member at the service, as package services has it.
func (c *cuts) look(h *half) {
	c.hear(h)
	members := []cluster.WorkerID{"a", "b"}
	if c.cut {
		members = []cluster.WorkerID{h.id}
	}
	if h.head == nil {
		return
	}
	if release.StewardOf("app1", members, h.tenure) != h.id {
		h.steward, h.busy = nil, false
		return
	}
	if h.steward == nil {
		h.steward = NewSteward(h.tenure.Term)
	}
	want := Want{App: "app1", Head: h.head, Release: c.releases[h.head.Release], Notes: h.tenure.Notes,
		LostAfter: 3 * time.Second}
	if h.head.Before != nil {
		want.Before = c.releases[h.head.Before.Release]
	}
	var standing []release.Standing
	for _, id := range slices.Sorted(maps.Keys(h.seen)) {
		standing = append(standing, h.seen[id])
	}
	s := h.steward
	n := s.Step(c.now, &want, standing)
	next := h.tenure
	h.busy = n.Busy
	switch {
	case n.Term > 0:
		least := n.Term
		if h.tenure.Term.Member != h.id {
			least = max(least, h.tenure.Term.Number+1)
		}
		if s.Term().IsZero() {
			least = max(least, h.begun+1)
		}
		next.Term, next.Busy = cluster.Term{Number: least, Member: h.id}, true
		if h.begun != least {
			c.terms = append(c.terms, next.Term)
			c.logf("%s begins term %v", h.id, next.Term)
		}
		h.begun = least
		c.write(h, next)
	case n.Tell:
		next.Notes, next.Busy = n.Notes, n.Busy
		c.logf("%s tells %+v", h.id, n.Progress)
		c.write(h, next)
	case !n.Busy && next.Busy:
		next.Busy = false
		c.write(h, next)
	}
	for _, o := range n.Orders {
		c.order(h, s, o)
	}
	for range n.Obey {
		c.fail("no group is fenced")
	}
}

func (c *cuts) write(h *half, t release.Tenure) {
	h.tenure, h.told = t, c.stamp()
	if t.Busy {
		h.steward.Begin(t.Term)
	} else {
		h.steward.Rest()
	}
	c.spread(h)
}

// order has an order carried out, with a little delay. A removal stops the machine first.
func (c *cuts) order(h *half, s *Steward, o Order) {
	at := o.Worker
	if o.Verb == Make {
		at = h.own[c.rnd.IntN(2)]
		if !c.cut && c.rnd.IntN(2) == 0 {
			at = []cluster.WorkerID{"a", "b", "c", "d"}[c.rnd.IntN(4)]
		}
	}
	c.logf("%s orders %s %v %s at %s: %s", h.id, o.Verb, o.Slot(), o.Machine, at, o.Why)
	end := func(err error) { c.after(200*time.Millisecond, func() { s.Done(c.now, &o, err) }) }
	reached := func() error {
		if c.cut && !slices.Contains(h.own, at) {
			return fault.New(fault.Unavailable, "cut", "it is not reached")
		}
		if in := c.obeyed[at]; o.Term.Compare(in) < 0 {
			return &fault.Error{Kind: fault.Conflict, Code: cluster.CodeOldTerm, Text: "old", Detail: in}
		}
		c.obeyed[at] = o.Term
		return nil
	}
	c.after(200*time.Millisecond, func() {
		if err := reached(); err != nil {
			end(err)
			return
		}
		m := c.machines[o.Machine]
		switch {
		case o.Verb == Make && m == nil:
			m = &release.Standing{ID: o.Machine, Instance: "i", Replica: o.Replica, Worker: at, State: machine.Created,
				Cordoned: o.Apart, Rests: o.Asleep}
			if c.machines[o.Machine] = m; !o.Asleep {
				m.State = machine.Started
			}
		case m == nil:
		case o.Verb == Start, o.Verb == Try:
			m.State, m.Died, m.Rests, m.Cordoned = machine.Started, false, false, m.Cordoned && o.Verb == Start
		case o.Verb == Admit:
			m.Cordoned = false
		case o.Verb == Hold:
			m.State, m.Died, m.Ready, m.Cordoned = machine.Stopped, false, false, true
		case o.Verb == Remove:
			m.State, m.Ready, m.Cordoned = machine.Stopped, false, true
			c.after(300*time.Millisecond, func() {
				err := reached()
				if err == nil {
					delete(c.machines, o.Machine)
				}
				end(err)
			})
			return
		}
		end(nil)
	})
}

// tick is 100 ms.
func (c *cuts) tick() {
	due := c.coming
	c.coming = nil
	for _, x := range due {
		if x.at.After(c.now) {
			c.coming = append(c.coming, x)
		} else {
			x.do()
		}
	}
	for id, m := range c.machines {
		if m.State != machine.Started {
			delete(c.starts, id)
			continue
		}
		since, known := c.starts[id]
		if !known {
			c.starts[id], since = c.now, c.now
		}
		switch up := c.now.Sub(since); {
		case c.sleeps && m.Ready && up > 5*time.Second:
			m.State, m.Ready, m.Rests = machine.Suspended, false, true
		case up > 500*time.Millisecond:
			m.Ready = true
		}
	}
	for _, h := range c.halves {
		if c.rnd.IntN(3) > 0 {
			c.look(h)
		}
	}
	c.now = c.now.Add(100 * time.Millisecond)
}

// settle goes on until nothing is to be done.
func (c *cuts) settle() {
	for quiet, i := 0, 0; ; i++ {
		c.tick()
		busy := len(c.coming) > 0
		for _, h := range c.halves {
			busy = busy || h.busy || h.head == nil
		}
		if quiet++; busy {
			quiet = 0
		}
		if quiet > 30 {
			return
		}
		if i > 6000 {
			c.fail("it does not come to rest: %+v", c.machines)
		}
	}
}

// check fails where not each replica has one machine, as the last release has it, that is up or that a request wakes.
func (c *cuts) check() {
	h := c.halves[0]
	r := c.releases[h.head.InForce(h.tenure.Progress).Release]
	g, have := &r.Groups[0], map[int]int{}
	for _, m := range c.machines {
		if m.Spec != r.Spec(g, h.head.Restarted) || !m.Ready && !(m.Asleep() && g.Wakeable()) || m.Cordoned {
			c.fail("%+v", m)
		}
		have[m.Index]++
	}
	for i := range g.Replicas {
		if have[i] != 1 {
			c.fail("replica %d has %d machines: %+v", i, have[i], c.machines)
		}
	}
}

// TestCutsDuringReleasesConverge: a cluster is cut in halves during releases and joined again: each replica is up
// afterwards, or asleep and wakeable, and the two stewards stop outbidding each other.
func TestCutsDuringReleasesConverge(t *testing.T) { cutsInHalves(t, 300) }

//nolint:gochecknoglobals // a flag
var cutsFlag = flag.Uint64("cuts", 3000, "how many cuts TestLongCutsDuringReleasesConverge makes")

// TestLongCutsDuringReleasesConverge is TestCutsDuringReleasesConverge many times.
func TestLongCutsDuringReleasesConverge(t *testing.T) { cutsInHalves(t, *cutsFlag) }

func cutsInHalves(t *testing.T, seeds uint64) {
	most := 0
	for seed := range seeds {
		c := newCuts(t, seed)
		for _, h := range c.halves {
			h.seen = map[string]release.Standing{}
		}
		c.logf("seed %d: %+v, sleeps %v", seed, c.group, c.sleeps)
		c.deploy(c.halves[0], good)
		c.settle()
		c.check()
		before := len(c.terms)
		during := func() { // a release, at either half
			if c.rnd.IntN(3) > 0 {
				c.after(8*time.Second, func() { c.deploy(c.halves[c.rnd.IntN(2)], fmt.Sprint(other, c.rnd.IntN(2))) })
			}
		}
		during()
		during()
		for range c.rnd.IntN(80) {
			c.tick()
		}
		c.cut, c.apart, c.since = true, true, c.now
		c.logf("cut")
		for range 1 + c.rnd.IntN(300) {
			c.tick()
		}
		c.cut = false
		c.logf("healed")
		for range c.rnd.IntN(150) { // until members hear what the others have written
			c.tick()
		}
		c.apart = false
		c.logf("and merged")
		c.halves[0].merge(&c.halves[1].objects)
		c.halves[1].merge(&c.halves[0].objects)
		c.settle()
		c.check()
		if n := len(c.terms) - before; n > most {
			most = n
			if n > 5 {
				c.fail("%d terms were begun: %v", n, c.terms[before:])
			}
		}
	}
	t.Logf("at most %d terms in %d cuts", most, seeds)
}
