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

// world is the machines of one service, and the workers that have them.
type world struct {
	now      time.Time
	want     Want
	machines map[string]*release.Standing
	obeyed   map[cluster.WorkerID]cluster.Term
	term     uint64 // the highest that was begun
	under    []ordered
	steward  *Steward
	releases map[string]*release.Release
}

// ordered is an order under way, and who is told of its end.
type ordered struct {
	Order
	by *Steward
}

var workers = []cluster.WorkerID{"w1", "w2", "w3"}

func newWorld(counts map[string]int) *world {
	w := &world{now: time.Unix(1e9, 0), machines: map[string]*release.Standing{},
		obeyed:  map[cluster.WorkerID]cluster.Term{},
		steward: NewSteward(cluster.Term{}), releases: map[string]*release.Release{}}
	w.deploy("one", counts)
	return w
}

// deploy has a release wanted whose machines run an image.
func (w *world) deploy(image string, counts map[string]int) {
	r := &release.Release{Schema: release.Schema}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		r.Groups = append(r.Groups, release.Group{Name: name, Replicas: counts[name],
			Config: &machine.Config{Image: image}})
	}
	w.follow(release.Change{Release: r.ID(), Why: release.WhyDeploy}, r)
}

// follow has something else wanted. r is a release to deploy; nil: none.
func (w *world) follow(c release.Change, r *release.Release) {
	old, p := w.want.Head, w.want.Progress
	if r != nil {
		w.releases[r.ID()] = r
	}
	c.At = w.now
	var before *release.Release
	if old != nil {
		before = w.releases[old.InForce(p).Release]
	}
	to := before
	switch {
	case r != nil:
		to = r
	case c.Resume:
		to = w.releases[old.Release]
	}
	head, err := old.Next(c, to, before, p)
	if err != nil {
		panic(err)
	}
	w.want.App, w.want.Head, w.want.Release, w.want.Before = "app1", head, w.releases[head.Release], nil
	if head.Before != nil {
		w.want.Before = w.releases[head.Before.Release]
	}
}

func (w *world) scale(group string, n int) {
	w.follow(release.Change{Counts: map[string]int{group: n}, Why: release.WhyScale}, nil)
}

// restart has all machines restarted.
func (w *world) restart() {
	w.follow(release.Change{Restart: true, Why: release.WhyRestart}, nil)
}

func (w *world) standing() (out []release.Standing) {
	for _, id := range slices.Sorted(maps.Keys(w.machines)) {
		out = append(out, *w.machines[id])
	}
	return out
}

// step has the steward look, and notes what it orders.
func (w *world) step(t failer) Next {
	n := w.steward.Step(w.now, &w.want, w.standing())
	for n.Term > 0 || n.Tell {
		if n.Term > 0 {
			w.term = max(w.term, n.Term)
			w.steward.Begin(cluster.Term{Number: w.term, Member: "m"})
		} else {
			w.want.Notes = n.Notes
		}
		n = w.steward.Step(w.now, &w.want, w.standing())
	}
	for i := range n.Orders {
		if n.Orders[i].Verb == Remove {
			w.mayRemove(t, &n.Orders[i])
		}
	}
	if !n.Busy {
		w.steward.Rest()
	}
	for _, o := range n.Orders {
		w.under = append(w.under, ordered{o, w.steward})
	}
	return n
}

type failer interface{ Fatalf(string, ...any) }

// mayRemove fails where a machine is removed that is needed.
func (w *world) mayRemove(t failer, o *Order) {
	in := w.want.Head.InForce(w.want.Progress)
	r := w.releases[in.Release]
	g := r.Group(o.Replica.Group)
	held := slices.ContainsFunc(w.want.Held, func(h release.Held) bool { return h.Machine == o.Machine })
	first := g != nil && g.Update != nil && strings.HasSuffix(o.Why, "goes first")
	if m := w.machines[o.Machine]; m == nil || held || !isSettled(m) || first {
		return
	}
	if g == nil {
		return
	}
	slots := w.steward.chosen[g.Name]
	if n := w.want.Head.Wanted(g, w.want.Scaled); len(slots) != n {
		t.Fatalf("%d replicas are wanted, and %v were chosen", n, slots)
	}
	if !slices.Contains(slots, o.Replica.Index) {
		return
	}
	for _, m := range w.machines {
		removed := w.machines[o.Machine] // of twins that are not up either may go
		if m.ID != o.Machine && m.Slot() == o.Slot() && (isSettled(m) || m.Spec == removed.Spec && !removed.Ready) {
			return
		}
	}
	t.Fatalf("%v of %v is removed (%s), and nothing stands in its place: %v", o.Machine, o.Slot(), o.Why, w.standing())
}

