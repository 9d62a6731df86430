package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// code returns the status and the error of an answer.
func code(resp *http.Response) string {
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Souk-Error"))
}

func restsAfter(idle time.Duration) func(*machine.Service) {
	return func(s *machine.Service) {
		stop := machine.Autostop("stop")
		s.Autostop, s.AutostopAfter = &stop, &machine.Duration{Duration: idle}
	}
}

// stopped waits until the only machine of a member has been stopped so often.
func (r *rig) stopped(times int) {
	r.t.Helper()
	waittest.Until(r.t, "it is stopped", func() bool { _, stops := r.host.count(); return stops >= times })
}

func (r *rig) noStops() {
	r.t.Helper()
	if _, stops := r.host.count(); stops > 0 {
		r.t.Error("it was stopped")
	}
}

// TestAnswerTimeoutExcludesTheStart (1): the time for an answer begins when the request is sent, and not with the start before it.
func TestAnswerTimeoutExcludesTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	one := uint32(1)
	slow := func(s *machine.Service) { s.Ports[0].HTTPOptions = &machine.HTTPOptions{IdleTimeout: &one} }
	r.host.add("shop", "m1", machine.Stopped, httpService(slow), says("m1"))
	r.host.add("mute", "m2", machine.Started, httpService(slow), func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	r.host.slow = make(chan struct{})
	time.AfterFunc(1300*time.Millisecond, func() { close(r.host.slow) })
	if resp, body := r.get("shop", "/"); resp.StatusCode != 200 {
		t.Error(resp.Status, body)
	}
	if resp, _ := r.get("mute", "/"); code(resp) != "504 no_answer" {
		t.Error(code(resp))
	}
}

// TestDroppedPortProbeIsRepeated (1): a look that the kernel drops is done again before the kernel itself would.
func TestDroppedPortProbeIsRepeated(t *testing.T) {
	r := newRig(t, nil)
	g := r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	r.host.mu.Lock() // as it never accepts its queue fills up
	g.close()
	g.reserve(t)
	r.host.mu.Unlock()
	if err := listenFor(g.fd, 1); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", g.port)
	var fill []net.Conn
	for range 3 {
		if c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond); err == nil {
			fill = append(fill, c)
		}
	}
	done := make(chan string, 1)
	began := time.Now()
	go func() { resp, body := r.get("shop", "/"); done <- resp.Status + body }()
	waittest.Until(t, "it is on its way", func() bool { return time.Since(began) > 300*time.Millisecond })
	for _, c := range fill {
		c.Close()
	}
	r.host.mu.Lock()
	g.listen(t, r.host)
	r.host.mu.Unlock()
	if got := <-done; got != "200 OKm1 GET / " {
		t.Error(got)
	}
}

// TestHeldRequestsAreBounded (2): beyond it requests are refused at once, an app that is up does not notice, and
// nothing is left of them.
func TestHeldRequestsAreBounded(t *testing.T) {
	const places, all = 20, 30
	r := newRig(t, func(o *proxy.Options) { o.HeldApp, o.HeldAll, o.Hold = places, all, 2*time.Second })
	r.host.add("up", "m0", machine.Started, httpService(nil), says("m0"))
	for _, app := range []string{"one", "two"} {
		r.host.add(app, "m-"+app, machine.Stopped, httpService(nil), says(app))
	}
	r.get("up", "/")
	r.host.slow = make(chan struct{}) // until the test's end: wakes outlast their requests
	defer close(r.host.slow)
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	var codes sync.Map
	var ended sync.WaitGroup
	for _, app := range []string{"one", "two"} {
		for range 100 {
			c := r.connect()
			c.Send("GET / HTTP/1.1\r\nHost: " + app + ".localhost\r\n\r\n")
			ended.Go(func() {
				began := time.Now()
				resp, _ := c.Answer("GET")
				c.Close()
				n, _ := codes.LoadOrStore(code(resp), new(atomic.Int32))
				n.(*atomic.Int32).Add(1)
				took := time.Since(began)
				if code(resp) == "503 held_requests" && (resp.Header.Get("Retry-After") == "" || took > time.Second) {
					t.Error(resp.Header, took)
				}
			})
		}
	}
	for range 20 {
		if resp, _ := r.get("up", "/"); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
	ended.Wait()
	for want, n := range map[string]int32{"503 held_requests": 200 - all, "503 held": all} {
		if got, _ := codes.Load(want); got == nil || got.(*atomic.Int32).Load() != n {
			t.Errorf("%s: %v, not %d", want, got, n)
		}
	}
	// Two wakes are still under way: each is a goroutine of the pool's and one of the owner's, and their followers.
	waittest.See(t, fmt.Sprint("no more is left than ", goroutines, files),
		func() [2]int { return [2]int{runtime.NumGoroutine(), descriptors(t)} },
		func(left [2]int) bool { return left[0] <= goroutines+4 && left[1] <= files })
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("the descriptors of a process cannot be listed here: ", err)
	}
	return len(list)
}

