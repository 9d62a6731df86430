package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// A check of a service and one of the machine that requests depend on.
var checkNames = []string{"servicecheck-00-http-80", "ready"} //nolint:gochecknoglobals // a constant

// checked gives a machine's checks a status, which none of them has passed before unless it passes.
func (h *host) checked(id, status, output string) {
	h.mu.Lock()
	g := h.machines[id]
	readiness := machine.KindReadiness
	g.Config.Checks = map[string]machine.CheckConfig{"ready": {Kind: &readiness}}
	g.Checks = nil
	for _, name := range checkNames {
		g.Checks = append(g.Checks, machine.Check{Name: name, Status: status, Output: output,
			Passed: status == machine.CheckPassing})
	}
	h.tell(g)
}

// happened adds an event to a machine, which was so long ago.
func (h *host) happened(id string, ago time.Duration, e machine.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.machines[id]
	h.events++
	e.ID, e.Timestamp = fmt.Sprintf("%08d", h.events), time.Now().Add(-ago).UnixMilli()
	g.Events = append([]machine.Event{e}, g.Events...)
}

// TestWakeWaitsForPassingChecks: a request that wakes a machine is answered when its checks pass, which are made at once
// when its port accepts, and soon again; nobody waits for their interval.
func TestWakeWaitsForPassingChecks(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"here", "elsewhere"} {
		to := far{}
		r := newRig(t, withFar(to))
		h := r.host
		if at == "elsewhere" {
			h = r.behind("w2", to).host
		}
		g := h.add("shop", "m1", machine.Stopped, httpService(nil), says("m1"))
		if at == "elsewhere" {
			r.knows(g, machine.Stopped)
		}
		var asked atomic.Int32
		g.started = func() { h.checked("m1", machine.CheckCritical, machine.CheckWaits) }
		g.check = func() {
			if asked.Add(1) == 3 {
				h.checked("m1", machine.CheckPassing, "ok")
			}
		}
		began := time.Now()
		if resp, body := r.get("shop", "/"); resp.StatusCode != http.StatusOK || asked.Load() != 3 {
			t.Errorf("%s: %s %s; checked %d times", at, resp.Status, body, asked.Load())
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: it took %v", at, took)
		}
	}
}

// TestRequestWaitsForAMachineAlreadyStarting: a request waits for a machine that was started by another caller and has
// not passed its checks, even where the request may not start it.
func TestRequestWaitsForAMachineAlreadyStarting(t *testing.T) {
	t.Parallel()
	for _, output := range []string{machine.CheckWaits, "connection refused"} {
		r := newRig(t, nil)
		no := false
		g := r.host.add("shop", "m1", machine.Started, httpService(func(s *machine.Service) { s.Autostart = &no }),
			says("m1"))
		r.host.happened("m1", 5*time.Second, machine.Event{Type: "start"})
		g.check = func() {
			g.check = nil
			time.AfterFunc(200*time.Millisecond, func() { r.host.checked("m1", machine.CheckPassing, "ok") })
		}
		r.host.checked("m1", machine.CheckCritical, output)
		if resp, body := r.get("shop", "/"); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", output, resp.Status, body)
		}
		if starts, _ := r.host.count(); starts > 0 {
			t.Error("it was started")
		}
	}
}

// TestMachineFailingChecksIsNotWaitedFor: a machine that has failed its checks since it was started long ago is not waited for.
func TestMachineFailingChecksIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	r.host.happened("m1", time.Hour, machine.Event{Type: "start"})
	r.host.checked("m1", machine.CheckCritical, "500 Internal Server Error\n<html>")
	for range 2 {
		began := time.Now()
		resp, body := r.get("shop", "/")
		if code(resp) != "503 unhealthy" || !strings.Contains(body, "(500 Internal Server Error) since its start 1h") {
			t.Error(code(resp), body)
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	}
}

// dies has each start of a machine end at once, after which it is started again in a while.
func (h *host) dies(g *guest, again time.Duration) {
	g.silent = true
	g.started = func() {
		h.happened(g.ID, 50*time.Millisecond, machine.Event{Type: "start"})
		h.happened(g.ID, 0, machine.Event{Type: "exit", Request: &machine.EventRequest{
			ExitEvent: &machine.ExitEvent{ExitCode: 7, Restarting: again > 0}}})
		h.mu.Lock()
		g.Events[1].Timestamp = g.Events[0].Timestamp - 50 // whenever the clock was read
		g.Restarts++
		g.Retry = nil
		if again > 0 {
			g.Retry = &machine.Retry{Operation: "restart", Next: time.Now().Add(again).UTC().Format(time.RFC3339Nano)}
		}
		h.mu.Unlock()
		if again > 0 {
			h.set(g.ID, machine.Restarting)
		} else {
			h.set(g.ID, machine.Stopped)
		}
	}
}

// TestFailedWakeIsReportedUntilTheNextTry: a request is not held for a machine that ends at once. It is told how that ended, in the machine's own
// words, and until the next try so are the others, with the time of that.
func TestFailedWakeIsReportedUntilTheNextTry(t *testing.T) {
	t.Parallel()
	for _, again := range []time.Duration{0, 10 * time.Second} {
		r := newRig(t, nil)
		g := r.host.add("shop", "m1", machine.Stopped, httpService(nil), nil)
		g.wrote = []string{"begin", "boom", " "}
		g.Restarts = 3
		r.host.dies(g, again)
		for i := range 3 {
			began := time.Now()
			resp, body := r.get("shop", "/")
			if code(resp) != "503 wake_failed" ||
				!strings.Contains(body, `ended with exit code 7 50ms after its start, and its last line is "boom"`) {
				t.Error(again, i, code(resp), body)
			}
			if got := resp.Header.Get("Retry-After"); again > 0 && got != "10" && got != "9" {
				t.Error("the next try is in", got)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v", took)
			}
		}
		if starts, _ := r.host.count(); starts != 1 {
			t.Errorf("it was started %d times", starts)
		}
	}
}

