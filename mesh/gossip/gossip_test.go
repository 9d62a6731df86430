package gossip

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// A probe that is under way when memberlist is shut down waits for its answer yet, for seconds on a slow host.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

var key = []byte("0123456789abcdef")

// fast is gossiptest.Fast, which imports this package.
func fast() Knobs {
	k := LAN()
	k.Probe, k.ProbeTimeout, k.Suspicion, k.SuspicionMax = 100*time.Millisecond, 50*time.Millisecond, 3, 3
	k.Reprobe, k.Gossip, k.PushPull = 50*time.Millisecond, 20*time.Millisecond, 2*time.Second
	k.Sync, k.Settle, k.Flush = time.Second, 20*time.Millisecond, time.Millisecond
	k.Reconnect, k.Save, k.StuckAfter = 200*time.Millisecond, 50*time.Millisecond, time.Second
	return k
}

// member is a Cluster that a test runs.
type member struct {
	*Cluster
	t    *testing.T
	link link
	stop func()
}

func start(t *testing.T, o Options, join ...*member) *member {
	t.Helper()
	return startWith(t, o, func(*member) {}, join...)
}

// startWith starts a member that adjust has changed before it runs.
func startWith(t *testing.T, o Options, adjust func(*member), join ...*member) *member {
	t.Helper()
	if o.Keys == nil {
		o.Keys = [][]byte{key}
	}
	if o.Knobs == (Knobs{}) {
		o.Knobs = fast()
	}
	o.Role, o.API, o.Capability = "worker", "https://"+string(o.Self), 20261121
	o.Build = cluster.Build{Version: "0.1.0", Commit: "7c24b53e5678"}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{Cluster: c, t: t}
	adjust(m)
	m.link.put(c)
	w := m.record(1)
	if err := c.Begin(&w, nil); err != nil {
		t.Fatal(err)
	}
	m.run()
	for _, j := range join { // again and again, as upkeep does
		waittest.Succeed(t, "it has joined", func() error { return c.Join(t.Context(), []string{j.Addr()}) })
	}
	return m
}

func (m *member) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				m.t.Error(err)
			}
		})
	}
	m.t.Cleanup(m.stop)
	<-m.Ready()
}

func (m *member) record(used int64) cluster.Record {
	return cluster.Record{Worker: m.o.Self, Region: "local", State: cluster.Ready, Incarnation: 1,
		Version:  uint64(used),
		Capacity: cluster.Resources{CPU: 1000}, Used: cluster.Resources{CPU: used}}
}

func (m *member) machine(id, state string) {
	m.t.Helper()
	if err := m.AnnounceMachine(Machine{ID: id, App: "app", State: state, Worker: m.o.Self,
		UpdatedAt: time.Now()}); err != nil {
		m.t.Fatal(err)
	}
}

func sameRoot(ms ...*member) func() bool {
	return func() bool {
		for _, m := range ms {
			if m.Root() != ms[0].Root() {
				return false
			}
		}
		return true
	}
}

func state(m *member, id cluster.WorkerID) cluster.MemberState {
	for _, x := range m.Members() {
		if x.ID == id {
			return x.State
		}
	}
	return ""
}

