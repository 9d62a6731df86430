package fleet_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

func record(id cluster.WorkerID, version uint64) cluster.Record {
	return cluster.Record{Worker: id, Region: "iad", State: cluster.Ready, Incarnation: 1, Version: version,
		Capacity: cluster.Resources{CPU: 8000, Memory: 8192, Disk: 1 << 20, Ports: 100}}
}

// join makes workers that are alive and have told what they have.
func join(f *fleet.Fleet, ids ...cluster.WorkerID) {
	f.Update(func(e *fleet.Edit) {
		for _, id := range ids {
			e.Member(fleet.Member{ID: id, State: cluster.MemberAlive, Since: time.Unix(1, 0)})
			e.Record(record(id, 1), 1)
		}
	})
}

func names(f *fleet.Fleet, app string) string {
	var out []string
	for m := range f.Snapshot().MachinesOf(app) {
		out = append(out, m.Name+"="+m.ID+"@"+string(m.Worker))
	}
	return strings.Join(out, " ")
}

// TestSilentWorkerIsListedButNotRanked: a worker is in the snapshot from its first sign, and is ranked once its record
// is known.
func TestSilentWorkerIsListedButNotRanked(t *testing.T) {
	f := fleet.New()
	f.Update(func(e *fleet.Edit) { e.Member(fleet.Member{ID: "w1", State: "", Since: time.Time{}}) })
	if got := f.Snapshot().MustAsk(); !slices.Equal(got, []cluster.WorkerID{"w1"}) {
		t.Fatalf("must ask %v", got)
	}
	if n := len(f.Snapshot().View().Workers); n != 0 || f.Snapshot().Ready() != 0 {
		t.Fatalf("%d workers can be ranked", n)
	}
	join(f, "w1")
	if got := f.Snapshot().MustAsk(); len(got) != 0 || f.Snapshot().Ready() != 1 {
		t.Fatalf("must ask %v, ready %d", got, f.Snapshot().Ready())
	}
	f.Update(func(e *fleet.Edit) { e.MarkUnreported("w1") })
	if got := f.Snapshot().MustAsk(); len(got) != 1 || f.Snapshot().Ready() != 0 {
		t.Fatalf("must ask %v, ready %d", got, f.Snapshot().Ready())
	}
}

// TestRefusalRecordUpdatesTheSnapshot: the record that came with a refusal counts where it is newer, and only if it is the
// worker's.
func TestRefusalRecordUpdatesTheSnapshot(t *testing.T) {
	f := fleet.New()
	join(f, "w1", "w2")
	fresh := record("w1", 5)
	fresh.Used.CPU = 7000
	f.Refused("w1", fresh)
	f.Refused("w2", fresh)           // another worker's word
	f.Refused("w1", record("w1", 4)) // older
	f.Refused("w9", record("w9", 1)) // of whom nobody has heard
	s := f.Snapshot()
	if w, _ := s.Worker("w1"); w.Record.Used.CPU != 7000 || w.Record.Version != 5 {
		t.Errorf("w1: %+v", w.Record)
	}
	if w, _ := s.Worker("w2"); w.Record.Version != 1 {
		t.Errorf("w2: %+v", w.Record)
	}
	if s.Len() != 2 {
		t.Errorf("%d workers", s.Len())
	}
}

// TestLaterEpochReplacesAnEarlierOne: a worker that lost count of its incarnations is believed all the same.
func TestLaterEpochReplacesAnEarlierOne(t *testing.T) {
	f := fleet.New()
	join(f, "w1")
	f.Update(func(e *fleet.Edit) { e.Record(record("w1", 9), 1) })
	f.Update(func(e *fleet.Edit) { e.Record(record("w1", 1), 2) })
	if w, _ := f.Snapshot().Worker("w1"); w.Record.Version != 1 {
		t.Fatalf("%+v", w.Record)
	}
	f.Update(func(e *fleet.Edit) { e.Record(record("w1", 12), 1) }) // late, of the life before
	if w, _ := f.Snapshot().Worker("w1"); w.Record.Version != 1 {
		t.Fatalf("%+v", w.Record)
	}
}

