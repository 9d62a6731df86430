package worker_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// found is what a host has been found to have.
func found(ids ...string) (out []cluster.GPU) {
	for _, id := range ids {
		out = append(out, cluster.GPU{Kind: "h200", ID: id, Memory: 1000})
	}
	return out
}

// TestDeviceKeepsNumberAndHolder: a device keeps its number and its holder while others come and go, over restarts too; one that
// is missing is granted to nobody, and the refusal says why.
func TestDeviceKeepsNumberAndHolder(t *testing.T) {
	j, rt := mem.New(), fake.New(fake.Options{})
	began := func(ids ...string) *bench {
		return open(t, j, rt, func(o *worker.Options) { o.Offer = worker.Offer{GPUs: found(ids...), Found: true} })
	}
	b := began("A", "B")
	ask := func(n int) (*machine.Machine, error) {
		g := grant(id(n))
		g.Launch.Config.Guest.GPUs = 1
		g.Request.Resources = machine.Resources(g.Launch.Config)
		return b.Grant(t.Context(), g)
	}
	devices := func() string {
		rec, err := b.Record(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, d := range rec.GPUs {
			out = append(out, fmt.Sprintf("%s %d %s", d.ID, d.Free, d.Health))
		}
		return strings.Join(out, "; ") + fmt.Sprintf(" of %d", rec.Capacity.GPU)
	}
	is := func(want string) {
		t.Helper()
		waittest.See(t, want, devices, func(got string) bool { return got == want })
	}
	is("A 1000 ; B 1000  of 2000")
	for n := range 2 {
		if m, err := ask(n); err != nil || len(m.GPUs) != 1 || m.GPUs[0] != n {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	const missing = "it is not there any more"
	b.Devices(found("C", "B")) // A, which machine 0 holds, went; C came
	is("A 0 " + missing + "; B 0 ; C 1000  of 3000")
	b.Devices(found("B"))
	is("A 0 " + missing + "; B 0 ; C 0 " + missing + " of 3000")
	if _, err := ask(2); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "2 not healthy: "+missing) {
		t.Errorf("a device that is missing was granted: %v", err)
	}
	_ = b.stop()
	b = began("D", "B") // of those that are missing only A is held, and C is behind it
	is("A 0 " + missing + "; B 0 ; C 0 " + missing + "; D 1000  of 4000")
	if m, err := b.Machine(t.Context(), "app", id(1)); err != nil || m.State != machine.Started || m.GPUs[0] != 1 {
		t.Errorf("who held B is %+v, %v", m, err)
	}
	if m, err := ask(3); err != nil || m.GPUs[0] != 3 {
		t.Errorf("D was not granted: %+v, %v", m, err)
	}
	if _, err := b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: id(0)}); err != nil {
		t.Error(err)
	}
	is("A 0 " + missing + "; B 0 ; C 0 " + missing + "; D 0  of 4000") // stopped, it gives A back, to nobody
	b.Devices(found("A", "B", "D"))
	is("A 1000 ; B 0 ; C 0 " + missing + "; D 0  of 4000")
	for n := range 4 {
		_, _ = b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: id(n), Kill: true})
	}
	_ = b.stop()
	b = began("D", "B")
	is("A 0 " + missing + "; B 1000 ; C 0 " + missing + "; D 1000  of 4000")
	_ = b.stop()
	b = began()
	is(" of 0") // nobody holds what is missing
}

