package services

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// board is what all members of a test share: what is wanted, and who carries it.
type board struct {
	mu    sync.Mutex
	all   map[string]*catalog.Service
	seen  []*view
	heard []cluster.WorkerID
	stuck cluster.WorkerID
	terms int // that were written
	log   bytes.Buffer
}

// view is the board as one member sees it.
type view struct {
	*board
	moved   chan struct{}
	changed map[string]bool
}

func (b *board) view() *view {
	v := &view{board: b, moved: make(chan struct{}), changed: map[string]bool{}}
	b.seen = append(b.seen, v)
	return v
}

// put has something wanted of a service.
func (b *board) put(app string, edit func(*catalog.Service)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.all[app]
	if s == nil {
		s = &catalog.Service{App: catalog.App{Name: app, ID: "id-" + app}}
		b.all[app] = s
	}
	edit(s)
	for _, v := range b.seen {
		v.changed[app] = true
		close(v.moved)
		v.moved = make(chan struct{})
	}
}

// deploy has a release of one group wanted.
func (b *board) deploy(app, image string, replicas int) {
	b.want(app, release.Group{Name: "web", Replicas: replicas, Config: &machine.Config{Image: image}})
}

// deploySingle has one of a group wanted that is single.
func (b *board) deploySingle(app string) {
	b.want(app, release.Group{Name: "web", Replicas: 1, Single: true, Config: &machine.Config{Image: "one"}})
}

func (b *board) want(app string, g release.Group) {
	b.put(app, func(s *catalog.Service) {
		r := &release.Release{Schema: release.Schema, Groups: []release.Group{g}}
		head, err := s.Head.Next(release.Change{Release: r.ID(), At: time.Now()}, r, s.Release, s.Tenure.Progress)
		if err != nil {
			panic(err)
		}
		s.Before = nil
		if head.Before != nil {
			s.Before = s.Release
		}
		s.Head, s.Release = head, r
	})
}

func (v *view) AllServices() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.all))
}

func (v *view) Service(app string) (catalog.Service, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.all[app]; s != nil {
		return *s, true
	}
	return catalog.Service{}, false
}

func (v *view) ServicesMoved() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moved
}

func (v *view) TakeMovedServices() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := slices.Collect(maps.Keys(v.changed))
	clear(v.changed)
	return out
}

func (v *view) SetTenure(app string, t release.Tenure) error {
	v.put(app, func(s *catalog.Service) { s.Tenure = t })
	v.mu.Lock()
	defer v.mu.Unlock()
	v.terms++
	return nil
}

func (v *view) Stewards() []cluster.WorkerID {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.heard)
}

// Stuck asks a member that may be stuck.
func (v *view) Stuck(_ context.Context, id cluster.WorkerID) (time.Duration, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stuck == id {
		return time.Hour, nil
	}
	return 0, nil
}

// bed is a fleet of one worker, and members that may carry services.
type bed struct {
	*board
	*hands
	t       *testing.T
	running *Services // of the newest member
}

func newBed(t *testing.T) *bed {
	f := fleet.New()
	f.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: "w1", State: cluster.MemberAlive})
		e.Record(cluster.Record{Worker: "w1"}, 1)
	})
	return &bed{board: &board{all: map[string]*catalog.Service{}}, hands: &hands{fleet: f}, t: t}
}

// member runs the services of a member until the test ends, or until what it returns is called.
func (b *bed) member(id cluster.WorkerID) (stop func()) {
	b.board.mu.Lock()
	b.heard = append(b.heard, id)
	v := b.view()
	b.board.mu.Unlock()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.running = New(Options{Self: id, Members: v, Catalog: v, Fleet: b.fleet, Hands: b.hands,
		Log: slog.New(slog.NewTextHandler(b.board, nil))})
	go b.running.Run(ctx)
	return cancel
}

// in waits until all have done what they do, and for a while.
func (b *bed) in(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bed) machines(app string) (n int) {
	for range b.fleet.Snapshot().MachinesOf(app) {
		n++
	}
	return n
}

