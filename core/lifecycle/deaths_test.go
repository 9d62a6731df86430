package lifecycle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestDiedIsReportedForUnaskedEndsOnly: a machine has died where it is down, nobody asked for that, and its worker does not start it again. It is
// the same after a restart of souk.
func TestDiedIsReportedForUnaskedEndsOnly(t *testing.T) {
	final := fault.New(fault.Invalid, "no_program", "there is no such program")
	restart := func(policy string, most int) func(*lifecycle.Grant) {
		return func(g *lifecycle.Grant) {
			g.Launch.Config.Restart = &machine.Restart{Policy: policy, MaxRetries: most}
		}
	}
	always := create(restart("always", 0))
	hourly := create(func(g *lifecycle.Grant) { g.Launch.Config.Schedule = "hourly" })
	stop, start := verb(lifecycle.Stop), verb(lifecycle.Start)
	update := verb(lifecycle.Update, newConfig(false))
	kept := verb(lifecycle.Update, newConfig(true))
	fails := func(d *driver) uint64 {
		d.w.failures[lifecycle.EffLaunch] = []error{final, final, final, final}
		return 0
	}
	bad := func(d *driver) uint64 { d.w.bad = true; return 0 }
	stubbornly := func(d *driver) uint64 {
		d.w.stubborn, d.w.failures[lifecycle.EffKill] = true, []error{final, final, final, final, final, final}
		return 0
	}
	for _, tc := range []struct {
		name   string
		acts   []act
		died   bool
		deaths int
	}{
		{"started", []act{create()}, false, 0},
		{"never started", []act{create(skipLaunch)}, false, 0},
		{"ends, and that is all", []act{create(), ends(0)}, true, 1},
		{"ends too often", []act{create(restarts), ends(1), ends(1), ends(1)}, true, 3},
		{"ends, and is started again", []act{create(restarts), ends(1)}, false, 1},
		{"ends and is started by hand", []act{create(), ends(3), start}, false, 1},
		{"ends, and is to be down", []act{create(), ends(3), stop}, false, 1},
		{"ends, and gets a config that is not started", []act{create(), ends(3), kept}, false, 1},
		{"ends, and its schedule starts it", []act{hourly, ends(0)}, false, 1},
		{"stopped", []act{always, stop}, false, 0},
		{"stopped and updated", []act{always, stop, kept}, false, 0},
		{"stopped, and a bad update", []act{create(), stop, bad, update}, false, 0},
		{"ends, and a bad update", []act{create(), ends(1), bad, update}, true, 1},
		{"a bad update, and what was does not start", []act{create(), breaks, update}, true, 0},
		{"suspended", []act{create(), verb(lifecycle.Suspend)}, false, 0},
		{"suspended, and it ends there", []act{create(), verb(lifecycle.Suspend), ends(1)}, false, 1},
		{"suspended, resumed, and it ends", []act{create(), verb(lifecycle.Suspend), start, ends(1)}, true, 1},
		{"restarted and updated", []act{create(), verb(lifecycle.Restart), update}, false, 0},
		{"a restart that fails", []act{create(), fails, verb(lifecycle.Restart)}, true, 0},
		{"a first start that fails", []act{create(skipLaunch), fails, start}, true, 0},
		{"its own restart fails", []act{always, fails, ends(1)}, true, 1},
		{"killed for good", []act{create(), verb(lifecycle.Destroy, kill)}, false, 0},
		{"evicted", []act{create(banded(machine.BandBatch, 900)), func(d *driver) uint64 {
			return d.grant(grantOf(v1, service))
		}}, false, 0},
		{"by a signal of its user", []act{create(), verb(lifecycle.Signal, withSignal)}, true, 1},
		{"a stop that fails, and then it ends", []act{create(), stubbornly, func(d *driver) uint64 {
			d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: m1, Source: machine.SourceProxy})
			d.settle(time.Hour)
			return 0
		}}, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDriver(newWorld())
			for _, a := range tc.acts {
				attempt(d, func(d *driver) uint64 {
					ticket := a(d)
					d.settle(10 * time.Minute)
					return ticket
				})
			}
			for range 2 {
				m := d.sup.Machine("app", m1)
				if m.Died != tc.died || len(m.Deaths) != tc.deaths {
					t.Errorf("%s, died %v with deaths %v; want %v with %d", m.State, m.Died, m.Deaths, tc.died,
						tc.deaths)
				}
				d.w.anyAck = true
				d.boot()
				d.settle(0)
			}
		})
	}
}