// TestHoldEndsAndTellsItsDuration (2): and says for how long it was.
func TestHoldEndsAndTellsItsDuration(t *testing.T) {
	r := newRig(t, func(o *proxy.Options) { o.Hold = 300 * time.Millisecond })
	r.host.add("shop", "m1", machine.Stopped, httpService(nil), says("m1"))
	r.host.slow = make(chan struct{})
	defer close(r.host.slow)
	if resp, body := r.get("shop", "/"); code(resp) != "503 held" || !strings.Contains(body, "held for 3") {
		t.Error(code(resp), body)
	}
}

// TestIdleTimeStartsAtReadiness (3): of a machine that somebody starts by hand and that listens late, and of one
// that is started for a request and takes longer for it than it may be idle.
func TestIdleTimeStartsAtReadiness(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	g := r.host.add("shop", "m1", machine.Stopped, httpService(restsAfter(time.Second)), says("m1"))
	r.host.mu.Lock()
	g.UpdatedAt = time.Now().UTC().Format(time.RFC3339)
	r.host.mu.Unlock()
	r.host.set("m1", machine.Started) // by hand, and it does not listen yet
	late := make(chan time.Time, 1)
	time.AfterFunc(3*time.Second, func() {
		r.noStops()
		r.host.mu.Lock()
		defer r.host.mu.Unlock()
		g.listen(t, r.host)
		late <- time.Now()
	})
	r.stopped(1)
	select {
	case ready := <-late:
		if idle := time.Since(ready); idle < 900*time.Millisecond {
			t.Errorf("it was stopped %v after it was ready", idle)
		}
	default:
		t.Error("it was stopped before it was ready")
	}
}

// TestOpenTransfersKeepAMachineUp (4): a stream, a connection of another protocol with nothing on it, and an upload, each for
// longer than the machine may be idle. Cordoned it is nobody's excess.
func TestOpenTransfersKeepAMachineUp(t *testing.T) {
	for _, kind := range []string{"stream", "upgraded", "upload"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.host.add("shop", "m1", machine.Started, httpService(restsAfter(time.Second)), serves(kind))
			c := r.connect()
			c.Send("POST /" + kind + " HTTP/1.1\r\nHost: shop.localhost\r\n")
			switch kind {
			case "stream":
				c.Send("Content-Length: 0\r\n\r\n")
			case "upload":
				c.Send("Content-Length: 10\r\n\r\n")
			case "upgraded":
				c.Send("Connection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			}
			quiet := time.Now()
			waittest.Until(t, "some time has passed", func() bool { return time.Since(quiet) > 3500*time.Millisecond })
			r.noStops()
			c.Close()
			began := time.Now()
			r.stopped(1)
			if took := time.Since(began); took < 900*time.Millisecond {
				t.Errorf("it was stopped %v after the end", took)
			}
		})
	}
}

