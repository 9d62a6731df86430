package lifecycle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
)

// TestFlappingCheckKeepsOtherEvents: a check that changes its state often pushes out no other event, and does not
// change copies that were handed out.
func TestFlappingCheckKeepsOtherEvents(t *testing.T) {
	d := newDriver(newWorld())
	d.grant(grantOf(m1, func(g *lifecycle.Grant) {
		g.Launch.Config.Services = []machine.Service{{InternalPort: 8080, Checks: []machine.ServiceCheck{{}}}}
	}))
	d.settle(time.Hour)
	before := d.sup.Machine("app", m1)
	was := fmt.Sprint(before.Events, before.Checks)
	for i := range 100 {
		status := machine.CheckPassing
		if i%2 == 1 {
			status = machine.CheckCritical
		}
		d.now = d.now.Add(time.Second)
		d.take(d.sup.Checked(d.now, []lifecycle.CheckResult{{Machine: m1, Attempt: 1, Name: "servicecheck-00-tcp-8080",
			Status: status, Output: fmt.Sprint("try ", i)}}))
		if m := d.sup.Machine("app", m1); m.Failing() != (status == machine.CheckCritical) {
			t.Fatalf("it is %s, and failing: %v", status, m.Failing())
		}
	}
	d.take(d.sup.Checked(d.now, []lifecycle.CheckResult{{Machine: m1, Attempt: 1, Name: "servicecheck-00-tcp-8080",
		Status: machine.CheckPassing, Output: "fine", Missed: "refused\nbody"}}))
	m := d.sup.Machine("app", m1)
	if m.Checks[0].Misses != 1 || m.Checks[0].Missed != "refused" || m.Checks[0].Status != machine.CheckCritical ||
		m.Missed() != "check servicecheck-00-tcp-8080 fails now and then (1 so far): refused" {
		t.Errorf("a miss leaves %+v, %q", m.Checks[0], m.Missed())
	}
	types := map[string]int{}
	for _, e := range m.Events {
		types[e.Type]++
	}
	if types["launch"] != 1 || types["start"] != 1 || types[machine.EventCheck] != 10 {
		t.Errorf("events: %v", types)
	}
	if m.Events[0].Message != "servicecheck-00-tcp-8080: try 99" {
		t.Errorf("the newest is %+v", m.Events[0])
	}
	if is := fmt.Sprint(before.Events, before.Checks); is != was {
		t.Errorf("what was handed out is\n%s\nand was\n%s", is, was)
	}
	for range 3 { // of no machine, of another attempt, of no check
		for _, c := range []lifecycle.CheckResult{{Machine: "none", Attempt: 1}, {Machine: m1, Attempt: 9},
			{Machine: m1, Attempt: 1, Name: "none"}} {
			if out := d.sup.Checked(d.now, []lifecycle.CheckResult{c}); len(out.Records)+len(out.Changed) > 0 {
				t.Errorf("%+v changes something", c)
			}
		}
	}
}
