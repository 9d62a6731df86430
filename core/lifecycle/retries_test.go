package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// busy returns errors of a runtime that cannot start anything for n tries.
func busy(n int, text string) (out []error) {
	for range n {
		out = append(out, fault.New(fault.Unavailable, "runtime", "%s", text))
	}
	return out
}

func retryEvents(m *machine.Machine) (out []string) {
	for _, e := range m.Events {
		if e.Type == machine.EventRetry {
			out = append(out, e.Message)
		}
	}
	return out
}

// TestFailedStartShowsReasonAndNextRetry: a machine whose start fails shows the reason and the time of the next retry,
// in its state and in an event; a waiting caller is answered that the start has begun. Once it runs only the event
// remains.
func TestFailedStartShowsReasonAndNextRetry(t *testing.T) {
	w := newWorld()
	w.failures[lifecycle.EffLaunch] = append(busy(8, "the disk is slow"), busy(2, "the network is away")...)
	d := newDriver(w)
	ticket := d.grant(grantOf(m1))
	for m := d.sup.Machine("app", m1); m.Retry == nil || m.Retry.Tries < 7; m = d.sup.Machine("app", m1) {
		if !d.step() {
			d.now = d.sup.Next()
			d.take(d.sup.Tick(d.now))
		}
	}
	m := d.sup.Machine("app", m1)
	if m.State != machine.Creating || m.Retry == nil || m.Retry.Operation != "create" || m.Retry.Tries != 7 ||
		m.Retry.Reason != "the disk is slow" || m.Retry.Next == "" {
		t.Fatalf("%s, %+v", m.State, m.Retry)
	}
	r, answered := d.replies[ticket]
	if !answered || r.Err != nil || r.Outcome.Begun == nil || r.Outcome.Machine.Retry == nil {
		t.Errorf("who waits is answered %+v", r)
	}
	if e := retryEvents(m); len(e) != 1 || e[0] != "create is tried again: the disk is slow" {
		t.Errorf("events %q", e)
	}
	d.boot() // souk is killed and started: it still says why
	if m := d.sup.Machine("app", m1); m.Retry == nil || m.Retry.Reason != "the disk is slow" {
		t.Errorf("after a restart of souk: %+v", m.Retry)
	}
	d.settle(time.Minute)
	m = d.sup.Machine("app", m1)
	if m.State != machine.Started || m.Retry != nil {
		t.Errorf("%s, %+v", m.State, m.Retry)
	}
	if e := retryEvents(m); len(e) < 2 || !strings.Contains(e[0], "the network is away") {
		t.Errorf("events %q", e)
	}
}

// TestSingleFailedStartWritesNoEvent: what works at the second try is shown while it waits, and written nowhere.
func TestSingleFailedStartWritesNoEvent(t *testing.T) {
	w := newWorld()
	w.failures[lifecycle.EffLaunch] = busy(1, "a moment")
	d := newDriver(w)
	ticket := d.grant(grantOf(m1))
	d.settle(time.Minute)
	m := d.sup.Machine("app", m1)
	if r := d.replies[ticket]; r.Err != nil || r.Outcome.Begun != nil || m.Retry != nil || len(retryEvents(m)) > 0 {
		t.Errorf("answered %+v; %+v, %q", r, m.Retry, retryEvents(m))
	}
}

// TestCrashLoopBacksOffAndCountsRestarts: a program that ends at once is started again ever later; how often, and when next, is shown.
func TestCrashLoopBacksOffAndCountsRestarts(t *testing.T) {
	w := newWorld()
	d := newDriver(w)
	d.grant(grantOf(m1, func(g *lifecycle.Grant) { g.Launch.Config.Restart.Policy = "always" }))
	d.settle(time.Second)
	for n := 1; n <= 4; n++ {
		d.end(m1, 3)
		m := d.sup.Machine("app", m1)
		next, err := time.Parse(time.RFC3339Nano, m.Retry.Next)
		if m.State != machine.Restarting || m.Restarts != n || m.Retry.Operation != "restart" || m.Retry.Tries != n ||
			m.Retry.Reason != "its program ended with exit code 3" || err != nil || !next.After(d.now) {
			t.Fatalf("after %d ends: %s, %d restarts, %+v", n, m.State, m.Restarts, m.Retry)
		}
		d.settle(next.Sub(d.now) + 10*time.Second)
		if m := d.sup.Machine("app", m1); m.State != machine.Started || m.Retry != nil || m.Restarts != n {
			t.Fatalf("after %d restarts: %s, %+v, %d", n, m.State, m.Retry, m.Restarts)
		}
	}
	d.do(lifecycle.Command{Verb: lifecycle.Restart, App: "app", Machine: m1})
	d.settle(time.Minute)
	if m := d.sup.Machine("app", m1); m.Restarts != 0 {
		t.Errorf("%d restarts after one that was asked for", m.Restarts)
	}
}
