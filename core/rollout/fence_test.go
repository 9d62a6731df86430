package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// estate is workers that are told late and tell late, and members that each take themselves for the steward.
type estate struct {
	releases map[string]*release.Release
	now      time.Time
	want     Want
	workers  map[cluster.WorkerID]*host
	stewards map[cluster.WorkerID]*Steward
	begun    map[cluster.WorkerID]uint64 // the newest term of each member
	wires    []*message
	made     map[string]int                     // how often each machine was made, by id
	ahead    map[cluster.WorkerID]time.Duration // of members' clocks
}

// host is a worker: what it has, and what the members know of that.
type host struct {
	obeyed    cluster.Term
	has, told map[string]release.Standing
	cut       bool
}

// message is an order or a call to obey on its way. It may arrive, or be answered, or both, in this order or the other.
type message struct {
	by      *Steward
	order   *Order // nil: to obey
	term    cluster.Term
	to      cluster.WorkerID
	arrived bool
	has     []Found
	err     error
}

var hosts = []cluster.WorkerID{"w1", "w2"}

func newEstate(group release.Group) *estate {
	e := &estate{now: time.Unix(1e9, 0), workers: map[cluster.WorkerID]*host{}, begun: map[cluster.WorkerID]uint64{},
		stewards: map[cluster.WorkerID]*Steward{}, made: map[string]int{}}
	for _, id := range hosts {
		e.workers[id] = &host{has: map[string]release.Standing{}, told: map[string]release.Standing{}}
	}
	e.deploy("one", group)
	return e
}

func (e *estate) deploy(image string, group release.Group) {
	e.release(&release.Release{Groups: []release.Group{group}}, image)
}

func (e *estate) release(r *release.Release, image string) {
	g := &r.Groups[0]
	g.Name, g.Replicas, g.Config, r.Schema = "web", 1, &machine.Config{Image: image}, release.Schema
	if err := r.Check(); err != nil {
		panic(err)
	}
	head, err := e.want.Head.Next(release.Change{Release: r.ID(), Why: release.WhyDeploy, At: e.now}, r, e.want.Release,
		e.want.Progress)
	if err != nil {
		panic(err)
	}
	if e.releases == nil {
		e.releases = map[string]*release.Release{}
	}
	e.releases[r.ID()] = r
	e.want = Want{App: "app1", Head: head, Release: r, Notes: e.want.Notes}
	if head.Before != nil {
		e.want.Before = e.releases[head.Before.Release]
	}
}

// look has a member do what it does as the steward: it sees what the workers have told, and sends what it orders to any of
// them.
func (e *estate) look(member cluster.WorkerID, pick func() cluster.WorkerID) Next {
	want, standing := e.want, []release.Standing(nil)
	for _, id := range hosts {
		h := e.workers[id]
		want.Workers = append(want.Workers, Peer{id, !h.cut})
		for _, key := range slices.Sorted(maps.Keys(h.told)) {
			m := h.told[key]
			if m.Unheard = h.cut; m.Unheard {
				m.Ready = false
			}
			standing = append(standing, m)
		}
	}
	s := e.stewards[member]
	now := e.now.Add(e.ahead[member])
	n := s.Step(now, &want, standing)
	send := func() {
		for _, w := range n.Obey {
			e.wires = append(e.wires, &message{by: s, term: s.Term(), to: w})
		}
	}
	for n.Term > 0 || n.Tell {
		send()
		if n.Term > 0 {
			if s.Term().IsZero() {
				n.Term = max(n.Term, e.begun[member]+1)
			}
			e.begun[member] = n.Term
			s.Begin(cluster.Term{Number: n.Term, Member: member})
		} else {
			e.want.Progress, want.Progress = n.Progress, n.Progress
			e.want.Runs, want.Runs = n.Runs, n.Runs
		}
		n = s.Step(now, &want, standing)
	}
	send()
	for i := range n.Orders {
		o := &n.Orders[i]
		to := o.Worker
		if o.Verb == Make {
			to = pick()
		}
		e.wires = append(e.wires, &message{by: s, order: o, term: o.Term, to: to})
	}
	if !n.Busy {
		s.Rest()
	}
	return n
}

// arrive has a worker do what a message says.
func (e *estate) arrive(m *message) {
	h := e.workers[m.to]
	m.arrived = true
	if m.term.Compare(h.obeyed) < 0 {
		m.err = &fault.Error{Kind: fault.Conflict, Code: cluster.CodeOldTerm, Text: "old", Detail: h.obeyed}
		return
	}
	h.obeyed = m.term
	switch {
	case m.order == nil:
		for _, x := range h.has {
			m.has = append(m.has, Found{x.ID, x.Replica})
		}
	case m.order.Verb == Make && h.has[m.order.Machine].ID == "":
		e.made[m.order.Machine]++
		h.has[m.order.Machine] = release.Standing{ID: m.order.Machine, Instance: "i", Replica: m.order.Replica,
			Worker: m.to,
			State:  machine.Started, Ready: true}
	case m.order.Verb == Remove:
		delete(h.has, m.order.Machine)
	case m.order.Verb == Hold && h.has[m.order.Machine].ID != "":
		e.finish(m.to, m.order.Machine, 137)
	}
}