// TestServiceIsMadeByOneMember: one of three members makes the service, which costs nothing afterwards.
func TestServiceIsMadeByOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		for _, id := range []cluster.WorkerID{"w1", "w2", "w3"} {
			b.member(id)
		}
		b.deploy("shop", "one", 3)
		b.in(time.Second)
		if n := len(b.take()); n != 0 {
			t.Fatalf("%d orders by members that do not know the others yet", n)
		}
		b.in(20 * time.Second)
		by := map[cluster.WorkerID]bool{}
		orders := b.take()
		for _, o := range orders {
			by[o.Term.Member] = true
		}
		if len(orders) != 3 || b.machines("shop") != 3 || len(by) != 1 {
			t.Fatalf("%d machines of 3; orders %+v", b.machines("shop"), orders)
		}
		if s, _ := b.seen[0].Service("shop"); s.Tenure.Busy || b.terms != 2 {
			t.Errorf("it has said %d times who carries the service: %+v", b.terms, s.Tenure)
		}
		b.in(time.Hour)
		if n := len(b.take()); n != 0 || b.terms != 2 {
			t.Errorf("%d orders and %d terms of a service at rest", n, b.terms)
		}
		for m := range b.fleet.Snapshot().MachinesOf("shop") { // one is destroyed
			b.fleet.Update(func(e *fleet.Edit) { e.Gone(m.Worker, m.ID) })
			break
		}
		b.in(time.Second)
		if orders := b.take(); len(orders) != 1 || orders[0].Verb != rollout.Make || b.machines("shop") != 3 {
			t.Errorf("%d machines of 3; orders %+v", b.machines("shop"), orders)
		}
	})
}

// TestServiceAtRestCostsNothing: a service at rest is dropped from memory until something changes, and then managed in
// a later term.
func TestServiceAtRestCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.member("w1")
		b.deploy("shop", "one", 1)
		b.deploy("closed", "one", 0)
		b.in(20 * time.Second)
		kept := func() (apps []string) {
			b.running.ends <- func(time.Time) { apps = slices.Sorted(maps.Keys(b.running.apps)) }
			synctest.Wait()
			return apps
		}
		if got := kept(); !slices.Equal(got, []string{"shop"}) {
			t.Errorf("at once it remembers %q", got)
		}
		b.in(restFor)
		if got := kept(); len(got) != 0 {
			t.Errorf("after %v it remembers %q", restFor, got)
		}
		first := b.take()[0].Term
		for m := range b.fleet.Snapshot().MachinesOf("shop") {
			b.fleet.Update(func(e *fleet.Edit) { e.Gone(m.Worker, m.ID) })
		}
		b.in(time.Second)
		if made := b.take(); len(made) != 1 || made[0].Term.Compare(first) <= 0 || b.machines("shop") != 1 {
			t.Errorf("after term %v: %+v", first, made)
		}
	})
}

// TestClusterAfterPowerCutWaitsForOthers: after a power cut hosts return one by one: the first waits for the machines
// of the others, for a bounded time.
func TestClusterAfterPowerCutWaitsForOthers(t *testing.T) {
	for _, x := range []struct {
		name string
		back bool
		want int // orders
	}{
		{"the other comes back", true, 0},
		{"the other stays away", false, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.deploy("shop", "one", 2)
				b.fleet.Update(func(e *fleet.Edit) { e.Member(fleet.Member{ID: "w2"}) }) // saved, and not heard
				b.member("w1")
				b.in(awaitFor - time.Second)
				if n := len(b.take()); n != 0 {
					t.Fatalf("%d orders while a worker is awaited", n)
				}
				if x.back {
					spec := b.all["shop"].Release.Spec(&b.all["shop"].Release.Groups[0], 0)
					b.fleet.Update(func(e *fleet.Edit) {
						e.Member(fleet.Member{ID: "w2", State: cluster.MemberAlive})
						e.Record(cluster.Record{Worker: "w2"}, 1)
						for i := range 2 {
							e.Machine(fleet.Machine{ID: fmt.Sprint("m", i), App: "shop", Worker: "w2", Ready: true,
								State: machine.Started, Replica: &machine.Replica{Group: "web", Index: i, Spec: spec}})
						}
					})
				}
				b.in(2 * time.Second)
				if n := len(b.take()); n != x.want {
					t.Errorf("%d orders; want %d", n, x.want)
				}
			})
		})
	}
}