// outcomes of orders
const (
	carried = iota // and answered
	lost           // carried out, and the answer is lost
	refused        // nothing is done
	outcomes
)

// end has one order end.
func (w *world) end(i, outcome int, at cluster.WorkerID) {
	o := w.under[i]
	w.under = slices.Delete(w.under, i, i+1)
	o.by.Done(w.now, &o.Order, w.carryOut(&o.Order, outcome, at))
}

func (w *world) carryOut(o *Order, outcome int, at cluster.WorkerID) error {
	if outcome == refused {
		return fault.New(fault.Exhausted, "no_capacity", "no")
	}
	switch {
	case o.Verb != Make:
		at = o.Worker
	case o.Only:
		at = o.Home
	}
	if in := w.obeyed[at]; o.Term.Compare(in) < 0 {
		return &fault.Error{Kind: fault.Conflict, Code: cluster.CodeOldTerm, Text: "old", Detail: in}
	}
	w.obeyed[at] = o.Term
	m := w.machines[o.Machine]
	switch {
	case o.Verb == Make && m == nil:
		w.machines[o.Machine] = &release.Standing{ID: o.Machine, Instance: "i", Replica: o.Replica, Worker: at,
			State: machine.Started, Cordoned: o.Apart}
		if o.Asleep {
			w.machines[o.Machine].State, w.machines[o.Machine].Rests = machine.Created, true
		}
	case o.Verb == Admit && m != nil:
		m.Cordoned = false
	case o.Verb == Remove:
		delete(w.machines, o.Machine)
	case o.Verb == Start && m != nil:
		m.State, m.Died, m.Rests = machine.Started, false, false
	case o.Verb == Try && m != nil:
		m.State, m.Died, m.Rests, m.Cordoned = machine.Started, false, false, false
	case o.Verb == Hold && m != nil:
		m.State, m.Died, m.Ready, m.Cordoned = machine.Stopped, false, false, true
	}
	if outcome == lost {
		return fault.New(fault.Unavailable, "lost", "the answer was lost")
	}
	return nil
}

// settle has all that is ordered carried out, and machines be ready, until there is nothing to do.
func (w *world) settle(t failer) {
	for range 2000 {
		for _, m := range w.machines {
			m.Unheard = false
			m.Ready = m.State == machine.Started
		}
		n := w.step(t)
		if !n.Busy {
			return
		}
		for i := 0; len(w.under) > 0; i++ {
			w.end(0, carried, workers[i%len(workers)])
		}
		w.now = w.now.Add(time.Second)
	}
	t.Fatalf("it does not come to rest: %+v, %+v, %v", w.want.Head, w.want.Progress, w.standing())
}

// check fails where not each slot that is wanted has one machine, as it is to be, and there are no others.
func (w *world) check(t failer) {
	want := map[release.Slot]string{}
	in := w.want.Head.InForce(w.want.Progress)
	r := w.releases[in.Release]
	for i := range r.Groups {
		g := &r.Groups[i]
		spec := r.Spec(g, in.Restarted)
		for _, index := range WantedSlots(g.Name, spec, w.want.Head.Wanted(g, w.want.Scaled), w.standing()) {
			want[release.Slot{Group: g.Name, Index: index}] = spec
		}
	}
	for _, m := range w.machines {
		if want[m.Slot()] != m.Spec || !m.Ready {
			t.Fatalf("%v stands for %v: %+v", m.ID, m.Slot(), *m)
		}
		delete(want, m.Slot())
	}
	if len(want) > 0 {
		t.Fatalf("nothing stands for %v", want)
	}
}