// TestGrantedMachineIsVisibleAtOnce: a granted machine is found by id and name before its worker announces it; the
// worker's later records count. If the worker never announces it, it is forgotten in time.
func TestGrantedMachineIsVisibleAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet.New()
		join(f, "w1")
		made := func(id, name string) {
			f.Granted(&machine.Machine{ID: id, App: "a", Name: name, Worker: "w1", State: machine.Started},
				&placement.Request{App: "a", Machine: id})
		}
		made("m1", "one")
		made("m2", "two")
		made("m3", "three")
		if got := names(f, "a"); got != "one=m1@w1 three=m3@w1 two=m2@w1" {
			t.Fatal(got)
		}
		if home, ok := f.Snapshot().Home("m2"); !ok || home != "w1" {
			t.Fatalf("%s %v", home, ok)
		}
		f.Update(func(e *fleet.Edit) {
			e.Machine(fleet.Machine{ID: "m1", App: "a", Name: "one", Worker: "w1", State: machine.Started})
			e.Gone("w1", "m2")
		})
		made("m1", "one") // its answer came after the worker's word
		if m, ok := f.Snapshot().Machine("m1"); !ok || !m.Granted.IsZero() {
			t.Fatalf("%+v", m)
		}
		<-time.After(2 * time.Minute) // of the bubble's clock
		if got := names(f, "a"); got != "one=m1@w1" {
			t.Fatalf("a reader sees %s", got)
		}
		join(f, "w2")
		if n := f.Snapshot().Machines(); n != 1 {
			t.Fatalf("%d machines are kept", n)
		}
	})
}

// TestMachineClaimedTwiceBelongsToTheNewestWriter: the one that can be heard and wrote last counts, and the name is listed once.
func TestMachineClaimedTwiceBelongsToTheNewestWriter(t *testing.T) {
	f := fleet.New()
	join(f, "w1", "w2")
	claim := func(w cluster.WorkerID, at int64) {
		f.Update(func(e *fleet.Edit) {
			e.Machine(fleet.Machine{ID: "m", App: "a", Name: "n", Worker: w, Updated: time.Unix(at, 0)})
		})
	}
	state := func(w cluster.WorkerID, s cluster.MemberState) {
		f.Update(func(e *fleet.Edit) { e.Member(fleet.Member{ID: w, State: s, Since: time.Now()}) })
	}
	want := func(text string) {
		t.Helper()
		if got := names(f, "a"); got != text {
			t.Errorf("%s, not %s", got, text)
		}
		if m, ok := f.Snapshot().Named("a", "n"); !ok || "n=m@"+string(m.Worker) != text {
			t.Errorf("named: %+v, not %s", m, text)
		}
	}
	claim("w1", 10)
	claim("w2", 5)
	want("n=m@w1")
	state("w1", cluster.MemberDead)
	want("n=m@w2")
	state("w1", cluster.MemberSuspect)
	want("n=m@w1")
	claim("w2", 20)
	want("n=m@w2")
	f.Update(func(e *fleet.Edit) { e.Gone("w2", "m") })
	want("n=m@w1")
	f.Update(func(e *fleet.Edit) { e.Forget("w1") })
	if got := names(f, "a"); got != "" || f.Snapshot().Machines() != 0 {
		t.Errorf("left: %s", got)
	}
}

// fixed is a worker that says what it is told to.
type fixed struct {
	rec  cluster.Record
	list []*machine.Machine
}

func (w fixed) Record(context.Context) (cluster.Record, error) { return w.rec, nil }
func (w fixed) Machines(context.Context, string, bool) ([]*machine.Machine, error) {
	return w.list, nil
}