// TestRenamedDeviceKeepsItsHolder: a device that has another name now is not a second one: its number and its holder stay.
func TestRenamedDeviceKeepsItsHolder(t *testing.T) {
	j, rt := mem.New(), fake.New(fake.Options{})
	began := func(list []cluster.GPU) *bench {
		return open(t, j, rt, func(o *worker.Options) { o.Offer = worker.Offer{GPUs: list, Found: true} })
	}
	named := func(a, b string) []cluster.GPU {
		return []cluster.GPU{{Kind: "k", ID: a, Node: "c 10:1"}, {Kind: "k", ID: b, Node: "c 10:2"}}
	}
	b := began(named("A", "B"))
	g := grant(id(1))
	g.Launch.Config.Guest.GPUs = 1
	g.Request.Resources = machine.Resources(g.Launch.Config)
	if _, err := b.Grant(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	b.Devices(named("X", "B"))
	for range 2 {
		waittest.See(t, "the name", func() []cluster.GPU {
			rec, err := b.Record(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return rec.GPUs
		}, func(l []cluster.GPU) bool {
			return len(l) == 2 && l[0].ID == "X" && l[0].Free == 0 && l[1].Free == 1000
		})
		_ = b.stop()
		b = began(named("X", "B"))
	}
}

// TestDeviceIsNeverHeldTwice: while devices come and go and machines are made and destroyed, over kills at any moment, no two
// that are up hold one device.
func TestDeviceIsNeverHeldTwice(t *testing.T) {
	j, rt := mem.New(), fake.New(fake.Options{})
	sets := [][]string{{"A", "B"}, {"B"}, {"B", "A", "C"}, {"C"}, {}}
	for round := range 20 {
		b := open(t, j, rt, func(o *worker.Options) {
			o.Offer = worker.Offer{GPUs: found(sets[round%len(sets)]...), Found: true}
		})
		var each sync.WaitGroup
		for n := range 4 {
			each.Go(func() {
				g := grant(id(round*4 + n))
				g.Launch.Config.Guest.GPUs = 1
				g.Request.Resources = machine.Resources(g.Launch.Config)
				_, _ = b.Grant(t.Context(), g) // most are refused
				b.Devices(found(sets[(round+n)%len(sets)]...))
				if n%2 == 0 {
					_, _ = b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Destroy, App: "app",
						Machine: id((round*4 + n) / 2), Kill: true})
				}
			})
		}
		if round%2 == 0 {
			each.Wait()
		}
		_ = b.stop()
		each.Wait()
		b = open(t, j, rt, func(o *worker.Options) { o.Offer = worker.Offer{GPUs: found("A", "B", "C"), Found: true} })
		list, err := b.Machines(t.Context(), "app", false)
		if err != nil {
			t.Fatal(err)
		}
		holder := map[int]string{}
		for _, m := range list {
			for _, d := range m.GPUs {
				if m.State != machine.Started {
					continue
				}
				if other := holder[d]; other != "" {
					t.Fatalf("round %d: device %d is held by %s and %s", round, d, other, m.ID)
				}
				holder[d] = m.ID
			}
		}
		_ = b.stop()
	}
}

// gpuTasks are tasks that want a GPU each, and of which nothing is to be told.
type gpuTasks struct{}

func (gpuTasks) Occupies(name string) (cluster.Resources, bool) {
	return cluster.Resources{GPU: 1000}, strings.HasPrefix(name, "task")
}
func (gpuTasks) Known(time.Time, []runtime.Status) {}
func (gpuTasks) Exited(runtime.Exit)               {}
func (gpuTasks) Changed(*cluster.Record)           {}
func (gpuTasks) Evict(machine.Preemption)          {}

// TestTaskKeepsItsDeviceOverRestart: a task that runs over a restart of the worker has the device that it was given, and no other
// gets it; what is noted of one that is over goes with it.
func TestTaskKeepsItsDeviceOverRestart(t *testing.T) {
	j, rt := mem.New(), fake.New(fake.Options{})
	began := func(ids ...string) *bench {
		return open(t, j, rt, func(o *worker.Options) {
			o.Offer, o.Tasks = worker.Offer{GPUs: found(ids...), Found: true}, gpuTasks{}
		})
	}
	b := began("A", "B")
	admit := func(name string) error {
		return b.AdmitTask(t.Context(), lifecycle.Task{Name: name, App: "app", Want: cluster.Resources{GPU: 1000}})
	}
	has := func(name string) string {
		numbers, ids, err := b.TaskDevices(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(numbers, ids)
	}
	for _, name := range []string{"task1", "task2"} {
		if err := admit(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := admit("task3"); !fault.Is(err, fault.Exhausted) {
		t.Errorf("a third task was given one of two: %v", err)
	}
	if _, err := rt.Start(t.Context(), runtime.Spec{Machine: "task2", Attempt: 1, Fresh: true,
		Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	if has("task1") != "[0] [A]" || has("task2") != "[1] [B]" {
		t.Fatalf("they have %s and %s", has("task1"), has("task2"))
	}
	for range 2 { // the first task was never begun
		_ = b.stop()
		rt = rt.Reopen()
		b = began("A", "B")
		if has("task1") != "[] []" || has("task2") != "[1] [B]" {
			t.Errorf("after a restart they have %s and %s", has("task1"), has("task2"))
		}
	}
	if err := admit("task3"); err != nil || has("task3") != "[0] [A]" {
		t.Errorf("the third has %s: %v", has("task3"), err)
	}
	// One whose device has gone keeps its number, over restarts too: what comes instead has another number.
	b.Devices(found("A"))
	for _, ids := range [][]string{{"A"}, {"C", "A"}} {
		_ = b.stop()
		rt = rt.Reopen()
		b = began(ids...)
		if has("task2") != "[1] [B]" {
			t.Errorf("without its device, and with %s, it has %s", ids, has("task2"))
		}
	}
	for _, name := range []string{"task3", "task4"} { // A and C
		if err := admit(name); err != nil {
			t.Error(err)
		}
	}
	if err := admit("task5"); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "not there any more") {
		t.Errorf("a task was given what is not there: %v", err)
	}
	for _, name := range []string{"task2", "task3", "task4"} {
		if err := b.ReleaseTask(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	_ = b.stop()
	err := j.Load(func(r fsm.Record) error {
		if r.Bucket == lifecycle.TaskDevicesBucket {
			t.Errorf("of %s is still noted %s", r.Key, r.Value)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
