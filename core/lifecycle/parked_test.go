package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestParkedRunsOfEveryOperationCanBeDestroyed stops souk at every point of every scenario, and has the runs that are on their way
// parked when it comes back, as after an upgrade: nothing panics, the ledger covers what runs, what ends by itself
// comes to rest, and a destroy by force leaves nothing behind.
func TestParkedRunsOfEveryOperationCanBeDestroyed(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			parked := 0
			for k := 1; k <= play(sc, 0, 0).points; k++ {
				d := playTo(sc, k)
				d.w.anyAck, d.crashAt = true, 0
				n := d.w.parkRuns()
				if parked += n; n == 0 {
					continue
				}
				d.boot()
				d.settle(10 * time.Minute)
				for _, id := range []string{m1, v1, v2} {
					d.end(id, 1)
				}
				d.settle(2 * time.Hour)
				for range 2 { // with what it has written since
					d.boot()
					d.settle(2 * time.Hour)
				}
				d.clear()
				if f := facts(d); !strings.Contains(f, "dirs map[] volumes map[]") ||
					!strings.Contains(f, "used nothing, machines 0") {
					t.Errorf("stopped after %d: destroying all leaves behind:\n%s", k, f)
				}
				if len(d.w.violations) > 0 {
					t.Errorf("stopped after %d: %v", k, d.w.violations)
				}
			}
			if parked == 0 {
				t.Error("no run was ever parked")
			}
		})
	}
}

// playTo runs a scenario up to its k-th write or effect, where souk is stopped.
func playTo(sc scenario, k int) *driver {
	w := newWorld()
	if sc.world != nil {
		sc.world(w)
	}
	d := newDriver(w)
	d.crashAt = k
	for _, a := range sc.acts {
		if !attempt(d, a) {
			break
		}
	}
	return d
}

// clear destroys all there is, by force.
func (d *driver) clear() {
	clear(d.w.failures)
	for _, id := range []string{m1, v1, v2} {
		d.do(lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: id, Kill: true})
		d.settle(10 * time.Minute)
	}
	d.volume(lifecycle.VolumeCommand{Verb: "destroy", App: "app", Volume: "vol_1"})
	d.settle(10 * time.Minute)
}

// parkedStop is a machine whose stop another souk has begun, and whose process ignores the signal.
func parkedStop(t *testing.T, edit ...func(*lifecycle.Grant)) *driver {
	t.Helper()
	w := newWorld()
	w.stubborn, w.anyAck = true, true
	d := newDriver(w)
	d.grant(grantOf(m1, edit...))
	d.settle(time.Second)
	d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1, Timeout: time.Minute})
	for d.step() {
	}
	if w.parkRuns() != 1 {
		t.Fatal("no run is on its way")
	}
	d.boot()
	d.settle(time.Minute)
	return d
}

// TestParkedMachineIsNotRestarted: what would follow by itself from the end of a machine's process, or from the time,
// does not while its operation is parked; its events say so, it is stopped, and a destroy gets rid of it.
func TestParkedMachineIsNotRestarted(t *testing.T) {
	restart := func(policy string) func(*lifecycle.Grant) {
		return func(g *lifecycle.Grant) { g.Launch.Config.Restart = &machine.Restart{Policy: policy} }
	}
	for name, edit := range map[string]func(*lifecycle.Grant){
		"restart always": restart("always"), "restart on failure": restart("on-failure"), "auto_destroy": autoDestroy,
		"schedule": func(g *lifecycle.Grant) { g.Launch.Config.Schedule = "hourly" },
	} {
		t.Run(name, func(t *testing.T) {
			d := parkedStop(t, edit)
			m := d.sup.Machine("app", m1)
			if m.State != machine.Started || m.Events[0].Type != lifecycle.EventParked ||
				!strings.Contains(m.Events[0].Message, "cannot continue") {
				t.Fatalf("it runs on, and says why its stop does not: %s, %+v", m.State, m.Events[0])
			}
			d.boot()
			if again := d.sup.Machine("app", m1); len(again.Events) != len(m.Events) {
				t.Fatalf("it is said once, not at each start: %+v", again.Events)
			}
			for _, c := range []lifecycle.Command{{Verb: lifecycle.Stop}, {Verb: lifecycle.Destroy},
				{Verb: lifecycle.Signal, Signal: "TERM"}, {Verb: lifecycle.Suspend}} {
				c.App, c.Machine = "app", m1
				if r := d.replies[d.do(c)]; fault.CodeOf(r.Err) != "parked" {
					t.Fatalf("%s: %v", c.Verb, r.Err)
				}
			}
			d.end(m1, 1)
			for range 3 { // three lives of souk, each of several hours
				d.settle(3 * time.Hour)
				d.now = d.now.Add(3 * time.Hour)
				d.take(d.sup.Tick(d.now))
				d.boot()
			}
			m = d.sup.Machine("app", m1)
			if m.State != machine.Stopped || d.w.starts[m1] != 1 {
				t.Fatalf("%s after %d starts", m.State, d.w.starts[m1])
			}
			told := 0
			for _, e := range m.Events {
				if e.Type == lifecycle.EventParked {
					told++
				}
			}
			if told < 2 {
				t.Fatalf("nothing says that it is held back: %+v", m.Events)
			}
			if used := d.sup.Record(d.now).Used; !used.IsZero() {
				t.Fatalf("it has ended, and still has %v", used)
			}
			d.clear()
			if m := d.sup.Machine("app", m1); m.State != machine.Destroyed || len(d.w.violations) > 0 {
				t.Fatal(m.State, d.w.violations)
			}
		})
	}
}