// TestMachineIsFoundByItsKey: a machine is found by its key while its worker has it, also while two workers
// claim it.
func TestMachineIsFoundByItsKey(t *testing.T) {
	f := fleet.New()
	mark := func(key string) cluster.KeyMark { return cluster.MarkKey("a", key, "request", time.Unix(1e9, 0)) }
	enter := func(id string, w cluster.WorkerID, key string) {
		f.Update(func(e *fleet.Edit) {
			m := fleet.Machine{ID: id, App: "a", Worker: w, State: machine.Stopped}
			if key != "" {
				m.KeyMark = mark(key)
			}
			e.Machine(m)
		})
	}
	want := func(key, id string) {
		t.Helper()
		m, found := f.Snapshot().Keyed(cluster.HashKey("a", key))
		if found != (id != "") || found && m.ID != id {
			t.Errorf("key %s has %+v, want %s", key, m, id)
		}
	}
	enter("m1", "w1", "one")
	enter("m2", "w1", "two")
	enter("m3", "w1", "")
	want("one", "m1")
	want("two", "m2")
	want("", "")
	enter("m1", "w2", "one") // for a moment two have it
	f.Update(func(e *fleet.Edit) { e.Gone("w1", "m1") })
	want("one", "m1")
	enter("m1", "w2", "") // as a worker of the version before tells it
	want("one", "")
	f.Update(func(e *fleet.Edit) { e.Forget("w1") })
	want("two", "")
}

// TestLocalWorkerOverridesGossip: the worker of this process updates the fleet directly, and gossip does not overrule
// it.
func TestLocalWorkerOverridesGossip(t *testing.T) {
	f := fleet.New()
	o := f.Own("w1")
	x := &machine.Machine{ID: "m1", App: "a", Name: "one", Worker: "w1", State: machine.Started, Region: "iad",
		Config: &machine.Config{Services: []machine.Service{{InternalPort: 8080}}}}
	if err := o.Begin(t.Context(), fixed{record("w1", 1), []*machine.Machine{x}}); err != nil {
		t.Fatal(err)
	}
	f.Update(func(e *fleet.Edit) { e.Member(fleet.Member{ID: "w1", State: cluster.MemberDead, Since: time.Now()}) })
	s := f.Snapshot()
	if w, ok := s.Worker("w1"); !ok || !w.Own || !w.Ready() {
		t.Fatalf("%+v", w)
	}
	if m, ok := s.Named("a", "one"); !ok || m.Port() != 8080 || m.State != machine.Started {
		t.Fatalf("%+v", m)
	}
	stopped := *x
	stopped.State = machine.Stopped
	o.Machine(&stopped)
	if m, _ := f.Snapshot().Machine("m1"); m.State != machine.Stopped {
		t.Fatalf("%+v", m)
	}
	if m, _ := s.Machine("m1"); m.State != machine.Started {
		t.Fatalf("the older snapshot has changed: %+v", m)
	}
	destroyed := *x
	destroyed.State = machine.Destroyed
	o.Machine(&destroyed)
	o.Gone("m1")
	if _, known := f.Snapshot().Machine("m1"); known {
		t.Fatal("it is still known")
	}
}

// TestPickReturnsStableFittingCandidates: among many workers a request gets candidates that fit, the same ones while nothing changes, and none that
// was lost; among few it gets none, for all are ranked.
func TestPickReturnsStableFittingCandidates(t *testing.T) {
	f := fleet.New()
	p := placement.Default()
	bind := func() (placement.Policy, error) { return placement.Default(), nil }
	r := &placement.Request{App: "a", Machine: "m", Start: true, Resources: cluster.Resources{CPU: 1000, Memory: 256}}
	var ids []cluster.WorkerID
	for i := range fleet.RankAll {
		ids = append(ids, cluster.WorkerID(fmt.Sprintf("w%04d", i)))
	}
	join(f, ids[1:]...)
	if few, _ := f.Pick(r, &p, 16, bind); len(few.Workers) != 0 {
		t.Fatalf("%d candidates", len(few.Workers))
	}
	join(f, ids[0])
	few, looked := f.Pick(r, &p, 16, bind)
	again, _ := f.Pick(r, &p, 16, bind)
	if len(few.Workers) != 8 || looked < 8 || looked > 64 {
		t.Fatalf("%d candidates of %d", len(few.Workers), looked)
	}
	if !slices.EqualFunc(few.Workers, again.Workers, func(a, b cluster.Record) bool { return a.Worker == b.Worker }) {
		t.Fatal("other ones")
	}
	f.Update(func(e *fleet.Edit) {
		for _, w := range few.Workers[:4] {
			full := record(w.Worker, 2)
			full.Used = full.Capacity
			e.Record(full, 1)
		}
		for _, w := range few.Workers[4:] {
			e.Member(fleet.Member{ID: w.Worker, State: cluster.MemberDead, Since: time.Now()})
		}
		join := record("w9999", 1)
		e.Record(join, 1)
		e.Member(fleet.Member{ID: "w9999", State: cluster.MemberAlive, Since: time.Now()})
	})
	lost := few.Workers
	for i := range 16 {
		r.Machine = fmt.Sprint("n", i)
		few, _ = f.Pick(r, &p, 16, bind)
		for _, w := range few.Workers {
			if slices.ContainsFunc(lost, func(x cluster.Record) bool { return x.Worker == w.Worker }) {
				t.Fatalf("%s is full or dead", w.Worker)
			}
		}
	}
}

