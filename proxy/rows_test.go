package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// TestNonIdempotentRequestAvoidsIdleConnections (6): no request that cannot be sent twice meets the close of its connection.
func TestNonIdempotentRequestAvoidsIdleConnections(t *testing.T) {
	r := newRig(t, nil)
	const idle = 120 * time.Millisecond
	var served atomic.Int32
	r.host.add("shop", "m1", machine.Started, httpService(nil), func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			_ = c.SetReadDeadline(time.Now().Add(idle))
			q, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, q.Body)
			served.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}
	})
	const times = 60
	c := r.connect()
	timer := time.NewTicker(idle)
	defer timer.Stop()
	for range times {
		c.Send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\n\r\nhello")
		if resp, body := c.Answer("POST"); resp.StatusCode != 200 {
			t.Error(resp.Status, body)
		}
		<-timer.C
	}
	if n := served.Load(); n != times {
		t.Errorf("%d served", n)
	}
}

// TestDeadMachineCostsOnlyTheNextDial (7): a refused dial is no request's end, whatever their number. With none left the answer
// comes, for however long requests may be held, and nothing is waited for: one at least of many comes at once.
func TestDeadMachineCostsOnlyTheNextDial(t *testing.T) {
	r := newRig(t, func(o *proxy.Options) { o.Hold = time.Hour })
	const dead = 7
	var guests []*guest
	for i := range dead + 1 {
		id := fmt.Sprint("m", i)
		guests = append(guests, r.host.add("shop", id, machine.Started, httpService(nil), says(id)))
		if resp, _ := r.get("shop", "/", "Fly-Force-Instance-Id: "+id); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	kill := func(list []*guest) {
		r.host.mu.Lock()
		defer r.host.mu.Unlock()
		for _, g := range list {
			g.close()
			g.reserve(t)
		}
	}
	kill(guests[:dead])
	for range 200 {
		if resp, body := r.do("POST", "shop", "/", "x"); body != fmt.Sprintf("m%d POST / x", dead) {
			t.Fatal(resp.Status, body)
		}
	}
	kill(guests[dead:])
	fastest := time.Hour
	for range 20 {
		began := time.Now()
		resp, body := r.do("POST", "shop", "/", "x")
		if resp.StatusCode != 503 || body == "" || resp.Header.Get("Retry-After") == "" {
			t.Error(code(resp), body)
		}
		fastest = min(fastest, time.Since(began))
	}
	if fastest > time.Second {
		t.Errorf("each took %v and longer", fastest)
	}
}

// TestOversizedHeadIsAnErrorWithReason (16): a head that is too large is an error with a reason, also where another member has the machine.
func TestOversizedHeadIsAnErrorWithReason(t *testing.T) {
	for _, way := range []string{"own", "far"} {
		to := far{}
		r := newRig(t, withFar(to))
		h := r.host
		if way == "far" {
			h = r.behind("w2", to).host
		}
		got := make(chan []string, 2)
		serve := handles(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/large" {
				w.Header().Set("Set-Cookie", strings.Repeat("a", 70<<10))
			}
			got <- q.Header["Cookie"]
		})
		g := h.add("shop", "m1", machine.Started, httpService(nil), serve)
		if way == "far" {
			r.knows(g, machine.Started)
		}
		if resp, _ := r.get("shop", "/", "Cookie: "+strings.Repeat("a", 60<<10)); resp.StatusCode != 200 {
			t.Error(way, resp.Status)
		}
		<-got
		resp, body := r.get("shop", "/large")
		if code(resp) != "502 bad_answer" || !strings.Contains(body, "head of more than") {
			t.Error(way, code(resp), body)
		}
		<-got
		c := r.connect()
		go func() {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.localhost\r\nCookie: "+
				strings.Repeat("a", 70<<10)+"\r\n\r\n")
		}()
		if resp, body := c.Answer("GET"); resp.StatusCode != 431 || body == "" {
			t.Error(way, resp.Status)
		}
		{ // HTTP/2 splits cookies
			client := r.overH2()
			q, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/", nil)
			q.Host = "shop.localhost"
			q.Header["Cookie"] = []string{"a=1; b=2", "c=3"}
			resp, err := client.RoundTrip(q)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if cookies := <-got; strings.Join(cookies, "|") != "a=1; b=2; c=3" {
				t.Errorf("%s: the machine got %q", way, cookies)
			}
		}
	}
}

// overH2 returns a client that speaks HTTP/2 in the clear.
func (r *rig) overH2() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Transport{Protocols: protocols, DisableCompression: true}
	r.t.Cleanup(client.CloseIdleConnections)
	return client
}