// TestSingletonWaitsForAllWorkersToObey: a group whose machines are never replaced gets a machine only after every
// worker obeys the term; an unreachable worker delays such groups alone, until it returns or is removed.
func TestSingletonWaitsForAllWorkersToObey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.member("w1")
		for _, id := range []cluster.WorkerID{"w2", "w3"} {
			b.fleet.Update(func(e *fleet.Edit) {
				e.Member(fleet.Member{ID: id, State: cluster.MemberAlive})
				e.Record(cluster.Record{Worker: id}, 1)
			})
		}
		hear := func(id cluster.WorkerID, state cluster.MemberState) {
			b.fleet.Update(func(e *fleet.Edit) { e.Member(fleet.Member{ID: id, State: state, Since: time.Now()}) })
		}
		b.deploy("free", "one", 1)
		b.in(time.Minute)
		if n := len(b.obeyed); n != 0 || len(b.take()) != 1 {
			t.Errorf("%d workers were to obey for a service that needs none to", n)
		}
		b.deploySingle("shop")
		b.in(time.Second)
		if made := b.take(); len(made) != 1 || len(b.obeyed) != 3 || b.obeyed[0].term != made[0].Term {
			t.Fatalf("%+v obeyed before %+v", b.obeyed, made)
		}
		hear("w3", cluster.MemberDead)
		b.deploySingle("other")
		b.deploy("free", "one", 2)
		b.in(time.Minute)
		if made := b.take(); len(made) != 1 || b.machines("free") != 2 {
			t.Fatalf("while w3 is not heard: %+v", made)
		}
		hear("w3", cluster.MemberAlive)
		b.in(time.Second)
		if len(b.take()) != 1 || b.machines("other") != 1 {
			t.Error("nothing was made when w3 was heard again")
		}
		hear("w3", cluster.MemberDead)
		b.deploySingle("third")
		b.in(time.Minute)
		b.fleet.Update(func(e *fleet.Edit) { e.Forget("w3") })
		b.in(time.Second)
		if len(b.take()) != 1 || b.machines("third") != 1 {
			t.Error("nothing was made when w3 was removed")
		}
	})
}

// TestNoProcessBeginsATermTwice: a process never begins one term twice, even if the cluster has forgotten it.
func TestNoProcessBeginsATermTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.member("w1")
		b.deploy("shop", "one", 1)
		b.in(time.Minute)
		b.put("shop", func(s *catalog.Service) {
			s.Tenure = release.Tenure{Term: cluster.Term{Number: 1, Member: "w0"}} // of the other side of a cut
			b.heard = []cluster.WorkerID{"w1", "w2"}
		})
		b.in(time.Second)
		first := b.take()[0].Term
		b.put("shop", func(s *catalog.Service) { b.heard, s.Tenure.Busy = []cluster.WorkerID{"w0"}, true })
		b.in(time.Second)
		b.put("shop", func(s *catalog.Service) { b.heard, s.Tenure = []cluster.WorkerID{"w1"}, release.Tenure{} })
		b.deploy("shop", "one", 2)
		b.in(time.Minute)
		if made := b.take(); len(made) != 1 || made[0].Term.Number <= first.Number {
			t.Errorf("after term %v: %+v", first, made)
		}
	})
}

// TestIsolatedStewardIsSucceeded: while it is at work the next one goes on, in a higher term; and a machine that is no service's is
// left alone.
func TestIsolatedStewardIsSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		stops := map[cluster.WorkerID]func(){}
		for _, id := range []cluster.WorkerID{"w1", "w2", "w3"} {
			stops[id] = b.member(id)
		}
		b.fleet.Update(func(e *fleet.Edit) {
			e.Machine(fleet.Machine{ID: "own", App: "shop", Worker: "w1", State: machine.Started})
		})
		b.hands.wait = make(chan struct{})
		b.deploy("shop", "one", 2)
		b.in(10 * time.Second)
		first := b.take()
		if len(first) != 2 {
			t.Fatalf("%+v", first)
		}
		gone := first[0].Term
		stops[gone.Member]()
		b.hands.mu.Lock()
		b.hands.wait = nil
		b.hands.mu.Unlock()
		b.put("shop", func(*catalog.Service) {
			b.heard = slices.DeleteFunc(b.heard, func(id cluster.WorkerID) bool { return id == gone.Member })
		})
		b.in(time.Second)
		second := b.take()
		if len(second) != 2 || second[0].Term.Compare(gone) <= 0 || second[0].Machine == first[0].Machine {
			t.Fatalf("after %+v: %+v", first, second)
		}
		b.put("shop", func(*catalog.Service) { b.heard = append(b.heard, gone.Member) })
		b.in(time.Minute)
		if n := len(b.take()); n != 0 || b.machines("shop") != 3 {
			t.Errorf("%d orders at rest, %d machines", n, b.machines("shop"))
		}
	})
}