// TestServiceKeepsOneMachinePerSlot: with any failing orders, deaths and scale changes each slot ends with one
// machine, and no needed machine is removed.
func TestServiceKeepsOneMachinePerSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(map[string]int{"web": rapid.IntRange(0, 4).Draw(t, "web")})
		t.Repeat(map[string]func(*rapid.T){
			"step": func(t *rapid.T) { w.step(t) },
			"end": func(t *rapid.T) {
				if len(w.under) > 0 {
					w.end(rapid.IntRange(0, len(w.under)-1).Draw(t, "order"),
						rapid.IntRange(0, outcomes-1).Draw(t, "outcome"), rapid.SampledFrom(workers).Draw(t, "worker"))
				}
			},
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second)
			},
			"scale": func(t *rapid.T) { w.scale("web", rapid.IntRange(0, 5).Draw(t, "replicas")) },
			"move":  func(t *rapid.T) { w.moveAny(t) },
			"deploy": func(t *rapid.T) {
				w.deploy(rapid.SampledFrom([]string{"one", "two", "three"}).Draw(t, "image"),
					map[string]int{"web": 2, rapid.SampledFrom([]string{"job", "web"}).Draw(t, "group"): 3})
			},
			"machine": func(t *rapid.T) {
				if len(w.machines) == 0 {
					return
				}
				m := w.machines[rapid.SampledFrom(slices.Sorted(maps.Keys(w.machines))).Draw(t, "which")]
				switch rapid.IntRange(0, 6).Draw(t, "what") {
				case 6:
					m.State, m.Loops, m.Ready = machine.Restarting, true, false
				case 0:
					m.State, m.Died, m.Ready = machine.Stopped, true, false
				case 1:
					m.Ready = m.State == machine.Started
				case 2:
					m.Unheard = !m.Unheard
				case 3:
					m.State, m.Died, m.Ready, m.Rests = machine.Suspended, false, false, true
				case 4:
					delete(w.machines, m.ID)
				case 5:
					m.State, m.Died, m.Ready, m.Rests = machine.Stopped, false, false, rapid.Bool().Draw(t, "asked")
				}
			},
			"steward": func(t *rapid.T) { w.steward = NewSteward(cluster.Term{Number: w.term}) },
		})
		w.settle(t)
		w.restart()
		w.settle(t)
		for _, m := range w.machines { // those that rest are woken
			m.State, m.Ready = machine.Started, true
		}
		w.settle(t)
		w.check(t)
	})
}

// TestEpochsIncreaseAcrossStewards: whoever the steward is, and whatever it remembers.
func TestEpochsIncreaseAcrossStewards(t *testing.T) {
	w := newWorld(map[string]int{"web": 1})
	newest := uint64(0)
	for i := range 50 {
		n := w.step(t)
		if len(n.Orders) != 1 || n.Orders[0].Replica.Epoch <= newest {
			t.Fatalf("after epoch %d: %+v", newest, n)
		}
		newest = n.Orders[0].Replica.Epoch
		w.end(0, carried, "w1")
		clear(w.machines) // and nobody has heard of it
		if i%3 == 0 {
			w.steward = NewSteward(cluster.Term{Number: w.term})
		}
	}
	for _, replicas := range []int{0, 1} { // what is remembered of the slot goes meanwhile
		w.scale("web", replicas)
		if n := w.step(t); replicas == 1 && (len(n.Orders) != 1 || n.Orders[0].Replica.Epoch <= newest) {
			t.Fatalf("after epoch %d, scaled to 0 and back: %+v", newest, n)
		}
	}
	w.end(0, refused, "w1")
	w.now = w.now.Add(time.Minute)
	w.steward.slot(release.Slot{Group: "web", Index: 0}).epoch = FirstEpoch(w.steward.office.term) + 1<<epochBits - 1
	before := w.steward.office.term
	n := w.step(t)
	if len(n.Orders) != 1 || w.steward.office.term.Compare(before) <= 0 || n.Orders[0].Replica.Epoch <= newest {
		t.Errorf("a term without epochs: %+v, then term %v", n, w.steward.office.term)
	}
}