func TestThreeMembersKnowAllOfEachOther(t *testing.T) {
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b"}, a)
	c := start(t, Options{Self: "c"}, b)
	all := []*member{a, b, c}
	waittest.Until(t, "all see all", func() bool {
		return len(a.View().Workers) == 3 && len(b.View().Workers) == 3 && len(c.View().Workers) == 3
	})
	waittest.Until(t, "b is alive to a, however busy the host is", func() bool {
		return state(a, "b") == cluster.MemberAlive
	})
	if m := a.Members()[1]; m.ID != "b" || m.API != "https://b" || m.Role != "worker" || m.Capability != 20261121 ||
		m.Build.Commit != "7c24b53e5678" || !m.Heard() {
		t.Fatalf("%+v", m)
	}
	b.machine("m1", "started")
	if err := c.Announce(c.record(7)); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a and c know of b's machine, and a and b what c uses", func() bool {
		w, ok := a.Where("m1")
		x, _ := c.Machine("m1")
		return ok && w == "b" && x.State == "started" && a.View().Workers[2].Used.CPU == 7 &&
			b.View().Workers[2].Used.CPU == 7
	})
	b.machine("m1", "stopped")
	waittest.Until(t, "it is stopped", func() bool { x, _ := a.Machine("m1"); return x.State == "stopped" })
	if err := b.RemoveMachine("m1"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "it is gone", func() bool { _, ok := c.Where("m1"); return !ok })
	if _, err := a.Objects().Put("app", "web", 1, []byte("by a")); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "c has the object", func() bool {
		o, ok := c.Objects().Get("app", "web")
		return ok &&
			string(o.Payload) == "by a"
	})
	// more than a packet
	if _, err := c.Objects().Put("app", "web", 1, []byte(strings.Repeat("by c", 5000))); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a has what c wrote over it",
		func() bool { o, _ := a.Objects().Get("app", "web"); return len(o.Payload) == 20000 })
	waittest.Until(t, "all know the same", sameRoot(all...))
	for _, m := range all {
		for _, p := range m.View().Parts {
			if !(cluster.Member{State: p.State}).Heard() || p.Gap || p.Age > time.Minute {
				t.Errorf("%s thinks of %+v", m.o.Self, p)
			}
		}
	}
}

func TestLargeBurstArrivesByPull(t *testing.T) {
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b"}, a)
	for i := range 2000 {
		a.machine(fmt.Sprintf("m%04d", i), "started")
	}
	waittest.Until(t, "b has all 2,000 machines", func() bool { return len(b.Machines("app")) == 2000 })
	big := a.record(1)
	big.Apps = map[string]int{}
	for i := range 400 {
		big.Apps[fmt.Sprintf("an-app-with-a-longish-name-%d", i)] = i
	}
	if err := a.Announce(big); err != nil { // a record that fits in no packet
		t.Fatal(err)
	}
	waittest.Until(t, "b has the large record", func() bool {
		return len(b.View().Workers) == 2 &&
			len(b.View().Workers[0].Apps) == 400
	})
}

func TestDeathIsRecordedWithItsTime(t *testing.T) {
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b"}, a)
	c := start(t, Options{Self: "c"}, a)
	waittest.Until(t, "all see all", func() bool {
		return len(a.View().Workers) == 3 && len(b.View().Workers) == 3 && len(c.View().Workers) == 3
	})
	c.machine("m1", "started")
	waittest.Until(t, "a knows of m1", func() bool { _, ok := a.Where("m1"); return ok })
	c.stop()
	waittest.Until(t, "c is dead to both", func() bool {
		return state(a, "c") == cluster.MemberDead &&
			state(b, "c") == cluster.MemberDead
	})
	v := a.View()
	if len(v.Workers) != 2 || len(v.Parts) != 3 || v.Parts[2].State != cluster.MemberDead || v.Parts[2].Since.IsZero() {
		t.Fatalf("%+v", v)
	}
	if w, ok := a.Where("m1"); !ok || w != "c" {
		t.Fatal("what a dead worker had is forgotten, though it may only be cut off")
	}
	facts := a.Facts(0)
	if last := facts[len(facts)-1]; last.Member != "c" || last.State != cluster.MemberDead {
		t.Fatalf("%+v", facts)
	}
	if err := b.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "b has left", func() bool { return state(a, "b") == cluster.MemberLeft })
	if err := a.Forget("c"); err != nil || a.Forget("a") == nil {
		t.Fatal(err)
	}
	if _, ok := a.Where("m1"); ok {
		t.Fatal("c is not forgotten")
	}
}

