package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
	"github.com/soukhq/souk/proxy/hop/hoptest"
)

// TestBurstWakesAMachineOnce: all that ask for a machine that sleeps are answered, and it is started once.
func TestBurstWakesAMachineOnce(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Stopped, httpService(nil), says("m1"))
	r.host.slow = make(chan struct{})
	const burst = 200
	var all sync.WaitGroup
	conns := make([]*hoptest.Client, burst)
	for i := range conns {
		conns[i] = r.connect()
		conns[i].Send(fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", i))
	}
	waittest.See(t, "all are held", func() string { return metric(t, r, "held_requests") },
		func(held string) bool { return strings.Contains(held, fmt.Sprint(burst)) })
	close(r.host.slow)
	for i, c := range conns {
		all.Go(func() {
			resp, body := c.Answer("GET")
			if want := fmt.Sprintf("m1 GET /%d ", i); resp.StatusCode != 200 || body != want {
				t.Errorf("%s %q", resp.Status, body)
			}
			if w := resp.Header.Get("Souk-Wake"); !strings.Contains(w, "start;dur=") ||
				!strings.Contains(w, "ready;dur=") {
				t.Errorf("the wake's phases are %q", w)
			}
		})
	}
	all.Wait()
	if starts, _ := r.host.count(); starts != 1 {
		t.Errorf("%d starts", starts)
	}
}

// TestFailedWakeIsNotRetriedPerRequest: a failed wake answers with the reason and the time of the next try, and is not
// repeated for each request.
func TestFailedWakeIsNotRetriedPerRequest(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Stopped, httpService(nil), says("m1"))
	r.host.fail = fault.New(fault.Exhausted, "full", "the worker is full of cats")
	for range 50 {
		resp, body := r.get("shop", "/")
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Souk-Error") != "wake_failed" ||
			resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "full of cats") {
			t.Fatalf("%s %v %q", resp.Status, resp.Header, body)
		}
	}
	if starts, _ := r.host.count(); starts > 8 { // 50 quick requests; the backoff begins with half a second
		t.Errorf("%d starts for 50 requests", starts)
	}
	if log := r.log.String(); !strings.Contains(log, `"error":"wake_failed"`) {
		t.Errorf("the access log says %q", log)
	}
}

// TestCrashDuringWakeEndsTheWait: nobody waits for it until the patience ends.
func TestCrashDuringWakeEndsTheWait(t *testing.T) {
	r := newRig(t, nil)
	g := r.host.add("shop", "m1", machine.Stopped, httpService(nil), says("m1"))
	g.silent = true
	done := make(chan *http.Response, 1)
	go func() { resp, _ := r.get("shop", "/"); done <- resp }()
	waittest.Until(t, "it is started once", func() bool { n, _ := r.host.count(); return n == 1 })
	r.host.set("m1", machine.Started) // and listens at nothing
	waittest.Until(t, "it is up", func() bool {
		m, _ := r.host.Machine(t.Context(), "shop", "m1")
		return m.State == "started"
	})
	r.host.set("m1", machine.Stopped)
	if resp := <-done; resp.StatusCode != http.StatusServiceUnavailable ||
		resp.Header.Get("Souk-Error") != "wake_failed" {
		t.Error(resp.Status, resp.Header)
	}
}