// TestEqualTermStewardsMakeDistinctMachines: two stewards that do not know of each other have terms of one number;
// they make two machines, which every worker and store can tell apart.
func TestEqualTermStewardsMakeDistinctMachines(t *testing.T) {
	w := newWorld(map[string]int{"web": 3})
	a, b := NewSteward(cluster.Term{Number: 4}), NewSteward(cluster.Term{Number: 4})
	a.Begin(cluster.Term{Number: 5, Member: "a"})
	b.Begin(cluster.Term{Number: 5, Member: "b"})
	x, y := a.Step(w.now, &w.want, nil), b.Step(w.now, &w.want, nil)
	for i := range x.Orders {
		o, p := &x.Orders[i], &y.Orders[i]
		if o.Slot() != p.Slot() || o.Machine == p.Machine || !machine.ValidID(o.Machine) {
			t.Errorf("%v and %v", o, p)
		}
		first, second := &machine.Machine{ID: o.Machine, Replica: &o.Replica}, &machine.Machine{ID: p.Machine,
			Replica: &p.Replica}
		if machine.Fence(first, 1) == machine.Fence(second, 1) {
			t.Errorf("%s and %s have one token", o.Machine, p.Machine)
		}
	}
	if len(x.Orders) != 3 {
		t.Errorf("%d orders for 3 replicas", len(x.Orders))
	}
}