// TestGrantCountsInTheIndexAtOnce: what was granted counts in the index before the worker's next record.
func TestGrantCountsInTheIndexAtOnce(t *testing.T) {
	f := fleet.New()
	var ids []cluster.WorkerID
	for i := range fleet.RankAll {
		ids = append(ids, cluster.WorkerID(fmt.Sprintf("w%04d", i)))
	}
	join(f, ids...)
	p := placement.Default()
	bind := func() (placement.Policy, error) { return placement.Default(), nil }
	seen := map[cluster.WorkerID]bool{}
	for i := range fleet.RankAll { // each takes a whole worker
		r := &placement.Request{App: "a", Machine: fmt.Sprint("m", i), Start: true,
			Resources: cluster.Resources{CPU: 8000, Memory: 256}}
		few, _ := f.Pick(r, &p, 1, bind)
		if len(few.Workers) != 1 || seen[few.Workers[0].Worker] {
			t.Fatalf("machine %d: %v", i, few.Workers)
		}
		w := few.Workers[0].Worker
		seen[w] = true
		f.Granted(&machine.Machine{ID: r.Machine, App: "a", Name: r.Machine, Worker: w}, r)
	}
}

// TestGrantCountsForItsAppInTheView: a granted machine counts for its app until its worker announces it, for a minute
// at most. The workers' own records stay unchanged.
func TestGrantCountsForItsAppInTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet.New()
		join(f, "w1", "w2")
		told := map[string]int{"a": 3}
		rec := record("w1", 2)
		rec.Apps = told
		f.Update(func(e *fleet.Edit) { e.Record(rec, 1) })
		apps := func() string {
			v := f.Snapshot().View()
			return fmt.Sprint(v.Workers[0].Apps, v.Workers[0].Machines, v.Workers[1].Apps, v.Workers[1].Machines)
		}
		grant := func(id, app string, w cluster.WorkerID) {
			f.Granted(&machine.Machine{ID: id, App: app, Worker: w}, &placement.Request{App: app, Machine: id})
		}
		for i, step := range []struct {
			do   func()
			want string
		}{
			{func() {}, "map[a:3] 0 map[] 0"},
			{func() {
				grant("m1", "a", "w1")
				grant("m2", "b", "w1")
				grant("m3", "a", "w2")
			}, "map[a:4 b:1] 2 map[a:1] 1"},
			{func() { grant("m4", "a", "w2") }, "map[a:4 b:1] 2 map[a:2] 2"},
			{func() { f.Update(func(e *fleet.Edit) { e.Gone("w2", "m3") }) }, "map[a:4 b:1] 2 map[a:1] 1"},
			{func() {
				next := record("w1", 3) // made before the grants
				next.Apps = map[string]int{"a": 3}
				f.Update(func(e *fleet.Edit) { e.Record(next, 1) })
			}, "map[a:4 b:1] 2 map[a:1] 1"},
			{func() {
				next := record("w1", 4)
				next.Apps, next.Machines = map[string]int{"a": 4, "b": 1}, 5
				f.Update(func(e *fleet.Edit) {
					e.Record(next, 1)
					e.Machine(fleet.Machine{ID: "m1", App: "a", Worker: "w1"})
					e.Machine(fleet.Machine{ID: "m2", App: "b", Worker: "w1"})
				})
			}, "map[a:4 b:1] 5 map[a:1] 1"},
			{func() { <-time.After(time.Minute); join(f, "w3") }, "map[a:4 b:1] 5 map[] 0"},
		} {
			if step.do(); apps() != step.want {
				t.Errorf("step %d: %s, want %s", i, apps(), step.want)
			}
		}
		if len(told) != 1 || told["a"] != 3 {
			t.Errorf("the record that was told is %v now", told)
		}
	})
}