// TestParkedLaunchKeepsItsStartedProcess: the process that a parked launch has started is the machine's, with its room; it is not
// killed because nobody wrote down that it had come up.
func TestParkedLaunchKeepsItsStartedProcess(t *testing.T) {
	for _, ended := range []bool{false, true} {
		w := newWorld()
		w.anyAck = true
		d := newDriver(w)
		d.grant(grantOf(m1, cpus(900)))
		d.step() // it is started, and the record of that is not written
		w.parkRuns()
		if ended {
			w.end(m1, 3, 0, d.now)
		}
		d.boot()
		d.settle(time.Minute)
		want, used := machine.Started, int64(900)
		if ended {
			want, used = machine.Stopped, 0
		}
		if m := d.sup.Machine("app", m1); m.State != want || d.sup.Record(d.now).Used.CPU != used || w.starts[m1] != 1 {
			t.Fatalf("ended %v: %s, %v, %d starts", ended, m.State, d.sup.Record(d.now).Used, w.starts[m1])
		}
		if len(w.violations) > 0 {
			t.Fatal(w.violations)
		}
	}
}

// TestGrantOfAMachineWithOnlyARunIsRefused: a grant is repeated for a machine whose run is in the journal, but whose row is
// not.
func TestGrantOfAMachineWithOnlyARunIsRefused(t *testing.T) {
	w := newWorld()
	d := newDriver(w)
	d.grant(grantOf(m1))
	d.volume(lifecycle.VolumeCommand{Verb: "create", App: "app", Volume: "vol_1",
		Spec: machine.Volume{Name: "data", SizeGB: 1}})
	for k, r := range w.journal {
		if r.Bucket == lifecycle.MachineBucket || r.Bucket == lifecycle.VolumeBucket {
			delete(w.journal, k)
		}
	}
	d.boot()
	if r := d.replies[d.grant(grantOf(m1))]; fault.CodeOf(r.Err) != "parked" {
		t.Fatalf("%+v", r)
	}
	no := d.volume(lifecycle.VolumeCommand{Verb: "create", App: "app", Volume: "vol_1",
		Spec: machine.Volume{Name: "data", SizeGB: 1}})
	if r := d.replies[no]; fault.CodeOf(r.Err) != "parked" {
		t.Fatalf("%+v", r)
	}
	if used := d.sup.Record(d.now).Used; !used.IsZero() {
		t.Fatalf("a refusal takes %v", used)
	}
}

// TestRefusedDestroyLeavesTheRunningOperation: a destroy by force whose arguments are wrong leaves the operation that is on its
// way.
func TestRefusedDestroyLeavesTheRunningOperation(t *testing.T) {
	for name, wrong := range map[string]func(*lifecycle.Command){
		"signal":  func(c *lifecycle.Command) { c.Signal = "SIGNOTHING" },
		"timeout": func(c *lifecycle.Command) { c.Timeout = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			d := newDriver(w)
			started := d.grant(grantOf(m1))
			c := lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: m1, Kill: true}
			wrong(&c)
			if r := d.replies[d.do(c)]; !fault.Is(r.Err, fault.Invalid) {
				t.Fatalf("%+v", r)
			}
			d.settle(time.Minute)
			if m := d.sup.Machine("app", m1); m.State != machine.Started || d.replies[started].Err != nil {
				t.Fatalf("%s, %v", m.State, d.replies[started].Err)
			}
		})
	}
}

// TestInvalidStopSignalIsIgnored: a stop signal or a timeout that an older souk let pass counts for nothing.
func TestInvalidStopSignalIsIgnored(t *testing.T) {
	name, long := "SIGNOTHING", machine.Duration{Duration: time.Hour}
	d := newDriver(newWorld())
	d.grant(grantOf(m1, func(g *lifecycle.Grant) {
		g.Launch.Config.StopConfig = &machine.StopConfig{Signal: &name, Timeout: &long}
	}))
	d.settle(time.Second)
	stopped := d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1})
	d.settle(time.Hour)
	if r := d.replies[stopped]; r.Err != nil || r.Outcome.Machine.State != machine.Stopped {
		t.Fatalf("%+v", r)
	}
}