// TestFailedCreateIsRetriedWithBackoff, by and by later.
func TestFailedCreateIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.member("w1")
		b.hands.err = &fault.Error{Kind: fault.Exhausted, Code: "no_capacity", Text: "no"}
		b.deploy("shop", "one", 1)
		b.in(settleFor + time.Minute)
		if n := len(b.take()); n < 5 || n > 9 {
			t.Errorf("it was tried %d times in a minute", n)
		}
		b.hands.mu.Lock()
		b.hands.err = nil
		b.hands.mu.Unlock()
		b.in(16 * time.Second)
		if b.machines("shop") != 1 {
			t.Error("it was not made when it could be")
		}
	})
}

// TestDeletedServiceIsLeftAlone: a deleted service gets no orders: the deletion of its app removes the machines.
func TestDeletedServiceIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.member("w1")
		b.deploy("shop", "one", 2)
		b.in(10 * time.Second)
		b.take()
		b.put("shop", func(*catalog.Service) { delete(b.all, "shop") })
		b.in(time.Minute)
		if n := len(b.take()); n != 0 {
			t.Errorf("%d orders", n)
		}
	})
}

// TestStuckStewardIsReplacedAfter5s: a stuck steward with work to do is replaced after 5 s, by one member.
func TestStuckStewardIsReplacedAfter5s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		all := []cluster.WorkerID{"w1", "w2", "w3"}
		b.stuck = release.StewardOf("id-shop", all, release.Tenure{})
		for _, id := range all {
			if id != b.stuck {
				b.member(id)
			}
		}
		b.put("shop", func(*catalog.Service) { b.heard = all })
		b.in(time.Minute)
		b.deploy("shop", "one", 2)
		b.in(stuckFor - time.Second)
		if n := len(b.take()); n != 0 {
			t.Fatalf("%d orders though the steward may yet go on", n)
		}
		b.in(askEvery + 2*time.Second)
		orders := b.take()
		if len(orders) != 2 || b.machines("shop") != 2 || orders[0].Term != orders[1].Term ||
			orders[0].Term.Member == b.stuck {
			t.Fatalf("%+v", orders)
		}
		b.in(time.Hour)
		if s, _ := b.seen[0].Service("shop"); s.Tenure.Busy || b.terms != 2 || len(b.take()) != 0 {
			t.Errorf("%d terms, the last %+v", b.terms, s.Tenure)
		}
	})
}

// TestBusyStewardIsNotReplaced: a steward that works is not replaced, however long its orders take.
func TestBusyStewardIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		for _, id := range []cluster.WorkerID{"w1", "w2", "w3"} {
			b.member(id)
		}
		b.hands.wait = make(chan struct{})
		b.deploy("shop", "one", 2)
		b.in(time.Minute)
		if orders := b.take(); len(orders) != 2 || b.terms != 1 {
			t.Errorf("%d terms, %+v", b.terms, orders)
		}
	})
}

// TestFaultyWorkerIsCordonedOnce: where machines of three services die that do well elsewhere, one of the members cordons the worker,
// once, and of twenty workers no more than two are.
func TestFaultyWorkerIsCordonedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		for _, id := range []cluster.WorkerID{"w1", "w2", "w3"} {
			b.member(id)
		}
		b.fleet.Update(func(e *fleet.Edit) {
			for i := range 20 {
				id := cluster.WorkerID(fmt.Sprint("w", i+1))
				e.Member(fleet.Member{ID: id, State: cluster.MemberAlive})
				e.Record(cluster.Record{Worker: id, Version: 1}, 1)
			}
		})
		b.in(time.Minute)
		for i := range 12 {
			bad := cluster.WorkerID(fmt.Sprint("w", 4+i/3)) // w4 to w7, three services each
			b.fleet.Update(func(e *fleet.Edit) {
				app := fmt.Sprint("app", i)
				e.Machine(fleet.Machine{ID: app + "-0", App: app, Worker: bad, State: machine.Stopped, Loops: true,
					Updated: time.Now(), Replica: &machine.Replica{Group: "web"}})
				e.Machine(fleet.Machine{ID: app + "-1", App: app, Worker: "w20", State: machine.Started, Ready: true,
					Replica: &machine.Replica{Group: "web", Index: 1}})
			})
			b.in(time.Second)
		}
		b.in(time.Minute)
		b.hands.mu.Lock()
		defer b.hands.mu.Unlock()
		if !slices.Equal(b.cordons, []cluster.WorkerID{"w4", "w5"}) {
			t.Errorf("%v are cordoned", b.cordons)
		}
	})
}