// TestFirstCrashCostsNoRequest: a machine that has ended once, and is started again in a tenth of a second, costs no request.
func TestFirstCrashCostsNoRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	r.host.happened("m1", time.Hour, machine.Event{Type: "start"})
	r.host.happened("m1", 0, machine.Event{Type: "exit", Request: &machine.EventRequest{
		ExitEvent: &machine.ExitEvent{ExitCode: 1, Restarting: true}}})
	r.host.mu.Lock()
	g := r.host.machines["m1"]
	g.Restarts = 1
	g.Retry = &machine.Retry{Operation: "restart", Next: time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)}
	r.host.mu.Unlock()
	r.host.set("m1", machine.Restarting)
	time.AfterFunc(200*time.Millisecond, func() {
		r.host.happened("m1", 0, machine.Event{Type: "start"})
		r.host.mu.Lock()
		g.Retry = nil
		r.host.mu.Unlock()
		r.host.set("m1", machine.Started)
	})
	if resp, body := r.get("shop", "/"); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status, body)
	}
}

// TestRequestWaitsForAReplacementMachine: a request to a kept app without machines, or to the name of a machine that
// is gone, waits for the replacement; for an app that is not kept, or is scaled to zero, it is refused at once.
func TestRequestWaitsForAReplacementMachine(t *testing.T) {
	t.Parallel()
	var wanted atomic.Bool
	var held atomic.Pointer[proxy.Held]
	service := httpService(nil)
	named := httpService(func(s *machine.Service) { s.Hosts = []string{"www.example.com"} })
	r := newRig(t, func(o *proxy.Options) {
		o.Kept = func(app string) (k proxy.Kept) {
			if app != "shop" || !wanted.Load() {
				return k
			}
			k.Groups = []proxy.KeptGroup{{Services: []machine.Service{service}}, {Services: []machine.Service{named}}}
			if h := held.Load(); h != nil {
				k.Held = map[string]proxy.Held{"m1": *h}
			}
			return k
		}
	})
	if resp, body := r.get("shop", "/"); code(resp) != "404 host" {
		t.Error(code(resp), body)
	}
	wanted.Store(true)
	if resp, body := r.get("other", "/"); code(resp) != "404 host" {
		t.Error(code(resp), body)
	}
	time.AfterFunc(200*time.Millisecond, func() {
		r.host.add("shop", "m1", machine.Started, service, says("m1"))
		r.host.add("shop", "m2", machine.Started, named, says("m2"))
	})
	for i := range 2 {
		if resp, body := r.get("shop", "/"); resp.StatusCode != http.StatusOK {
			t.Error(i, resp.Status, body)
		}
	}
	asks := func() (*http.Response, string) {
		c := r.connect()
		defer c.Close()
		c.Send("GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n")
		return c.Answer("GET")
	}
	if resp, body := asks(); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status, body)
	}
	r.host.set("m2", machine.Destroyed)
	r.host.own.Gone("m2")
	time.AfterFunc(200*time.Millisecond, func() { r.host.add("shop", "m3", machine.Started, named, says("m3")) })
	if resp, body := asks(); resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "m3") {
		t.Error(resp.Status, body)
	}

	held.Store(&proxy.Held{Why: "it ended 5 times", Until: time.Now().Add(20 * time.Second)})
	r.host.mu.Lock()
	r.host.machines["m1"].Cordoned = true
	r.host.mu.Unlock()
	r.host.set("m1", machine.Stopped)
	waittest.Succeed(t, "it is told that it is held", func() error {
		resp, body := r.get("shop", "/")
		if code(resp) != "503 held_down" || !strings.Contains(body, "it ended 5 times; that is tried again in") {
			return errors.New(code(resp) + body)
		}
		return nil
	})
}

// TestPortWaitsForAReplacementMachine: a port stays open while a replacement is coming, and its connections wait; once
// none is to come it closes.
func TestPortWaitsForAReplacementMachine(t *testing.T) {
	t.Parallel()
	p := &ports{open: map[int]net.Listener{}}
	var wanted atomic.Bool
	wanted.Store(true)
	service := portOf(7000)
	r := newRig(t, func(o *proxy.Options) {
		o.Listen = p.listen
		o.Kept = func(string) (k proxy.Kept) {
			if wanted.Load() {
				k.Groups = []proxy.KeptGroup{{Services: []machine.Service{service}}}
			}
			return k
		}
	})
	hello := func(c net.Conn) { _, _ = io.WriteString(c, "hello") }
	r.host.add("db", "m1", machine.Started, service, hello)
	waittest.Until(t, "the port is open", func() bool { return p.at(7000) != nil })
	addr := p.at(7000).Addr().String()
	says := func() (string, error) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return "", err
		}
		defer c.Close()
		raw, err := io.ReadAll(c)
		return string(raw), err
	}
	if got, err := says(); got != "hello" {
		t.Error(got, err)
	}
	r.host.set("m1", machine.Destroyed)
	r.host.own.Gone("m1")
	waittest.Pass(300 * time.Millisecond) // three looks at what is wanted
	time.AfterFunc(300*time.Millisecond, func() { r.host.add("db", "m2", machine.Started, service, hello) })
	if got, err := says(); got != "hello" {
		t.Error(got, err)
	}
	wanted.Store(false)
	r.host.own.Gone("m2")
	waittest.Until(t, "the port is closed", func() bool { _, err := says(); return err != nil })
}