// TestLastFiveUnaskedExitsAreKept: the newest five unasked ends are known, however much else has happened, and what others hold of the
// machine does not change.
func TestLastFiveUnaskedExitsAreKept(t *testing.T) {
	d := newDriver(newWorld())
	create(func(g *lifecycle.Grant) {
		g.Launch.Config.Restart = &machine.Restart{Policy: "always"}
		g.Launch.Config.Guest = &machine.Guest{CPUKind: machine.Performance, CPUMilli: 300, MemoryMB: 256}
		g.Request.Resources = machine.Resources(g.Launch.Config)
	})(d)
	d.settle(0)
	var want []time.Time
	var held *machine.Machine
	was := ""
	for i := range 7 {
		m := d.sup.Machine("app", m1)
		if near := i >= 5 && want[0].Sub(want[4]) <= 5*time.Minute; m.Loops() != near {
			t.Errorf("after %d ends at %v it loops: %v", i, want, m.Loops())
		}
		if i == 6 {
			held, was = m, fmt.Sprint(m.Deaths)
		}
		d.now = d.now.Add(time.Second)
		want = append([]time.Time{d.now}, want...)
		d.end(m1, 1)
		d.settle(time.Minute)
	}
	for i := range 60 { // which no event of an end outlives
		resize(100+i, 256)(d)
		d.settle(0)
	}
	verb(lifecycle.Restart)(d)
	d.settle(0)
	d.boot()
	m := d.sup.Machine("app", m1)
	if diff := cmp.Diff(want[:machine.MaxDeaths], m.Deaths); diff != "" {
		t.Error(diff)
	}
	for _, e := range m.Events {
		if e.Request != nil && e.Request.ExitEvent != nil && !e.Request.ExitEvent.RequestedStop {
			t.Error("the events tell of an unasked end still: the test shows nothing")
		}
	}
	if is := fmt.Sprint(held.Deaths); is != was {
		t.Errorf("what was handed out is %s, and was %s", is, was)
	}
}

// TestReadinessResetsWithEachStart: what a check has said in one life makes the next one not ready.
func TestReadinessResetsWithEachStart(t *testing.T) {
	d := newDriver(newWorld())
	create(func(g *lifecycle.Grant) {
		g.Launch.Config.Restart = &machine.Restart{Policy: "always"}
		g.Launch.Config.Services = []machine.Service{{InternalPort: 8080, Checks: []machine.ServiceCheck{{}}}}
	})(d)
	d.settle(0)
	attempt := uint64(1)
	says := func(status string) {
		d.now = d.now.Add(time.Second)
		d.take(d.sup.Checked(d.now, []lifecycle.CheckResult{{Machine: m1, Attempt: attempt, Output: status,
			Name: "servicecheck-00-tcp-8080", Status: status}}))
	}
	is := func(ready, failing bool) {
		t.Helper()
		for range 2 {
			if m := d.sup.Machine("app", m1); m.Ready() != ready || m.Failing() != failing {
				t.Errorf("ready %v, failing %v: %+v", m.Ready(), m.Failing(), m.Checks)
			}
			d.settle(0)
			d.boot()
		}
	}
	is(false, true)
	says(machine.CheckWarning)
	is(false, true)
	says(machine.CheckPassing)
	is(true, false)
	says(machine.CheckCritical)
	is(true, true)
	verb(lifecycle.Suspend)(d)
	d.settle(0)
	is(false, true)
	verb(lifecycle.Start)(d)
	d.settle(0)
	is(true, true)
	d.end(m1, 1)
	is(false, false)
	d.settle(time.Minute)
	attempt = 2
	is(false, true)
	says(machine.CheckPassing)
	is(true, false)
}
