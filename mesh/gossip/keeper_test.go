package gossip

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// gate lets all through until it is shut, and tells of each who waits before it.
type gate struct {
	shut    atomic.Bool
	waiting chan struct{}
	open    chan struct{}
}

func newGate() *gate { return &gate{waiting: make(chan struct{}, 1024), open: make(chan struct{})} }

func (g *gate) pass() {
	if g.shut.Load() {
		g.waiting <- struct{}{}
		<-g.open
	}
}

// gatedDisk is a disk whose writes pass a gate.
type gatedDisk struct {
	storage
	*gate
}

func (d gatedDisk) appendObjects(sync bool, objs ...registry.Object) error {
	d.pass()
	return d.storage.appendObjects(sync, objs...)
}

func (d gatedDisk) rewriteObjects(objs []registry.Object) error {
	d.pass()
	return d.storage.rewriteObjects(objs)
}

func (d gatedDisk) writeMembers(s saved) error {
	d.pass()
	return d.storage.writeMembers(s)
}

// promptly fails the test when f waits for something.
func promptly(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s waits", what)
	}
}

// goesOn is all that must go on at a member that waits for its disk, or for a signature: b is known to it.
func (m *member) goesOn() {
	m.t.Helper()
	d, b := delegate{m.Cluster}, &memberlist.Node{Name: "b", Addr: net.IPv4(127, 0, 0, 1), Port: 1,
		Meta: meta{}.encode()}
	for what, f := range map[string]func(){
		"a probe's answer":          func() { d.AckPayload(); d.LocalState(false) },
		"a probe that was answered": func() { d.NotifyPingComplete(b, time.Millisecond, make([]byte, 8)) },
		"a full exchange":           func() { d.MergeRemoteState(append(make([]byte, 8), 'b'), false) },
		"news of a member":          func() { d.NotifyUpdate(b); d.NodeMeta(512) },
		"a broadcast":               func() { d.NotifyMsg([]byte("odd")) },
		"a suspicion": func() {
			m.members.noteSuspicion("b")
			m.members.noteAnswer("b",
				time.Millisecond)
		},
		"the view": func() { m.View(); m.Members(); m.Expected(); m.Machines(""); m.Known() },
		"an announcement": func() {
			_ = m.Announce(m.record(99))
			m.machine("mine",
				"started")
			_ = m.RemoveMachine("other")
		},
		"a reader of objects": func() { m.Objects().Get("app", "x"); m.Objects().List("app") },
		"a puller's answer":   func() { m.Answer(registry.Digest{}) },
	} {
		promptly(m.t, what, f)
	}
}

// TestOnlyWritersWaitForTheDisk: only the writer of an object waits until it is on disk.
func TestOnlyWritersWaitForTheDisk(t *testing.T) {
	g := newGate()
	a := startWith(t, Options{Self: "a", Dir: t.TempDir()},
		func(m *member) { m.keeper.storage = gatedDisk{m.keeper.storage, g} })
	b := start(t, Options{Self: "b"}, a)
	waittest.Until(t, "both see both", func() bool { return len(a.View().Workers) == 2 && len(b.View().Workers) == 2 })
	g.shut.Store(true)
	put := make(chan error, 1)
	go func() {
		_, err := a.Objects().Put("app", "x", 1, []byte("by a"))
		put <- err
	}()
	<-g.waiting
	a.goesOn()
	if _, err := b.Objects().Put("app", "y", 1, []byte("by b")); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "what another wrote is known here", func() bool {
		_, ok := a.Objects().Get("app", "y")
		return ok
	})
	waittest.Until(t, "what is announced here is known there", func() bool { _, ok := b.Where("mine"); return ok })
	select {
	case err := <-put:
		t.Fatal("an object is said to be kept that is not:", err)
	default:
	}
	g.shut.Store(false)
	close(g.open)
	if err := <-put; err != nil {
		t.Fatal(err)
	}
}

// TestSigningBlocksNoReader: neither for one that is made nor for one that is judged.
func TestSigningBlocksNoReader(t *testing.T) {
	for _, verifying := range []bool{false, true} {
		g := newGate()
		o := Options{Self: "a"}
		if verifying {
			o.Verify = func(cluster.WorkerID, []byte, []byte) error { g.pass(); return nil }
		} else {
			o.Sign = func([]byte) []byte { g.pass(); return []byte("a") }
		}
		a := start(t, o)
		b := start(t, Options{Self: "b", Sign: func([]byte) []byte { return []byte("b") }}, a)
		waittest.Until(t, "both see both", func() bool {
			return len(a.View().Workers) == 2 && len(b.View().Workers) == 2
		})
		g.shut.Store(true)
		if verifying {
			b.machine("m1", "started")
		} else {
			a.machine("m1", "started")
		}
		<-g.waiting
		a.goesOn()
		g.shut.Store(false)
		close(g.open)
		waittest.Until(t, "both know of it", func() bool {
			_, x := a.Where("m1")
			_, y := b.Where("m1")
			return x && y
		})
	}
}

