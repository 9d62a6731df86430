package worker_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// failings notes whether requests may go to the machine, as its worker's observer hears it.
type failings struct{ now atomic.Bool }

func (f *failings) Worker(cluster.Record)      {}
func (f *failings) Machine(m *machine.Machine) { f.now.Store(m.Failing()) }
func (f *failings) Gone(string)                {}

// TestHealthCheckFollowsFailuresAndRestarts follows the check of a service from the machine's start over a failure, a restart and a restart of
// souk to its stop.
func TestHealthCheckFollowsFailuresAndRestarts(t *testing.T) {
	var status atomic.Int32
	status.Store(http.StatusOK)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/up" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte("the words of the machine"))
	}))
	defer srv.Close()
	var seen failings
	with := func(o *worker.Options) {
		o.Observer = &seen
		o.Dial = func(ctx context.Context, _ *machine.Machine, port int) (net.Conn, error) {
			if port != 8080 {
				t.Errorf("port %d is checked", port)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
		}
	}
	j, rt := mem.New(), fake.New(fake.Options{})
	b := open(t, j, rt, with)
	g := grant(id(1))
	kind, path := "http", "/up"
	g.Launch.Config.Services = []machine.Service{{InternalPort: 8080, Checks: []machine.ServiceCheck{{Type: &kind,
		Path: &path, Interval: &machine.Duration{Duration: time.Second}, GracePeriod: &machine.Duration{}}}}}
	m, err := b.Grant(t.Context(), g)
	if err != nil || len(m.Checks) != 1 || m.Checks[0].Name != "servicecheck-00-http-8080" {
		t.Fatalf("%+v, %v", m, err)
	}
	m = b.untilCheck(machine.CheckPassing)
	b.Stats() // passes the worker's loop, which has told its observer then
	if m.Failing() || seen.now.Load() || m.Checks[0].Output != "200 OK\nthe words of the machine" {
		t.Errorf("it passes: %+v", m.Checks)
	}
	status.Store(http.StatusServiceUnavailable)
	m = b.untilCheck(machine.CheckCritical)
	b.Stats()
	if !m.Failing() || !seen.now.Load() {
		t.Errorf("it is critical: %+v", m.Checks)
	}
	e := m.Events[0]
	if e.Type != machine.EventCheck || e.Status != machine.CheckCritical ||
		e.Message != "servicecheck-00-http-8080: 503 Service Unavailable" {
		t.Errorf("the event is %+v", e)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b = open(t, j, rt, with)
	if m := b.until(id(1), machine.Started); !m.Failing() {
		t.Errorf("after a restart of souk it is not known that it fails: %+v", m.Checks)
	}
	status.Store(http.StatusOK)
	b.untilCheck(machine.CheckPassing)
	out, err := b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Restart, App: "app", Machine: id(1)})
	if err != nil {
		t.Fatal(err)
	}
	if out.Machine.Checks[0].Output != machine.CheckWaits && out.Machine.Checks[0].Status != machine.CheckPassing {
		t.Errorf("after its restart: %+v", out.Machine.Checks)
	}
	b.untilCheck(machine.CheckPassing)
	out, err = b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: id(1)})
	if err != nil || len(out.Machine.Checks) != 0 || out.Machine.Failing() {
		t.Errorf("stopped: %+v, %v", out.Machine, err)
	}
	if slices.ContainsFunc(out.Machine.Events, func(e machine.Event) bool {
		return strings.Contains(e.Message, "words of the machine")
	}) {
		t.Error("an event tells what the machine said")
	}
}

// untilCheck waits for the machine's check to say something.
func (b *bench) untilCheck(status string) (last *machine.Machine) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	err := b.Watch(ctx, "app", id(1), func(m *machine.Machine) bool {
		last = m
		return len(m.Checks) != 1 || m.Checks[0].Status != status || m.Checks[0].Output == machine.CheckWaits
	})
	if err != nil {
		b.t.Fatalf("its check is not %s: %+v, %v", status, last, err)
	}
	return last
}