// finish has a run end.
func (e *estate) finish(at cluster.WorkerID, id string, code int) {
	m := e.workers[at].has[id]
	m.State, m.Ready, m.Died, m.Exit = machine.Stopped, false, true, &code
	e.workers[at].has[id] = m
}

// answer tells the steward how a message ended; one that has not arrived may yet do so afterwards.
func (e *estate) answer(m *message) {
	err := m.err
	if !m.arrived {
		err = fault.New(fault.Unavailable, "ambiguous", "no answer")
	}
	if m.order == nil {
		m.by.Obeyed(e.now, m.term, m.to, m.has, err)
	} else {
		m.by.Done(e.now, m.order, err)
	}
}

// machines lists what is there, whoever knows of it.
func (e *estate) machines() (all []string) {
	for _, id := range hosts {
		for key := range e.workers[id].has {
			all = append(all, fmt.Sprintf("%s at %s", key, id))
		}
	}
	return all
}

// tell has all members know what a worker has now.
func (e *estate) tell(id cluster.WorkerID) {
	if h := e.workers[id]; !h.cut {
		h.told = maps.Clone(h.has)
	}
}

// TestSingletonNeverRunsTwice: a slot of a single group, or of one whose machines are never replaced, never has two
// machines, whichever orders are late, members die or stewards compete; it has one in the end.
func TestSingletonNeverRunsTwice(t *testing.T) {
	for name, group := range map[string]release.Group{"never": {OnLost: release.Never}, "single": {Single: true}} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { neverTwo(t, group) })
		})
	}
}

func neverTwo(t *rapid.T, group release.Group) {
	e := newEstate(group)
	members := []cluster.WorkerID{"m1", "m2"}
	for _, m := range members {
		e.stewards[m] = NewSteward(cluster.Term{})
	}
	actions := e.actions(t, members)
	actions["destroy"] = func(t *rapid.T) { clear(e.workers[rapid.SampledFrom(hosts).Draw(t, "worker")].has) }
	actions[""] = func(t *rapid.T) {
		if all := e.machines(); len(all) > 1 {
			t.Fatalf("there are two: %s", strings.Join(all, ", "))
		}
	}
	if group.Single {
		actions["deploy"] = func(t *rapid.T) {
			e.deploy(rapid.SampledFrom([]string{"one", "two"}).Draw(t, "image"), group)
		}
	}
	t.Repeat(actions)
	e.settle(t)
	if all := e.machines(); len(all) != 1 {
		t.Fatalf("there are %d machines in the end: %v", len(all), all)
	}
}

// actions are what happens to orders, workers and members.
func (e *estate) actions(t *rapid.T, members []cluster.WorkerID) map[string]func(*rapid.T) {
	worker := func() cluster.WorkerID { return rapid.SampledFrom(hosts).Draw(t, "worker") }
	message := func() *message { return rapid.SampledFrom(e.wires).Draw(t, "message") }
	return map[string]func(*rapid.T){
		"look": func(t *rapid.T) { e.look(rapid.SampledFrom(members).Draw(t, "member"), worker) },
		"arrive": func(t *rapid.T) {
			if len(e.wires) > 0 {
				if m := message(); !m.arrived {
					e.arrive(m)
				}
			}
		},
		"answer": func(t *rapid.T) {
			if len(e.wires) > 0 {
				if m := message(); m.by != nil {
					e.answer(m)
					m.by = nil
				}
			}
		},
		"round": func(t *rapid.T) { // all but one message of a member arrive and are answered, in order
			m := rapid.SampledFrom(members).Draw(t, "member")
			for range 3 {
				e.look(m, worker)
				late := rapid.IntRange(-4, len(e.wires)-1).Draw(t, "late")
				for i, x := range e.wires {
					if i == late || x.by != e.stewards[m] {
						continue
					}
					if !x.arrived && !e.workers[x.to].cut {
						e.arrive(x)
					}
					e.answer(x)
					x.by = nil
				}
			}
		},
		"tell": func(*rapid.T) { e.tell(worker()) },
		"cut":  func(*rapid.T) { h := e.workers[worker()]; h.cut = !h.cut },
		"crash": func(t *rapid.T) {
			m := rapid.SampledFrom(members).Draw(t, "member")
			for _, x := range e.wires {
				if x.by == e.stewards[m] {
					x.by = nil // nobody is told; it may yet arrive
				}
			}
			e.stewards[m] = NewSteward(cluster.Term{Number: rapid.Uint64Range(0, 3).Draw(t, "seen")})
		},
		"wait": func(t *rapid.T) {
			e.now = e.now.Add(time.Duration(rapid.IntRange(1, 70).Draw(t, "s")) * time.Second)
		},
	}
}

// settle has all be heard and one member be the steward, until there is nothing to do.
func (e *estate) settle(t *rapid.T) {
	for _, x := range e.wires {
		if x.by == e.stewards["m1"] && x.by != nil {
			e.answer(x)
		}
	}
	e.wires = nil
	for range 300 {
		for _, id := range hosts {
			e.workers[id].cut = false
			e.tell(id)
		}
		n := e.look("m1", func() cluster.WorkerID { return "w2" })
		if !n.Busy {
			return
		}
		for _, x := range e.wires {
			e.arrive(x)
			e.answer(x)
		}
		e.wires, e.now = nil, e.now.Add(time.Second)
	}
	t.Fatalf("it does not come to rest: %+v, %v", e.want.Progress, e.machines())
}