// TestConcurrentWritersShareAnFsync: what comes while the disk writes is written together, and in no other order.
func TestConcurrentWritersShareAnFsync(t *testing.T) {
	g, d := newGate(), &countedDisk{}
	k := newKeeper(gatedDisk{d, g}, saved{}, nil)
	g.shut.Store(true)
	var all sync.WaitGroup
	put := func(i int) {
		all.Go(func() {
			if err := k.putObject(registry.Object{Kind: "app", Key: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	put(0)
	<-g.waiting
	for i := range 100 {
		put(i + 1)
	}
	waittest.Until(t, "all wait", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.waiting.objects) == 100
	})
	g.shut.Store(false)
	close(g.open)
	all.Wait()
	if err := k.close(); err != nil || d.syncs != 2 || d.objects != 101 {
		t.Errorf("%d objects took %d fsyncs: %v", d.objects, d.syncs, err)
	}
	if err := k.putObject(registry.Object{}); err == nil {
		t.Error("something is kept after the end")
	}
}

// TestReceivedObjectsAreSynced: a host that loses its power a minute after it heard of a token still knows it.
func TestReceivedObjectsAreSynced(t *testing.T) {
	d := &countedDisk{}
	k := newKeeper(d, saved{}, nil)
	k.keepObjects([]registry.Object{{Kind: "token", Key: "x"}}, nil)
	if err := k.close(); err != nil || d.objects != 1 || d.syncs != 1 {
		t.Errorf("%d objects were kept with %d fsyncs: %v", d.objects, d.syncs, err)
	}
}

// countedDisk keeps nothing, and counts.
type countedDisk struct {
	objects, syncs, rewrites, writes int
	err                              error
}

func (d *countedDisk) appendObjects(sync bool, objs ...registry.Object) error {
	d.objects += len(objs)
	if sync {
		d.syncs++
	}
	return d.err
}

func (d *countedDisk) rewriteObjects(objs []registry.Object) error { d.rewrites++; return d.err }
func (d *countedDisk) needsRewrite() bool                          { return false }
func (d *countedDisk) writeMembers(saved) error                    { d.writes++; return d.err }
func (d *countedDisk) close() error                                { return nil }

// TestStalledDiskQueueIsBounded: what nobody waits for is bounded, and found again in the registry.
func TestStalledDiskQueueIsBounded(t *testing.T) {
	g, d := newGate(), &countedDisk{}
	k := newKeeper(gatedDisk{d, g}, saved{}, nil)
	g.shut.Store(true)
	done := k.addToBatch(func(b *batch) { b.objects = append(b.objects, registry.Object{}) })
	<-g.waiting
	for range 3 * maxWaiting {
		k.keepObjects([]registry.Object{{Kind: "app", Key: "x"}}, func() []registry.Object { return nil })
	}
	k.mu.Lock()
	n := len(k.waiting.objects)
	k.mu.Unlock()
	if n > maxWaiting {
		t.Errorf("%d objects wait; %d is the most", n, maxWaiting)
	}
	g.shut.Store(false)
	close(g.open)
	<-done
	if err := k.close(); err != nil || d.rewrites != 1 {
		t.Errorf("the file was made anew %d times: %v", d.rewrites, err)
	}
}

// TestDiskErrorReachesTheWriter: the writer of an object gets the error of the disk.
func TestDiskErrorReachesTheWriter(t *testing.T) {
	full := errors.New("no space left")
	a := startWith(t, Options{Self: "a", Dir: t.TempDir()},
		func(m *member) { m.keeper.storage = refusing{m.keeper.storage, full} })
	if _, err := a.Objects().Put("app", "x", 1, []byte("by a")); !errors.Is(err, full) {
		t.Error("an object is said to be kept that is not:", err)
	}
}

// refusing is a disk that takes no objects.
type refusing struct {
	storage
	err error
}

func (d refusing) appendObjects(bool, ...registry.Object) error { return d.err }

// TestMemberlistLogsASuspicion: its log is the only way, so a version that says it in other words must fail here.
func TestMemberlistLogsASuspicion(t *testing.T) {
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b"}, a)
	waittest.Until(t, "both know each other", func() bool {
		return state(a, "b") == cluster.MemberAlive &&
			state(b, "a") == cluster.MemberAlive
	})
	b.link.cut.Store(true)
	waittest.Until(t, "b is dead to a", func() bool { return state(a, "b") == cluster.MemberDead })
	var told []cluster.MemberState
	for _, f := range a.Facts(0) {
		if f.Member == "b" {
			told = append(told, f.State)
		}
	}
	if !slices.Contains(told, cluster.MemberSuspect) {
		t.Errorf("a told %v of b, no suspicion among it: does memberlist's log still match %q?", told, suspected())
	}
}

// BenchmarkProbeOfABusyMember measures a whole probe of a member that writes apps all the time, beside one of a member that
// does nothing: the floor.
func BenchmarkProbeOfABusyMember(b *testing.B) {
	for _, writers := range []int{0, 8} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { probes(b, writers) })
	}
}

func probes(b *testing.B, writers int) {
	ms := []*Cluster{}
	for _, id := range []cluster.WorkerID{"a", "b"} {
		dir, err := os.MkdirTemp(b.TempDir(), string(id))
		if err != nil {
			b.Fatal(err)
		}
		c, err := New(Options{Self: id, Dir: dir, Keys: [][]byte{key}})
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Run(b.Context()) }()
		b.Cleanup(func() { <-done })
		<-c.Ready()
		ms = append(ms, c)
	}
	if err := ms[1].Join(b.Context(), []string{ms[0].Addr()}); err != nil {
		b.Fatal(err)
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	var written atomic.Int64
	for w := range writers {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := ms[0].Objects().Put("app", fmt.Sprintf("%d-%d", w, i%100), 1, fmt.Append(nil,
					i)); err != nil {
					b.Error(err)
					return
				}
				written.Add(1)
			}
		})
	}
	addr, err := net.ResolveUDPAddr("udp", ms[0].Addr())
	if err != nil {
		b.Fatal(err)
	}
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		if rtt, err := ms[1].ml.Ping("a", addr); err == nil {
			took = append(took, rtt)
		}
	}
	close(stop)
	all.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(b.N-len(took)), "unanswered")
	b.ReportMetric(float64(written.Load())/b.Elapsed().Seconds(), "apps/s")
}
