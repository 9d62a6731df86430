package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestAcknowledgedStopCompletesAfterRestart: a stop that does not wait is answered while the machine still stops. It
// completes even if souk ends right after the answer.
func TestAcknowledgedStopCompletesAfterRestart(t *testing.T) {
	w := newWorld()
	d := newDriver(w)
	d.grant(grantOf(m1))
	d.settle(time.Second)
	for range 2 { // asked again while it is on its way, it is answered likewise
		ticket := d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1, Begun: true})
		r, answered := d.replies[ticket]
		if !answered || r.Err != nil || r.Outcome.Machine.State != machine.Stopping {
			t.Fatalf("it was answered: %v, with %+v", answered, r)
		}
	}
	d.boot()
	d.settle(time.Minute)
	if m := d.sup.Machine("app", m1); m == nil || m.State != machine.Stopped {
		t.Fatalf("the machine is %+v", m)
	}
	if len(w.violations) > 0 {
		t.Fatal(w.violations)
	}
}

// silent lets time pass in which the runtime answers nothing.
func (d *driver) silent(wait time.Duration) {
	for end := d.now.Add(wait); d.now.Before(end); {
		d.effects = nil // asked, and never answered
		d.now = d.now.Add(time.Second)
		d.take(d.sup.Tick(d.now))
	}
}

// TestStopAndDestroyRetryUntilDone: a stop and a destroy that were accepted are repeated until they are so, for however long
// the runtime answers nothing, and when souk is started again meanwhile.
func TestStopAndDestroyRetryUntilDone(t *testing.T) {
	for verb, want := range map[lifecycle.Verb]machine.State{
		lifecycle.Stop: machine.Stopped, lifecycle.Destroy: machine.Destroyed} {
		for _, crash := range []bool{false, true} {
			w := newWorld()
			d := newDriver(w)
			d.grant(grantOf(m1, func(g *lifecycle.Grant) { g.Launch.Config.Restart.Policy = "always" }))
			d.settle(time.Second)
			ticket := d.do(lifecycle.Command{Verb: verb, App: "app", Machine: m1, Kill: true})
			d.silent(10 * time.Minute)
			if crash {
				d.boot()
				d.silent(10 * time.Minute)
			} else if r, ok := d.replies[ticket]; ok {
				t.Fatalf("%s was answered: %+v", verb, r)
			}
			if m := d.sup.Machine("app", m1); !m.State.Transient() || !w.procs[m1].running {
				t.Fatalf("%s: it is said to be %s while it runs", verb, m.State)
			} else if e := m.Events[0]; e.Type != string(verb)+"_late" || !strings.Contains(e.Message, "longer than") {
				t.Fatalf("%s: nobody is told why it takes so long: %+v", verb, e)
			}
			d.silent(time.Second)
			d.settle(time.Minute)
			m := d.sup.Machine("app", m1)
			if p := w.procs[m1]; m.State != want || p != nil && p.running || len(w.violations) > 0 {
				t.Errorf("%s: %s, %+v, %v", verb, m.State, p, w.violations)
			}
			if r := d.replies[ticket]; !crash && (r.Err != nil || r.Outcome.Begun != nil) {
				t.Errorf("%s was answered %+v", verb, r)
			}
		}
	}
}

// TestMachineAtRestHasNoProcess: a start that comes too late is taken back for as long as that takes; until then the
// machine is not said to be at rest.
func TestMachineAtRestHasNoProcess(t *testing.T) {
	w := newWorld()
	d := newDriver(w)
	d.grant(grantOf(m1, func(g *lifecycle.Grant) { g.Launch.SkipLaunch = true }))
	d.settle(time.Second)
	ticket := d.do(lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: m1})
	if _, err := w.execute(d.effects[0], d.now); err != nil || !w.procs[m1].running { // its result is lost
		t.Fatal(err)
	}
	d.silent(5 * time.Minute)
	if m := d.sup.Machine("app", m1); m.State != machine.Starting {
		t.Fatalf("it is said to be %s while it runs", m.State)
	}
	d.settle(time.Minute)
	if m := d.sup.Machine("app", m1); m.State != machine.Failed || w.procs[m1].running || d.replies[ticket].Err == nil {
		t.Fatalf("%s, %+v, %+v", m.State, w.procs[m1], d.replies[ticket])
	}
}

// TestZeroStopTimeoutKillsAtOnce: a config whose stop may take 0s is killed at once, unless the command gives it a time.
func TestZeroStopTimeoutKillsAtOnce(t *testing.T) {
	for _, c := range []struct {
		timeout time.Duration
		running bool
	}{{0, false}, {10 * time.Second, true}} {
		w := newWorld()
		w.stubborn = true
		d := newDriver(w)
		g := grantOf(m1)
		g.Launch.Config.StopConfig = &machine.StopConfig{Timeout: new(machine.Duration)}
		d.grant(g)
		d.settle(time.Second)
		d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1, Timeout: c.timeout})
		d.settle(time.Second)
		if w.procs[m1].running != c.running {
			t.Errorf("a stop with the time %v: it runs is %v, want %v", c.timeout, w.procs[m1].running, c.running)
		}
	}
}