// TestGRPCErrorsAndDeadlinesAreKept (11): failures of the proxy's own are such of gRPC, a client's deadline bounds the hold, and an answer that
// is nothing but trailers stays one.
func TestGRPCErrorsAndDeadlinesAreKept(t *testing.T) {
	for _, way := range []string{"own", "far"} {
		to := far{}
		r := newRig(t, withFar(to))
		h := r.host
		if way == "far" {
			h = r.behind("w2", to).host
		}
		h2 := true
		grpc := httpService(func(s *machine.Service) { s.Ports[0].HTTPOptions = &machine.HTTPOptions{H2Backend: &h2} })
		up := h.add("up", "m1", machine.Started, grpc, handles(func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Te") != "trailers" {
				t.Errorf("te is %q", q.Header["Te"])
			}
			w.Header().Set("Content-Type", "application/grpc")
			if q.URL.Path == "/invalid" {
				w.Header().Set("Grpc-Status", "3")
				w.Header().Set("Grpc-Message", "no such cat")
				return
			}
			_, _ = io.Copy(w, q.Body)
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}))
		down := h.add("down", "m2", machine.Stopped, grpc, says("m2"))
		slow := h.add("slow", "m3", machine.Stopped, grpc, says("m3"))
		if way == "far" {
			r.knows(up, machine.Started)
			r.knows(down, machine.Stopped)
			r.knows(slow, machine.Stopped)
		}
		ask := func(app, path string, fields ...string) *http.Response {
			client := r.overH2()
			q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+path,
				strings.NewReader("hello"))
			q.Host = app + ".localhost"
			q.Header = http.Header{"Content-Type": {"application/grpc+proto"}, "Te": {"trailers"}}
			for i := 0; i < len(fields); i += 2 {
				q.Header.Set(fields[i], fields[i+1])
			}
			resp, err := client.RoundTrip(q)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
			return resp
		}
		if resp := ask("up", "/"); resp.Trailer.Get("Grpc-Status") != "0" {
			t.Error(way, resp.Header, resp.Trailer)
		}
		if resp := ask("up", "/invalid"); resp.Header.Get("Grpc-Status") != "3" || len(resp.Trailer) > 0 ||
			resp.Header.Get("Grpc-Message") != "no such cat" || resp.ContentLength != 0 {
			t.Error(way, resp.Header, resp.Trailer)
		}
		h.mu.Lock()
		h.fail = fault.New(fault.Exhausted, "full", "the worker is full of cats: 100 %%")
		h.mu.Unlock()
		if resp := ask("down", "/"); resp.StatusCode != 200 || resp.Header.Get("Grpc-Status") != "14" ||
			!strings.Contains(resp.Header.Get("Grpc-Message"), "full of cats: 100 %25") {
			t.Error(way, resp.Status, resp.Header)
		}
		h.mu.Lock()
		h.slow = make(chan struct{})
		h.mu.Unlock()
		resp := ask("slow", "/", "Grpc-Timeout", "300m")
		if resp.StatusCode != 200 || resp.Header.Get("Grpc-Status") != "4" {
			t.Error(way, resp.Status, resp.Header)
		}
		close(h.slow)
		if resp := ask("nobody", "/"); resp.Header.Get("Grpc-Status") != "12" {
			t.Error(way, resp.Status, resp.Header)
		}
	}
}

// TestHostOfAnAbsoluteURIReachesTheMachine (13): the host of a whole URI is the one, and the machine reads it.
func TestHostOfAnAbsoluteURIReachesTheMachine(t *testing.T) {
	r := newRig(t, nil)
	for _, app := range []string{"a", "b"} {
		serve := handles(func(w http.ResponseWriter, q *http.Request) {
			fmt.Fprint(w, app, " ", q.Host, " ", q.RequestURI)
		})
		r.host.add(app, "m"+app, machine.Started, httpService(nil), serve)
	}
	c := r.connect()
	for ask, want := range map[string]string{
		"GET http://b.localhost/x%2F?y=%zz HTTP/1.1\r\nHost: a.localhost": "b b.localhost /x%2F?y=%zz",
		"GET /a%2Fb//c/../d;x?q=1;2&z=%zz HTTP/1.1\r\nHost: A.LocalHost:80": "a A.LocalHost:80 " +
			"/a%2Fb//c/../d;x?q=1;2&z=%zz",
	} {
		c.Send(ask + "\r\n\r\n")
		if _, body := c.Answer("GET"); body != want {
			t.Errorf("%q", body)
		}
	}
}

// TestRouteChangesCloseNoConnection (18): an upgraded connection lives through a hundred changes to other apps and its own.
func TestRouteChangesCloseNoConnection(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), echoes)
	c := r.connect()
	c.Send("GET / HTTP/1.1\r\nHost: shop.localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if resp, err := http.ReadResponse(c.In, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	for i := range 100 {
		r.host.add("blog", fmt.Sprint("b", i), machine.Started, httpService(nil), says("b"))
		r.get("blog", "/")
		r.host.add("shop", fmt.Sprint("s", i), machine.Stopped, httpService(nil), says("s"))
		c.Send("x")
		if b, err := c.In.ReadByte(); err != nil || b != 'x' {
			t.Fatal(i, err)
		}
	}
}