// TestSuspectedMemberIsProbedUntilItAnswers: a suspected member is probed until it answers, since memberlist does not
// report a refuted suspicion.
func TestSuspectedMemberIsProbedUntilItAnswers(t *testing.T) {
	k := fast()
	k.Probe, k.ProbeTimeout, k.Save, k.StuckAfter, k.Reprobe = time.Hour, time.Second, time.Hour, time.Hour,
		10*time.Millisecond
	a := start(t, Options{Self: "a", Knobs: k})
	b := start(t, Options{Self: "b", Knobs: k}, a)
	waittest.Until(t, "both know each other", func() bool {
		return state(a, "b") == cluster.MemberAlive &&
			state(b, "a") == cluster.MemberAlive
	})
	b.link.cut.Store(true)
	a.members.noteSuspicion("b")
	waittest.Until(t, "a suspects b", func() bool { return state(a, "b") == cluster.MemberSuspect })
	b.link.cut.Store(false)
	waittest.Until(t, "b has answered", func() bool { return state(a, "b") == cluster.MemberAlive })
	var told []cluster.MemberState
	for _, f := range a.Facts(0) {
		if f.Member == "b" {
			told = append(told, f.State)
		}
	}
	if !slices.Equal(told, []cluster.MemberState{cluster.MemberAlive, cluster.MemberSuspect, cluster.MemberAlive}) {
		t.Errorf("a told %v of b", told)
	}
}