// serveKind serves streams and uploads until their clients leave.
func serveKind(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/stream":
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "/upload":
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// serves serves one kind of what keeps a machine up.
func serves(kind string) func(net.Conn) {
	if kind == "upgraded" {
		return echoes
	}
	return handles(serveKind)
}

// echoes makes a connection one of another protocol, which says what it hears.
func echoes(c net.Conn) {
	br := bufio.NewReader(c)
	if _, err := http.ReadRequest(br); err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(c, br)
}

// TestCordonedMachineIsNotStoppedAsIdle (4).
func TestCordonedMachineIsNotStoppedAsIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	g := r.host.add("shop", "m1", machine.Started, httpService(restsAfter(time.Second)), says("m1"))
	r.host.mu.Lock()
	g.Cordoned = true
	m := g.Machine
	r.host.mu.Unlock()
	r.host.own.Machine(&m)
	r.host.add("other", "m2", machine.Started, httpService(restsAfter(time.Second)), says("m2"))
	r.stopped(1)
	again := time.Now()
	waittest.Until(t, "some time has passed", func() bool { return time.Since(again) > 1500*time.Millisecond })
	if m, _ := r.host.Machine(t.Context(), "shop", "m1"); m.State != machine.Started {
		t.Error("a machine that is cordoned was stopped")
	}
}

// TestIgnoredRequestsNeitherWakeNorKeepUp (5): named probes have their answers, and neither start a machine nor keep it up.
func TestIgnoredRequestsNeitherWakeNorKeepUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	rules := func(s *machine.Service) {
		restsAfter(time.Second)(s)
		s.Ignore = []machine.Ignored{{Path: "/up"}, {UserAgent: "Monitor", Status: 204},
			{Path: "/net*", Source: "127.0.0.0/8"}, {Path: "/far", Source: "192.0.2.1"}}
	}
	g := r.host.add("shop", "m1", machine.Started, httpService(rules), says("m1"))
	probe := func(path string, fields ...string) string {
		resp, _ := r.get("shop", path, fields...)
		return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Souk-Ignored"))
	}
	n := 0
	waittest.Until(t, "it is stopped though it is probed", func() bool {
		n++
		if got := probe("/up"); got != "200 true" {
			t.Error(got)
		}
		_, stops := r.host.count()
		return stops > 0
	})
	for path, want := range map[string]string{"/up?x=1": "200 true", "/net": "200 true", "/network": "200 true"} {
		if got := probe(path); got != want {
			t.Error(path, got)
		}
	}
	if got := probe("/", "User-Agent: a MONITOR of mine"); got != "204 true" {
		t.Error(got)
	}
	if starts, _ := r.host.count(); starts > 0 {
		t.Error("it was started")
	}
	for _, path := range []string{"/far", "/upx", "/"} {
		if got := probe(path); got != "200 " {
			t.Error(path, got)
		}
	}
	if starts, _ := r.host.count(); starts != 1 {
		t.Errorf("%d starts", starts)
	}
	r.host.mu.Lock()
	g.Checks = []machine.Check{{Name: "servicecheck-00-tcp-80", Status: machine.CheckCritical, Passed: true}}
	m := g.Machine
	r.host.mu.Unlock()
	r.host.own.Machine(&m)
	if got := probe("/up"); got != "503 true" { // a monitor learns that the app is not well
		t.Error(got)
	}
	t.Log(n, "probes")
}

// TestSilentStreamDoesNotKeepAMachineUp (5): one on which no byte passes for idle_stream keeps its machine up no more, one with bytes does.
func TestSilentStreamDoesNotKeepAMachineUp(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"stream", "upgraded"} {
		r := newRig(t, nil)
		r.host.add("shop", "m1", machine.Started, httpService(func(s *machine.Service) {
			restsAfter(time.Second)(s)
			s.IdleStream = &machine.Duration{Duration: time.Second}
		}), serves(kind))
		c := r.connect()
		c.Send("GET /" + kind + " HTTP/1.1\r\nHost: shop.localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		if _, err := http.ReadResponse(c.In, nil); err != nil {
			t.Fatal(err)
		}
		if kind == "upgraded" {
			last := time.Now()
			for began := last; time.Since(began) < 3*time.Second; last = time.Now() {
				c.Send("x")
				_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
				_, _ = c.In.Peek(1)
			}
			r.noStops()
		}
		r.stopped(1)
		_ = c.SetReadDeadline(time.Now().Add(waittest.Patience))
		if _, err := io.Copy(io.Discard, c.In); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection to a machine that was stopped is open")
		}
	}
}