// TestNamesAreRoutedOrRefused: whose a name is, and what has none.
func TestNamesAreRoutedOrRefused(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	r.host.add(
		"blog",
		"m2",
		machine.Started,
		httpService(func(s *machine.Service) { s.Hosts = []string{"blog.example"} }),
		says("m2"),
	)
	for host, want := range map[string]string{
		"shop.localhost": "m1", "SHOP.LocalHost": "m1", "shop.localhost:8080": "m1", "shop.localhost.": "m1",
		"blog.example": "m2", "blog.example:1": "m2",
		"localhost": "404", "nobody.localhost": "404", "xshop.localhost": "404", "shop": "404",
		"shop.localhost.evil": "404",
		"a.shop.localhost":    "404", "127.0.0.1": "404", "[::1]:80": "404",
		"shop.localhost:x": "400", "shop.localhost:80:90": "400", "shop.localhost:": "400", "u@shop.localhost": "400",
		"shop.localhost/x": "400", "shop.localhost?x": "400", "shop.localhost#": "400", "shop.localhost\\x": "400",
		"shop.localhost:123456": "400", "shop.localhost,blog.example": "400", "": "400", "shop.localhost%00": "400",
	} {
		c := r.connect()
		c.Send("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
		resp, body := c.Answer("GET")
		if got := body + " " + resp.Status; !strings.HasPrefix(body, want+" ") &&
			!strings.HasPrefix(resp.Status, want) {
			t.Errorf("%q: %s", host, got)
		}
	}
}

// TestHeadersTellTheClientAndCannotBeForged: a machine gets the client's address in headers that only the proxy can
// set.
func TestHeadersTellTheClientAndCannotBeForged(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		r := newRig(t, func(o *proxy.Options) {
			if trusted {
				o.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
			}
		})
		got := make(chan http.Header, 1)
		r.host.add("shop", "m1", machine.Started, httpService(nil),
			handles(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
		resp, _ := r.get(
			"shop",
			"/",
			"X-Forwarded-For: 6.6.6.6, 192.0.2.7",
			"X-Forwarded-For: 10.1.2.3",
			"X-Forwarded-Proto: https",
			"X-Forwarded-Host: evil",
			"X-Forwarded-Port: 1",
			"X-Real-IP: 6.6.6.6",
			"Forwarded: for=6.6.6.6",
			"Fly-Client-IP: 6.6.6.6",
			"Fly-Request-Id: mine",
			"Fly-Region: mars",
			"Fly-Replay-Src: x",
			"Fly-Forwarded-Proto: x",
			"Souk-To: shop m1 1",
			"Souk-Correction: 1",
			"Souk-Failed: x",
			"Souk-Ask: wake",
			"X_Forwarded_For: 6.6.6.6",
			"Fly_Client_IP: 6.6.6.6",
			"Souk_To: x",
			"Transfer_Encoding: chunked",
			"Content_Length: 9",
			"X-Own: 1",
			"Via: 1.0 other",
			"Connection: x-own2, x-forwarded-for, fly-client-ip, via",
			"X-Own2: 1",
			"Keep-Alive: 1",
			"Proxy-Authorization: x",
			"Te: gzip",
			"Upgrade-Insecure-Requests: 1",
		)
		h := <-got
		want := map[string]string{
			"X-Forwarded-For":           "127.0.0.1",
			"X-Forwarded-Proto":         "http",
			"Fly-Client-Ip":             "127.0.0.1",
			"Fly-Forwarded-Proto":       "http",
			"Fly-Region":                "here",
			"X-Own":                     "1",
			"Via":                       "1.0 other, 1.1 souk",
			"Upgrade-Insecure-Requests": "1",
		}
		if trusted {
			want["X-Forwarded-For"] = "6.6.6.6, 192.0.2.7, 10.1.2.3, 127.0.0.1"
			want["X-Forwarded-Proto"], want["Fly-Forwarded-Proto"] = "https", "https"
			want["Fly-Client-Ip"] = "192.0.2.7"
		}
		for name, v := range want {
			if strings.Join(h[name], "|") != v {
				t.Errorf("trusted %v: %s is %q, not %q", trusted, name, h[name], v)
			}
		}
		for name := range h {
			if strings.HasPrefix(name, "Souk") || strings.Contains(name, "_") || want[name] == "" &&
				name != "Fly-Request-Id" && name != "X-Forwarded-Port" && name != "Fly-Forwarded-Port" {
				t.Errorf("trusted %v: %s: %q reaches the machine", trusted, name, h[name])
			}
		}
		if id := h.Get("Fly-Request-Id"); (id == "mine") != trusted || id != resp.Header.Get("Fly-Request-Id") {
			t.Errorf("trusted %v: the request's id is %q", trusted, id)
		}
	}
}

// TestHardLimitIsNeverExceeded: a machine never has more than it may have, and all are answered.
func TestHardLimitIsNeverExceeded(t *testing.T) {
	r := newRig(t, nil)
	var mu sync.Mutex
	now, most := 0, 0
	r.host.add("shop", "m1", machine.Started, httpService(func(s *machine.Service) {
		s.Concurrency = &machine.Concurrency{Type: "requests", HardLimit: 3}
	}), handles(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		mu.Lock()
		now--
		mu.Unlock()
	}))
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if resp, _ := r.get("shop", "/"); resp.StatusCode != 200 {
				t.Error(resp.Status)
			}
		})
	}
	all.Wait()
	if most > 3 {
		t.Errorf("%d at once", most)
	}
}