// TestSuspectedMemberIsStillPulledFrom: what an answer waits for is not left out since its member was late with an answer to a
// probe.
func TestSuspectedMemberIsStillPulledFrom(t *testing.T) {
	k := fast()
	k.Probe, k.Reprobe, k.Gossip = time.Hour, time.Hour, time.Hour
	k.Sync, k.Save, k.StuckAfter = time.Hour, time.Hour, time.Hour
	a := start(t, Options{Self: "a", Knobs: k})
	b := start(t, Options{Self: "b", Knobs: k}, a)
	waittest.Until(t, "a knows b", func() bool { return state(a, "b") == cluster.MemberAlive })
	a.members.noteSuspicion("b")
	b.machine("m1", "started")
	b.announcer.announceWaiting()
	if err := a.PullFrom(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, known := a.Where("m1"); !known {
		t.Error("what the suspect has told is not known")
	}
}

func TestSingleMemberQueuesNoBroadcasts(t *testing.T) {
	a := start(t, Options{Self: "a"})
	<-a.Ready()
	a.machine("m1", "started")
	a.announcer.announceWaiting()
	a.announcer.flushNow()
	if n := a.Stats().Queued; n != 0 {
		t.Errorf("%d broadcasts wait for nobody", n)
	}
}

func TestCutHealsWithTheLaterWrite(t *testing.T) {
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b"}, a)
	c := start(t, Options{Self: "c"}, a)
	waittest.Until(t, "all see all", func() bool {
		return len(a.View().Workers) == 3 && len(b.View().Workers) == 3 && len(c.View().Workers) == 3
	})
	c.link.cut.Store(true)
	waittest.Until(t, "both sides think the other dead", func() bool {
		return state(a, "c") == cluster.MemberDead && state(b, "c") == cluster.MemberDead && state(c,
			"a") == cluster.MemberDead && state(c, "b") == cluster.MemberDead
	})
	a.machine("ma", "started")
	c.machine("mc", "started")
	if _, err := a.Objects().Put("app", "x", 1, []byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Objects().Put("app", "x", 1, []byte("c")); err != nil {
		t.Fatal(err)
	}
	c.link.cut.Store(false)
	waittest.Until(t, "all are one again", func() bool {
		_, ac := a.Where("mc")
		_, ca := c.Where("ma")
		return ac && ca && sameRoot(a, b, c)() && state(a, "c") == cluster.MemberAlive && state(c,
			"b") == cluster.MemberAlive
	})
	if o, _ := b.Objects().Get("app", "x"); string(o.Payload) != "c" {
		t.Fatalf("the later write lost: %s", o.Payload)
	}
}

func TestRestartFindsMembersAndObjects(t *testing.T) {
	dir := t.TempDir()
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b", Dir: dir}, a)
	waittest.Until(t, "both see both", func() bool { return len(a.View().Workers) == 2 && len(b.View().Workers) == 2 })
	if _, err := b.Objects().Put("app", "x", 1, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	b.machine("m1", "started")
	waittest.Until(t, "a knows of m1", func() bool { _, ok := a.Where("m1"); return ok })
	was := b.Incarnation("b")
	b.stop()
	b = start(t, Options{Self: "b", Dir: dir}) // joins nobody, and has lost m1
	if o, ok := b.Objects().Get("app", "x"); !ok || string(o.Payload) != "kept" {
		t.Fatal("the object is not there at once, with nobody to ask")
	}
	if b.Incarnation("b") <= was {
		t.Fatal("the incarnation did not grow")
	}
	waittest.Until(t, "they have found each other, and m1 is gone", func() bool {
		_, ok := a.Where("m1")
		return !ok && len(b.View().Workers) == 2 && state(a, "b") == cluster.MemberAlive && sameRoot(a, b)()
	})
}

// TestRestartedPairLooksForTheThirdMember: two restarted members that found each other still look for a third that
// they knew, which may not look for them.
func TestRestartedPairLooksForTheThirdMember(t *testing.T) {
	dirs := map[cluster.WorkerID]string{"a": t.TempDir(), "b": t.TempDir()}
	a := start(t, Options{Self: "a", Dir: dirs["a"]})
	b := start(t, Options{Self: "b", Dir: dirs["b"]}, a)
	c := start(t, Options{Self: "c"}, a)
	waittest.Until(t, "all see all", func() bool {
		return len(a.View().Workers) == 3 && len(b.View().Workers) == 3 && len(c.View().Workers) == 3
	})
	at := c.Addr()
	for _, m := range []*member{a, b, c} {
		m.stop()
	}
	a = start(t, Options{Self: "a", Dir: dirs["a"], Bind: a.Addr()})
	b = start(t, Options{Self: "b", Dir: dirs["b"], Bind: b.Addr()}, a)
	waittest.Until(t, "two see each other", func() bool {
		return len(a.View().Workers) == 2 && len(b.View().Workers) == 2
	})
	c = start(t, Options{Self: "c", Bind: at})
	waittest.Until(t, "the third is found", func() bool {
		return len(a.View().Workers) == 3 && len(b.View().Workers) == 3 && len(c.View().Workers) == 3 && sameRoot(a,
			b, c)()
	})
}

// TestWorkerWithAnOldDiskRecovers: a worker comes back that remembers less of itself than the others do.
func TestWorkerWithAnOldDiskRecovers(t *testing.T) {
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b", Incarnation: 7}, a)
	b.machine("m1", "started")
	waittest.Until(t, "a knows of m1", func() bool { _, ok := a.Where("m1"); return ok })
	b.stop()
	b = start(t, Options{Self: "b", Incarnation: 3}, a)
	b.machine("m2", "started")
	waittest.Until(t, "what is told of it is what it has", func() bool {
		_, m1 := a.Where("m1")
		_, m2 := a.Where("m2")
		return !m1 && m2 && sameRoot(a, b)()
	})
}

func TestLostUpdatesAreRepaired(t *testing.T) {
	var ms []*member
	for i := range 5 {
		ms = append(ms, startWith(t, Options{Self: cluster.WorkerID(fmt.Sprint("w", i))},
			func(m *member) { m.link.lose = func() bool { return rand.IntN(3) == 0 } }, ms...))
	}
	for i := range 100 {
		ms[i%5].machine(fmt.Sprint("m", i), "started")
	}
	waittest.Until(t, "all have all 100", func() bool {
		for _, m := range ms {
			if len(m.Machines("")) != 100 {
				return false
			}
		}
		return sameRoot(ms...)()
	})
}

func TestWrongKeyCannotJoinOrPull(t *testing.T) {
	a := start(t, Options{Self: "a"})
	e := start(t, Options{Self: "e", Keys: [][]byte{[]byte("fedcba9876543210")}})
	if err := e.Join(t.Context(), []string{a.Addr()}); err == nil {
		t.Fatal("it could join")
	}
	if _, err := e.net.pullDelta(t.Context(), e.seal.Load(), a.Addr(), registry.Digest{}); err == nil {
		t.Fatal("it could pull")
	}
	if len(a.Members()) != 1 {
		t.Fatal(a.Members())
	}
	both := start(t, Options{Self: "b", Keys: [][]byte{[]byte("fedcba9876543210"), key}}) // while keys are changed
	if err := both.Join(t.Context(), []string{e.Addr()}); err != nil {
		t.Fatal(err)
	}
}

// TestInvalidUpdatesBlockNobody: what decodes to nothing known, or to a lie, is carried or refused, and all goes on.
func TestInvalidUpdatesBlockNobody(t *testing.T) {
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b"}, a)
	waittest.Until(t, "both see both", func() bool { return len(a.View().Workers) == 2 && len(b.View().Workers) == 2 })
	for _, raw := range [][]byte{nil, {0x11}, []byte(strings.Repeat("x", 64<<10)), {0x13, 1, 1, 1, 255, 255, 255, 255,
		1}} {
		delegate{b.Cluster}.NotifyMsg(raw)
	}
	a.mu.Lock()
	for i, p := range []string{`{"worker":`, `[]`, `{"id":"m9","worker":"somebody"}`, `null`, "\x00\xff"} {
		if _, err := a.reg.Put(time.Now(), registry.Machine, fmt.Sprint("odd", i), schemaMachine,
			[]byte(p)); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.reg.Put(time.Now(), "of-the-future", "x", 99, []byte("??")); err != nil {
		t.Error(err)
	}
	a.afterChange()
	wakeLoop(a.announcer.flushes)
	a.mu.Unlock()
	a.machine("m1", "started")
	waittest.Until(t, "b knows of m1", func() bool { _, ok := b.Where("m1"); return ok })
	waittest.Until(t, "both have the same, odd things too", sameRoot(a, b))
	if n := len(b.Machines("")); n != 1 {
		t.Fatalf("%d machines are shown", n)
	}
	b.mu.Lock()
	_, carried := b.reg.Get("a", "of-the-future", "x")
	b.mu.Unlock()
	if !carried {
		t.Fatal("a kind of the future is dropped")
	}
}

func TestWatchResumesAndDetectsAStuckReader(t *testing.T) {
	stuck := make(chan string, 10)
	a := start(t, Options{Self: "a", Stuck: func(who string, _ time.Duration) { stuck <- who }})
	w := a.Watch("proxy", 0)
	if _, resync, err := w.Next(t.Context()); err != nil || !resync {
		t.Fatal("a watch from 0 begins with the whole view", resync, err)
	}
	a.machine("m1", "started")
	changes, resync, err := w.Next(t.Context())
	if err != nil || resync || len(changes) != 1 || changes[0].Key != "m1" {
		t.Fatal(changes, resync, err)
	}
	index := w.Index()
	w.Close()
	a.machine("m2", "started")
	w = a.Watch("proxy", index)
	defer w.Close()
	if changes, resync, err = w.Next(t.Context()); err != nil || resync || len(changes) != 1 || changes[0].Key != "m2" {
		t.Fatal(changes, resync, err)
	}
	a.machine("m3", "started") // and nobody reads it
	if who := <-stuck; who != "proxy" {
		t.Fatal(who)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := a.Watch("other", a.Index()).Next(ctx); err == nil {
		t.Fatal("it does not stop")
	}
}