// TestForwardedFieldsAreSetOnceAcrossMembers (21): the machine is told of the first client, once, where another member has it.
func TestForwardedFieldsAreSetOnceAcrossMembers(t *testing.T) {
	to := far{}
	r := newRig(t, withFar(to))
	x := r.behind("w2", to)
	got := make(chan http.Header, 1)
	g := x.host.add("shop", "m1", machine.Started, httpService(nil),
		handles(func(_ http.ResponseWriter, q *http.Request) { got <- q.Header }))
	r.knows(g, machine.Started)
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("there is no IPv6 here: ", err)
	}
	go func() { _ = r.proxy.ServeHTTPAt(r.ctx, ln, nil) }()
	for addr, client := range map[string]string{r.addr: "127.0.0.1", ln.Addr().String(): "::1"} {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.localhost\r\nX-Forwarded-For: 6.6.6.6\r\n"+
			"X-Forwarded-For: 7.7.7.7\r\nx-forwarded-for: 8.8.8.8\r\nFly-Client-IP: 6.6.6.6\r\n\r\n")
		h := <-got
		c.Close()
		for _, name := range []string{"X-Forwarded-For", "Fly-Client-Ip"} {
			if strings.Join(h[name], "|") != client {
				t.Errorf("%s is %q, not %q", name, h[name], client)
			}
		}
	}
}

// TestUnknownHostsAreLoggedSparsely (28): requests for no app are a few lines a second, and one series.
func TestUnknownHostsAreLoggedSparsely(t *testing.T) {
	r := newRig(t, nil)
	c := r.connect()
	began := time.Now()
	const times = 2000
	for i := range times {
		c.Send(fmt.Sprintf("M%d /%d?secret=%d HTTP/1.1\r\nHost: app%d.localhost\r\n\r\n", i, i, i, i))
		c.Answer("GET")
	}
	seconds := int(time.Since(began)/time.Second) + 2
	log := r.log.String()
	if n := strings.Count(log, "\n"); n > 20*seconds {
		t.Errorf("%d lines in %d s", n, seconds)
	}
	if strings.Contains(log, "secret") {
		t.Error("a query is in the log")
	}
	series := metric(t, r, "refused_total")
	if strings.Count(series, "\n") > 0 || !strings.Contains(series, fmt.Sprint(times)) {
		t.Errorf("the series are %s", series)
	}
}

// TestAllChecksFailingAnswersAtOnce (25): where no machine is well there is a reason at once, and none is asked.
func TestAllChecksFailingAnswersAtOnce(t *testing.T) {
	r := newRig(t, nil)
	for _, status := range []string{machine.CheckCritical, machine.CheckWarning} {
		app := "app-" + status
		g := r.host.add(app, "m-"+status, machine.Started, httpService(nil), func(net.Conn) { t.Error("it was asked") })
		r.host.mu.Lock()
		g.Checks = []machine.Check{{Name: "servicecheck-00-http-80", Status: status, Passed: true}}
		m := g.Machine
		r.host.mu.Unlock()
		r.host.own.Machine(&m)
		if resp, body := r.get(app, "/"); code(resp) != "503 unhealthy" || body == "" {
			t.Error(code(resp), body)
		}
	}
}

// TestUnknownNameWaitsForSyncingMembers: after a start, an unknown name waits while known members have not sent their
// machines, no longer than that, and not at all when all have.
func TestUnknownNameWaitsForSyncingMembers(t *testing.T) {
	to := far{}
	r := newRig(t, withFar(to))
	x := r.behind("w2", to)
	g := x.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	if resp, _ := r.get("shop", "/"); resp.StatusCode != 404 {
		t.Fatal(resp.Status, "though all have told what they have")
	}
	r.fleet.Update(func(e *fleet.Edit) { e.Member(fleet.Member{ID: "w3"}) }) // has told nothing
	c := r.connect()
	c.Send("GET /a HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if got, err := c.In.Peek(1); err == nil {
		t.Fatalf("it is answered before the machine is known: %q", got)
	}
	_ = c.SetReadDeadline(time.Now().Add(waittest.Patience))
	r.knows(g, machine.Started)
	if resp, body := c.Answer("GET"); resp.StatusCode != 200 || body != "m1 GET /a " {
		t.Error(resp.Status, body)
	}
	r.fleet.Update(func(e *fleet.Edit) { e.Record(cluster.Record{Worker: "w3"}, 0) })
	if resp, _ := r.get("none", "/"); resp.StatusCode != 404 {
		t.Error(resp.Status)
	}
}
