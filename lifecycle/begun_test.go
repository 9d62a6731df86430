package lifecycle_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
)

// TestBegunIsKept: a stop that is answered when it has begun is answered while the machine still stops, and goes on to
// its end also when souk ends right behind the answer.
func TestBegunIsKept(t *testing.T) {
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