// TestReplayPassesRequestsOnWithBodies: an app hands requests on, with their bodies, and not for ever.
func TestReplayPassesRequestsOnWithBodies(t *testing.T) {
	r := newRig(t, nil)
	replay := func(v string) func(net.Conn) {
		return handles(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Fly-Replay", v)
		})
	}
	r.host.add("a", "a1", machine.Started, httpService(nil), replay("app=b;state=s"))
	r.host.add("c", "c1", machine.Started, httpService(nil), replay("instance=c1"))
	r.host.add("d", "d1", machine.Started, httpService(nil), replay("app=e"))
	r.host.add("e", "e1", machine.Started, httpService(nil), replay("app=d"))
	r.host.add("f", "f1", machine.Started, httpService(nil), replay("app=nobody-has-this"))
	r.host.add("g", "g1", machine.Started, httpService(nil), replay("instance=gone"))
	r.host.add("h", "h1", machine.Started, httpService(nil), replay("launch=missiles"))
	r.host.add("i", "i1", machine.Started, httpService(nil), replay("app=b;state="+strings.Repeat("x", 2000)))
	r.host.add("b", "b1", machine.Started, httpService(nil), handles(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "b1 %s %s", r.Header.Get("Fly-Replay-Src"), body)
	}))
	if resp, body := r.do("POST", "a", "/", "hello"); body != "b1 instance=a1;region=here;state=s hello" ||
		resp.Header.Get("Fly-Replay") != "" {
		t.Errorf("%q", body)
	}
	for app, want := range map[string]string{"c": "503 replay_loop", "d": "503 replay_loop", "e": "503 replay_loop",
		"f": "404 no_machine", "g": "404 no_such_instance", "h": "502 bad_answer", "i": "502 bad_answer"} {
		resp, body := r.get(app, "/")
		if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Souk-Error")); got != want || body == "" {
			t.Errorf("%s: %s %q", app, got, body)
		}
	}
	// A body that is larger than what is remembered cannot be handed on.
	if resp, _ := r.do("POST", "a", "/", strings.Repeat("x", 2<<20)); code(resp) != "413 replay_body" {
		t.Error(resp.Status, resp.Header)
	}
}

// TestForcedInstanceIsUsedOrReported: an instance that is forced, and one that is not there.
func TestForcedInstanceIsUsedOrReported(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	r.host.add("shop", "m2", machine.Stopped, httpService(nil), says("m2"))
	for range 10 {
		for _, id := range []string{"m1", "m2"} {
			if _, body := r.get("shop", "/", "Fly-Force-Instance-Id: "+id); !strings.HasPrefix(body, id+" ") {
				t.Errorf("%q instead of %s", body, id)
			}
		}
	}
	if resp, _ := r.get("shop", "/", "Fly-Force-Instance-Id: m3"); resp.StatusCode != 404 {
		t.Error(resp.Status)
	}
	if starts, _ := r.host.count(); starts != 1 {
		t.Errorf("%d starts", starts)
	}
}

// TestConfiguredResponseHeadersAreAdded: the config's headers, of which none frames.
func TestConfiguredResponseHeadersAreAdded(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(func(s *machine.Service) {
		s.Ports[0].HTTPOptions = &machine.HTTPOptions{Response: &machine.HTTPResponse{Headers: map[string]any{
			"X-Set": "1", "x-two": []any{"a", "b"}, "Server": false, "Content-Length": "1",
			"Transfer-Encoding": "chunked",
			"Connection":        "close", "Bad\r\nName": "x", "X-Bad": "a\r\nX-Injected: 1"}}}
	}), handles(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "s")
		_, _ = io.WriteString(w, "hello")
	}))
	resp, body := r.get("shop", "/")
	if body != "hello" || resp.Header.Get("X-Set") != "1" || len(resp.Header["X-Two"]) != 2 ||
		resp.Header.Get(
			"Server",
		) != "" || resp.Header.Get("X-Injected") != "" || resp.Close || resp.ContentLength != 5 {
		t.Errorf("%q %v", body, resp.Header)
	}
}

// TestBrokenAnswerDiffersFromUnreachable: an answer that breaks off and an unreachable machine are different errors.
func TestBrokenAnswerDiffersFromUnreachable(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), func(net.Conn) {})
	resp, body := r.get("shop", "/", "Accept: application/json")
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, `"code":"bad_answer"`) {
		t.Error(resp.Status, body)
	}
}

// TestClientLeavingDuringDialBlamesNobody: a client that leaves during the dial does not count against the machine:
// the next one is answered.
func TestClientLeavingDuringDialBlamesNobody(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	for range 100 {
		f := r.frames() // a stream that its client breaks off with the request itself
		_ = f.ask([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
			{Name: ":path", Value: "/"}, {Name: ":authority", Value: "shop.localhost"},
			{Name: "content-length", Value: "0"}}, "x")
		f.c.Close()
		if resp, body := r.get("shop", "/"); resp.StatusCode != 200 {
			t.Fatal(resp.Status, body)
		}
	}
}

// metric returns the lines of the proxy's metrics that have a name.
func metric(t *testing.T, r *rig, name string) string {
	t.Helper()
	return gather(t, r.proxy, name)
}