// TestChangeCostIsIndependentOfFleetSize: what one change costs does not follow the number of workers and machines.
func TestChangeCostIsIndependentOfFleetSize(t *testing.T) {
	cost := func(workers, machines int) uint64 {
		f := fleet.New()
		f.Update(func(e *fleet.Edit) {
			for i := range workers {
				id := cluster.WorkerID(fmt.Sprintf("w%06d", i))
				e.Member(fleet.Member{ID: id, State: cluster.MemberAlive, Since: time.Unix(1, 0)})
				e.Record(record(id, 1), 1)
			}
			for i := range machines {
				e.Machine(fleet.Machine{ID: fmt.Sprintf("%014x", i*7919), App: fmt.Sprint("app", i%100),
					Name:   fmt.Sprint("n", i),
					Worker: cluster.WorkerID(fmt.Sprintf("w%06d", i%workers))})
			}
		})
		const changes = 500
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range changes {
			id := cluster.WorkerID(fmt.Sprintf("w%06d", i*13%workers))
			f.Update(func(e *fleet.Edit) {
				rec := record(id, 2+uint64(i))
				rec.Used.CPU = int64(i)
				e.Record(rec, 1)
				e.Machine(fleet.Machine{ID: fmt.Sprintf("%014x", i*31*7919), App: "app1", Name: fmt.Sprint("n", i),
					Worker: id})
			})
			_ = f.Snapshot()
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / changes
	}
	small, large := cost(100, 1000), cost(10_000, 100_000)
	t.Logf("%d bytes a change at 100 workers and 1,000 machines, %d at 10,000 and 100,000", small, large)
	if large > 3*small || large > 64<<10 {
		t.Errorf("a change costs %d bytes at 10,000 workers and 100,000 machines, %d at 100 and 1,000", large, small)
	}
}

// TestReadersSeeBatchedChangesTogether: changes made together are seen together, whoever reads meanwhile.
func TestReadersSeeBatchedChangesTogether(t *testing.T) {
	f := fleet.New()
	join(f, "w1", "w2")
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				s := f.Snapshot()
				n := 0
				for range s.MachinesOf("a") {
					n++
				}
				if n%2 != 0 || len(s.View().Workers) != 2 {
					t.Errorf("%d machines, %d workers", n, len(s.View().Workers))
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 500 {
		f.Update(func(e *fleet.Edit) {
			e.Record(record("w1", uint64(2+i)), 1)
			for k := range 2 {
				id := fmt.Sprint("m", i%50*2+k)
				if i%100 < 50 {
					e.Machine(fleet.Machine{ID: id, App: "a", Name: id, Worker: "w1"})
				} else {
					e.Gone("w1", id)
				}
			}
		})
	}
	close(done)
	all.Wait()
}

// TestMachinePortIsItsFirstServices: a machine's port is that of its first service, if that is valid.
func TestMachinePortIsItsFirstServices(t *testing.T) {
	for port, want := range map[int]uint16{0: 0, -1: 0, 1: 1, 8080: 8080, 65535: 65535, 65536: 0} {
		m := &machine.Machine{Config: &machine.Config{Services: []machine.Service{{InternalPort: port},
			{InternalPort: 7}}}}
		x := fleet.Summary(m)
		if got := x.Port(); got != want {
			t.Errorf("%d: %d, not %d", port, got, want)
		}
	}
	for _, m := range []*machine.Machine{{}, {Config: &machine.Config{}}} {
		if x := fleet.Summary(m); x.Port() != 0 || x.Services != nil {
			t.Error("a machine without services has a port")
		}
	}
}

// TestLocalRecordIsNeverStale: what changes at a worker of this process is told at once, so a decision must not
// say that what it knew was old.
func TestLocalRecordIsNeverStale(t *testing.T) {
	f := fleet.New()
	f.Own("w1").Worker(cluster.Record{Worker: "w1", State: cluster.Ready, Incarnation: 1, Version: 1,
		At: time.Now().Add(-time.Hour)})
	for _, r := range f.Snapshot().View().Workers {
		if !r.At.IsZero() {
			t.Errorf("%s is as of %v", r.Worker, r.At)
		}
	}
}