// TestStopSignalWaitsForRequestsOfServices: the signal of what ends a life waits for the requests of a machine that has services, as
// long as its grace is; a signal that a user sends does not.
func TestStopSignalWaitsForRequestsOfServices(t *testing.T) {
	web := []machine.Service{{InternalPort: 8080, Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
	long := &machine.StopConfig{Timeout: &machine.Duration{Duration: time.Minute}}
	for _, c := range []struct {
		verb     lifecycle.Verb
		services []machine.Service
		config   *machine.StopConfig
		own      time.Duration
		want     time.Duration
	}{
		{lifecycle.Stop, web, nil, 0, 5 * time.Second},
		{lifecycle.Stop, web, long, 0, time.Minute},
		{lifecycle.Restart, web, long, 2 * time.Second, 2 * time.Second},
		{lifecycle.Stop, nil, long, 0, 0},
		{lifecycle.Signal, web, long, 0, 0},
	} {
		w := newWorld()
		d := newDriver(w)
		g := grantOf(m1)
		g.Launch.Config.Services, g.Launch.Config.StopConfig = c.services, c.config
		d.grant(g)
		d.settle(time.Second)
		d.do(lifecycle.Command{Verb: c.verb, App: "app", Machine: m1, Timeout: c.own, Signal: "SIGTERM"})
		d.settle(time.Second)
		if len(w.drains) != 1 || w.drains[0] != c.want {
			t.Errorf("%s: signals wait for %v, want %v", c.verb, w.drains, c.want)
		}
	}
}

// TestMissedTimeCutsNoGracePeriod: time in which nobody could act is no reason to give up, nor to cut a grace short; and it
// counts once.
func TestMissedTimeCutsNoGracePeriod(t *testing.T) {
	w := newWorld()
	w.stubborn = true
	d := newDriver(w)
	d.grant(grantOf(m1))
	d.settle(time.Second)
	missed := func(by time.Duration) {
		d.now = d.now.Add(by)
		d.take(d.sup.Missed(d.now, by))
		d.take(d.sup.Tick(d.now))
		d.settle(0)
	}
	d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1, Timeout: 10 * time.Second})
	d.settle(5 * time.Second)
	missed(45 * time.Second)
	d.settle(9 * time.Second)
	if !w.procs[m1].running {
		t.Fatal("it was killed before its grace was over")
	}
	d.settle(time.Minute)
	if w.procs[m1].running {
		t.Fatal("it runs on after its grace")
	}
	ticket := d.do(lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: m1})
	e := d.effects
	d.effects = nil // on their way
	missed(45 * time.Second)
	d.effects = e
	d.settle(time.Second)
	if m := d.sup.Machine("app", m1); m.State != machine.Started || d.replies[ticket].Err != nil {
		t.Fatalf("%s, %+v", m.State, d.replies[ticket])
	}
}

// TestOverdueCommandIsAnsweredWithBegunOrNotBegun: a command that has waited for long is answered that its operation has begun and in what state it ends;
// or, while it waits for another's end, that it does not begin, and then it does not.
func TestOverdueCommandIsAnsweredWithBegunOrNotBegun(t *testing.T) {
	w := newWorld()
	w.stubborn = true
	d := newDriver(w)
	d.grant(grantOf(m1))
	d.settle(time.Second)
	overdue := func(ticket uint64) lifecycle.Reply {
		t.Helper()
		d.take(d.sup.Overdue(d.now, ticket))
		r, ok := d.replies[ticket]
		if !ok {
			t.Fatal("it is not answered")
		}
		return r
	}
	stop := d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1, Timeout: 40 * time.Second})
	start := d.do(lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: m1})
	d.settle(20 * time.Second)
	r := overdue(stop)
	if b := r.Outcome.Begun; r.Err != nil || b == nil || b.Operation != "stop" || b.Until != machine.Stopped ||
		r.Outcome.Machine.State != machine.Stopping {
		t.Fatalf("%+v, begun %+v", r, b)
	}
	if r := overdue(start); !fault.Is(r.Err, fault.Conflict) {
		t.Fatalf("%+v", r)
	}
	d.settle(time.Hour)
	if m := d.sup.Machine("app", m1); m.State != machine.Stopped || w.starts[m1] != 1 {
		t.Fatalf("%s, started %d times", m.State, w.starts[m1])
	}
	if d.replies[stop].Outcome.Begun == nil {
		t.Fatal("it was answered twice")
	}
	d.take(d.sup.Overdue(d.now, stop)) // of what is answered, nothing comes
}