// TestStepOrdersMatchTheSlotState: one look at a service of one slot.
func TestStepOrdersMatchTheSlotState(t *testing.T) {
	w := newWorld(map[string]int{"web": 1})
	spec := w.want.Release.Spec(&w.want.Release.Groups[0], 0)
	up := release.Standing{ID: "a", Instance: "i1", Worker: "w1", State: machine.Started, Ready: true,
		Replica: machine.Replica{Group: "web", Spec: spec, Epoch: 4096}}
	with := func(f func(*release.Standing)) release.Standing {
		m := up
		f(&m)
		return m
	}
	silent := func(d time.Duration) release.Standing {
		return with(func(m *release.Standing) {
			m.ID, m.Unheard, m.Ready, m.Silent = "silent", true, false,
				w.now.Add(-d)
		})
	}
	for _, tt := range []struct {
		name     string
		standing []release.Standing
		want     string
	}{
		{"nothing stands", nil, "make"},
		{"it stands", []release.Standing{up}, ""},
		{"it is coming", []release.Standing{with(func(m *release.Standing) {
			m.State, m.Ready = machine.Starting,
				false
		})}, ""},
		{"it rests", []release.Standing{with(func(m *release.Standing) {
			m.State, m.Ready, m.Rests = machine.Suspended, false, true
		})}, ""},
		{"it is down, and nobody asked for that", []release.Standing{with(func(m *release.Standing) {
			m.State, m.Ready = machine.Stopped, false
		})}, "start a"},
		{"it was made, and no request can start it", []release.Standing{with(func(m *release.Standing) {
			m.State, m.Ready, m.Rests = machine.Created, false, true
		})}, "start a"},
		{"it died", []release.Standing{with(func(m *release.Standing) {
			m.State, m.Ready, m.Died = machine.Stopped,
				false, true
		})},
			"start a"},
		{"it goes", []release.Standing{with(func(m *release.Standing) { m.State = machine.Destroying })}, "make"},
		{"its worker is silent", []release.Standing{silent(2 * time.Second)}, ""},
		{"its worker is silent for long", []release.Standing{silent(release.DefaultLostAfter)}, "make"},
		{"its worker is silent, and another stands", []release.Standing{silent(time.Hour), up}, ""},
		{"one too many", []release.Standing{up, with(func(m *release.Standing) { m.ID, m.Index = "b", 1 })},
			"remove b"},
		{"of a group that is no more", []release.Standing{up, with(func(m *release.Standing) {
			m.ID, m.Group = "b",
				"old"
		})},
			"remove b"},
		{"twins: the older stays", []release.Standing{with(func(m *release.Standing) { m.ID, m.Epoch = "b", 4097 }),
			up}, "remove b"},
		{"twins: the ready one stays", []release.Standing{with(func(m *release.Standing) { m.ID, m.Epoch = "b", 4097 }),
			with(func(m *release.Standing) { m.Ready = false })}, "remove a"},
		{"it dies again and again", []release.Standing{with(func(m *release.Standing) {
			m.State, m.Ready, m.Loops = machine.Restarting, false, true
		})}, "hold a"},
		{"it did, and is up", []release.Standing{with(func(m *release.Standing) { m.Loops = true })}, ""},
		{"it is held, and not down", []release.Standing{with(func(m *release.Standing) {
			m.ID, m.Ready = "held",
				false
		})},
			"hold held"},
		{"it is held", []release.Standing{with(func(m *release.Standing) {
			m.ID, m.Ready, m.State, m.Cordoned, m.Loops = "held", false, machine.Stopped, true, true
		})}, ""},
		{"of another release", []release.Standing{with(func(m *release.Standing) { m.Spec = "old" })}, "make"},
		{"of another release, and not up", []release.Standing{
			with(func(m *release.Standing) { m.Spec, m.Ready = "old", false })}, "make"},
		{"the new one is not up", []release.Standing{with(func(m *release.Standing) { m.Spec = "old" }),
			with(func(m *release.Standing) { m.ID, m.Ready = "b", false })}, ""},
		{"the new one is up", []release.Standing{with(func(m *release.Standing) { m.Spec = "old" }),
			with(func(m *release.Standing) { m.ID = "b" })}, "remove a"},
		{"the new one is not up, the old one died", []release.Standing{
			with(func(m *release.Standing) { m.Spec, m.Died, m.State = "old", true, machine.Stopped }),
			with(func(m *release.Standing) { m.ID, m.Ready = "b", false })}, "start a"},
	} {
		s := NewSteward(cluster.Term{})
		s.Begin(cluster.Term{Number: 1, Member: "m"})
		want := w.want
		want.Held = []release.Held{{Machine: "held", Group: "web", Why: "it dies", Since: w.now, At: w.now}}
		want.Progress = release.Progress{Rollout: want.Head.Rollout, Release: want.Head.Release, State: release.Done}
		for i := range tt.standing {
			if tt.standing[i].Ready {
				s.machine(tt.standing[i].ID).up = w.now.Add(-(&release.Group{}).MinUp())
			}
		}
		n := s.Step(w.now, &want, tt.standing)
		if n.Tell {
			want.Held, want.Progress = n.Held, n.Progress
			n = s.Step(w.now, &want, tt.standing)
		}
		got := ""
		for _, o := range n.Orders {
			if got += string(o.Verb); o.Verb != Make {
				got += " " + o.Machine
			}
			if o.Why == "" || o.Term.Number != 1 || (o.Verb != Make) != (o.Instance == "i1") {
				t.Errorf("%s: %+v", tt.name, o)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestFailedOrderBacksOffAndReports: a failed order is retried with growing pauses, and not before the refusal's time.
// The reason is shared from the second refusal on, a new reason at most once a minute, and nothing once the machine
// exists.
func TestFailedOrderBacksOffAndReports(t *testing.T) {
	w := newWorld(map[string]int{"web": 1})
	var waits []time.Duration
	for range 8 {
		n := w.step(t)
		if len(n.Orders) != 1 {
			t.Fatalf("%+v", n)
		}
		w.end(0, refused, "w1")
		n = w.step(t)
		if told := w.want.Unmade; (len(told) > 0) != (len(waits) > 0) ||
			len(told) > 0 && told[0] != (release.Failure{Group: "web", Why: "no"}) {
			t.Errorf("after %d refusals %+v is told", len(waits)+1, told)
		}
		if len(n.Orders) != 0 || !n.Busy {
			t.Fatalf("at once again: %+v", n)
		}
		waits = append(waits, n.Again.Sub(w.now))
		w.now = n.Again
	}
	if fmt.Sprint(waits) != "[1s 2s 4s 8s 15s 15s 15s 15s]" {
		t.Error(waits)
	}
	w.step(t)
	o := w.under[0]
	w.under = nil
	w.steward.Done(w.now, &o.Order, &fault.Error{Kind: fault.Exhausted, RetryAfter: time.Minute})
	if n := w.step(t); n.Again.Sub(w.now) != time.Minute {
		t.Error(n.Again.Sub(w.now))
	}
}

// TestFailingReleaseSurgesAtMostAQuarter: a failing release has at most a quarter more machines than wanted, until its
// deadline.
func TestFailingReleaseSurgesAtMostAQuarter(t *testing.T) {
	w := newWorld(map[string]int{"web": 5})
	w.settle(t)
	w.deploy("bad", map[string]int{"web": 5})
	for range 100 {
		w.step(t)
		for len(w.under) > 0 {
			w.end(0, carried, "w2")
		}
		w.now = w.now.Add(time.Second)
	}
	old := 0
	for _, m := range w.machines {
		if m.Ready {
			old++
		}
	}
	if old != 5 || len(w.machines) != 7 {
		t.Errorf("%d of the old release are up, of %d", old, len(w.machines))
	}
}
