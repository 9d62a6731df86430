package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// post sends a raw question and gives the error it was answered with; nil for an answer.
func post(t *testing.T, l *Link, path string, body io.Reader, size int64, headers ...string) error {
	t.Helper()
	r := l.newRequest(t.Context(), path, nil)
	r.Body, r.GetBody, r.ContentLength, r.Header = io.NopCloser(body), nil, size, l.header.Clone()
	if c, ok := body.(io.ReadCloser); ok {
		r.Body = c
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	_, err := l.rawAnswer(t.Context(), l.currentWires().calls, r)
	return err
}

// TestRolesLimitEveryRoute goes through every route with every kind of member. What a member may not ask is Denied and never
// reaches the worker; what it may is answered, or fails for another reason.
func TestRolesLimitEveryRoute(t *testing.T) {
	c, k := newCast(t, time.Now()), newStub()
	addr := c.serve(t, "i1", Options{Worker: k, Jobs: jobStub{k}, Signer: c.ca, Pull: func(_ context.Context, _ Peer,
		b []byte) ([]byte, error) {
		return b, nil
	}}, nil)
	anyone := []string{pathHello, pathPull, pathJoin, pathRenew, pathBundle, pathTokens}
	for _, id := range []string{"w2", "g1", "b1", "i1"} {
		l := NewClient(c.all[id], nil).Link("i1", pki.Worker, func() string { return addr })
		t.Cleanup(l.Close)
		gateway, issuer := c.all[id].Name().Has(pki.Gateway), c.all[id].Name().Has(pki.Issuer)
		for path := range allRoutes() {
			before := k.total()
			err := post(t, l, path, strings.NewReader("{}"), 2)
			may := gateway && path != pathKeys || slices.Contains(anyone, path) || issuer && path == pathKeys
			if denied := fault.CodeOf(err) == "role"; denied == may {
				t.Errorf("%s asks %s: %v", id, path, err)
			}
			if !may && k.total() != before {
				t.Errorf("%s asks %s, is denied, and the worker heard of it", id, path)
			}
		}
	}
	// Without a certificate there is one door, and it leads to joining only.
	token, err := c.ca.NewToken(time.Now(), pki.TokenOptions{})
	must(t, err)
	l := NewClient(nil, nil).Link("", "", func() string { return addr })
	conf := pki.JoinTLS(token, time.Now, "h2")
	door := newTransport(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialTLS(ctx, (&net.Dialer{}).DialContext, addr, conf)
	})
	l.now.Store(&wires{calls: door, streams: door})
	defer l.Close()
	asked := 0
	for path := range allRoutes() {
		if asked++; asked%strangerAsks == 0 { // a connection of a stranger takes no more requests
			door.CloseIdleConnections()
		}
		want := fault.Code("certificate")
		if path == pathJoin {
			want = "id" // the arguments are looked at
		}
		if err := post(t, l, path, strings.NewReader("{}"), 2); fault.CodeOf(err) != want {
			t.Errorf("without a certificate, %s: %v", path, err)
		}
	}
	if k.count["Grant"] != 0 {
		t.Error("an empty grant reached the worker")
	}
}

func (s *stub) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.count {
		n += c
	}
	return n
}

// TestMemberIDComesFromTheCertificate: a member's id is exactly the certificate's, whatever the request says.
func TestMemberIDComesFromTheCertificate(t *testing.T) {
	c := newCast(t, time.Now())
	var seen Peer
	pull := func(_ context.Context, by Peer, body []byte) ([]byte, error) {
		seen = by
		if !by.SpeaksFor(string(body)) {
			return nil, fault.New(fault.Denied, "speaks_for", "%s may not tell of worker %s", by.ID, body)
		}
		return body, nil
	}
	addr := c.serve(t, "w1", Options{Pull: pull}, nil)
	for _, x := range []struct {
		who, of string
		may     bool
	}{{"w2", "w2", true}, {"w2", "w1", false}, {"w2", "w", false}, {"w2", "w22", false}, {"g1", "g1", false},
		{"g1", "w1", false}, {"b1", "b1", true}, {"i1", "w1", false}} {
		l := NewClient(c.all[x.who], nil).Link("w1", "", func() string { return addr })
		t.Cleanup(l.Close)
		out, err := l.Pull(t.Context(), []byte(x.of))
		if (err == nil) != x.may || x.may && string(out) != x.of || seen.ID != x.who {
			t.Errorf("%s tells of %s, taken for %s: %q, %v", x.who, x.of, seen.ID, out, err)
		}
	}
	// What answers at an address must be who was wanted.
	for _, l := range []*Link{
		NewClient(c.all["g1"], nil).Link("w2", pki.Worker, func() string { return addr }),
		NewClient(c.all["g1"], nil).Link("w1", pki.Gateway, func() string { return addr }),
		NewClient(c.all["g1"], nil).Link("w1", pki.Worker, func() string { return "" }),
		NewClient(c.all["g1"], nil).Link("w1", pki.Worker, func() string { return "127.0.0.1:1" }),
		NewClient(newCast(t, time.Now()).all["g1"], nil).Link("w1", pki.Worker, func() string { return addr }),
	} {
		_, err := l.Hello(t.Context())
		wantFault(t, err, fault.Unavailable, "unreachable")
		l.Close()
	}
	l := NewClient(c.all["g1"], nil).Worker("w1", func() string { return addr })
	defer l.Close()
	_, err := l.Record(t.Context())
	wantFault(t, err, fault.NotFound, "worker") // it serves none
	g, err := l.Hello(t.Context())
	must(t, err)
	if g.ID != "w1" || !g.Has(pki.Worker) || g.Speaks != Capability || g.Now.IsZero() {
		t.Errorf("got %+v", g)
	}
}

func TestMalformedRequestsReachNoWorker(t *testing.T) {
	c, k := newCast(t, time.Now()), newStub()
	addr := c.serve(t, "w1", Options{Worker: k}, nil)
	w := c.worker(t, "g1", addr, nil)
	long := strings.Repeat("n", 64<<10)
	for _, x := range []struct {
		name, path string
		code       fault.Code
		body       io.Reader
		size       int64
		headers    []string
	}{
		{"unknown route", "/wire/nothing", "route", strings.NewReader("{}"), -1, nil},
		{"a prefix of one", "/wire/mach", "route", strings.NewReader("{}"), -1, nil},
		{"one and more", "/wire/machine/x", "route", strings.NewReader("{}"), -1, nil},
		{"64 KB route", "/" + long[:32<<10], "route", strings.NewReader("{}"), -1, nil},
		{"no JSON", pathMachine, "json", strings.NewReader("machine"), -1, nil},
		{"nothing", pathMachine, "json", strings.NewReader(""), -1, nil},
		{"another shape", pathMachine, "json", strings.NewReader(`{"app":["a"]}`), -1, nil},
		{"deep", pathMachine, "json", strings.NewReader(strings.Repeat("[", 1<<20)), -1, nil},
		{"64 KB app", pathMachine, "name", strings.NewReader(`{"app":"` + long + `"}`), -1, nil},
		{"64 KB path", pathCopyOut, "path", strings.NewReader(`{"path":"` + long + `"}`), -1, nil},
		{"64 KB machine id", pathGrant, "id", strings.NewReader(`{"request":{"machine":"` + long + `"}}`), -1, nil},
		{"100 MB told", pathGrant, "too_large", strings.NewReader("{"), 100 << 20, nil},
		{"100 MB untold", pathGrant, "too_large", io.LimitReader(zeros{}, 100<<20), -1, nil},
		{"an ask that is no number", pathGrant, "ask", bytes.NewReader(grantBody(t, testID)),
			-1, []string{askHeader, "-1"}},
		{"a frame of 4 GB", pathExec, "frame", bytes.NewReader([]byte{'o', 255, 255, 255, 255}), -1, nil},
		{"no order", pathExec, "frame", bytes.NewReader([]byte{'i', 0, 0, 0, 0}), -1, nil},
		{"no capability", pathMachine, "capability", strings.NewReader("{}"), -1, []string{capabilityHeader, "yes"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := post(t, w.Link, x.path, x.body, x.size, x.headers...)
			if fault.CodeOf(err) != x.code {
				t.Fatalf("got %v, want %q", err, x.code)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the answer has %d bytes", len(err.Error()))
			}
		})
	}
	r := w.newRequest(t.Context(), pathMachine, nil)
	r.Method = "GET"
	_, err := w.rawAnswer(t.Context(), w.currentWires().calls, r)
	wantFault(t, err, fault.Invalid, "method")
	r = w.newRequest(t.Context(), pathMachine, nil)
	r.Header = http.Header{capabilityHeader: w.header[capabilityHeader], "X": {long + long}}
	if _, err := w.rawAnswer(t.Context(), w.currentWires().calls, r); !fault.Is(err, fault.Unavailable) {
		t.Errorf("128 KB of headers: %v", err)
	}
	if n := k.total(); n != 0 {
		t.Errorf("%d of these reached the worker", n)
	}
	if _, err := w.Machine(t.Context(), "a", testID); err != nil { // and the next is answered
		t.Error(err)
	}
}

// TestStalledRequestsTimeOut: a question that stops in the middle is answered when its time is over.
func TestStalledRequestsTimeOut(t *testing.T) {
	c, k := newCast(t, time.Now()), newStub()
	addr := c.serve(t, "w1", Options{Worker: k}, func(s *Server) { s.bodyTime = 20 * time.Millisecond })
	w := c.worker(t, "g1", addr, nil)
	for _, path := range []string{pathGrant, pathWatch, pathExec, pathPull} {
		never, stop := io.Pipe()
		if err := post(t, w.Link, path, never, 100); !fault.Is(err, fault.Timeout) && path != pathPull {
			t.Errorf("half of %s: %v", path, err)
		}
		stop.Close()
	}
	if n := k.total(); n != 0 {
		t.Errorf("%d of these reached the worker", n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestStalledConnectionsAreClosed: who connects and then says nothing, or half of something, is cut off; others are served
// meanwhile.
func TestStalledConnectionsAreClosed(t *testing.T) {
	c := newCast(t, time.Now())
	addr := c.serve(t, "w1", Options{Worker: newStub()}, func(s *Server) { s.headTime = 50 * time.Millisecond })
	conf := c.all["g1"].ClientTLS(time.Now, "w1", pki.Worker, "h2")
	plain := c.all["g1"].ClientTLS(time.Now, "w1", pki.Worker, "http/1.1")
	none := c.all["g1"].ClientTLS(time.Now, "w1", pki.Worker)
	dial := func(conf *tls.Config, say string) net.Conn {
		conn, err := net.Dial("tcp", addr)
		must(t, err)
		if conf != nil {
			secure := tls.Client(conn, conf)
			if err := secure.Handshake(); err != nil {
				return conn
			}
			conn = secure
		}
		_, _ = io.WriteString(conn, say) // it may have been cut off already
		return conn
	}
	for name, conn := range map[string]net.Conn{
		"nothing":            dial(nil, ""),
		"half a handshake":   dial(nil, "\x16\x03\x01\x02"),
		"no TLS":             dial(nil, "GET / HTTP/1.1\r\n\r\n"),
		"nothing behind TLS": dial(conf, ""),
		"HTTP/1.1":           dial(plain, ""),
		"half of HTTP/1.1":   dial(none, "POST /wire/record HTTP/1.1\r\nHost: x\r\n"),
	} {
		if name == "nothing behind TLS" {
			conn.Close() // no time is set for it: a member may be silent, and pings find those that are dead
			continue
		}
		if _, err := io.ReadAll(io.LimitReader(conn, 1<<20)); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: %v", name, err)
		} // it returns: the other end closed
		conn.Close()
	}
	w := c.worker(t, "g1", addr, nil)
	_, err := w.Record(t.Context())
	for fault.Is(err, fault.Unavailable) { // where members too are slow, one may be cut off in its handshake
		_, err = w.Record(t.Context())
	}
	must(t, err)
}

func TestConnectionsAreBounded(t *testing.T) {
	c := newCast(t, time.Now())
	addr := c.serve(t, "w1", Options{Worker: newStub(), Limits: Limits{Connections: 2}}, nil)
	first, second := c.worker(t, "g1", addr, nil), c.worker(t, "g2", addr, nil)
	for _, w := range []*Worker{first, second} {
		_, err := w.Record(t.Context())
		must(t, err)
	}
	third := c.worker(t, "b1", addr, nil)
	_, err := third.Record(t.Context())
	wantFault(t, err, fault.Unavailable, "unreachable")
	if _, err := first.Record(t.Context()); err != nil { // those that are there go on
		t.Error(err)
	}
}

// TestRemovedOrExpiredMembersAreCutOff: a certificate that holds is not enough for one that was removed, and a connection does
// not outlive the certificate it was made with.
func TestRemovedOrExpiredMembersAreCutOff(t *testing.T) {
	begin := time.Now()
	c := newCast(t, begin)
	now := newClock(begin)
	removed := map[string]bool{}
	addr := c.serve(t, "w1", Options{Worker: newStub(), Now: now.Now,
		Denied: func(p Peer) bool { return removed[p.ID] && p.Since.Before(begin) }}, nil)
	g1, g2 := c.worker(t, "g1", addr, now.Now), c.worker(t, "g2", addr, now.Now)
	for _, w := range []*Worker{g1, g2} {
		_, err := w.Record(t.Context())
		must(t, err)
	}
	removed["g2"] = true
	_, err := g2.Record(t.Context())
	wantFault(t, err, fault.Denied, "removed")
	_, err = g1.Record(t.Context())
	must(t, err)
	now.set(begin.Add(pki.CertificateLife + time.Minute)) // the connection stands
	_, err = g1.Record(t.Context())
	wantFault(t, err, fault.Denied, "certificate_expired")
	_, err = g1.Do(t.Context(), lifecycle.Command{})
	if !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Denied) {
		t.Errorf("got %v", err)
	}
}

// TestLinksSwitchToRenewedCertificates: links go over to a new certificate by themselves, so that no call ever meets the end of the
// old one.
func TestLinksSwitchToRenewedCertificates(t *testing.T) {
	begin := time.Now()
	c := newCast(t, begin)
	now := newClock(begin)
	addr := c.serve(t, "w1", Options{Worker: newStub(), Now: now.Now}, nil)
	w, g1 := c.worker(t, "g1", addr, now.Now), c.all["g1"]
	_, err := w.Record(t.Context())
	must(t, err)
	now.set(begin.Add(pki.RenewAfter + time.Minute))
	must(t, (&Upkeep{Client: NewClient(g1, now.Now), Local: c.ca}).Look(t.Context()))
	_, err = w.Record(t.Context())
	must(t, err)
	now.set(begin.Add(pki.CertificateLife + time.Minute)) // where the first would have ended
	_, err = w.Record(t.Context())
	must(t, err)
}

// TestVersionsInteroperateOrRefuse: an older and a newer end talk while each understands the other, and otherwise refuse with a
// sentence before anything is done.
func TestVersionsInteroperateOrRefuse(t *testing.T) {
	const a, b, n = 20260101, 20260601, 20261121
	for _, x := range []struct {
		name           string
		server, client capability
		text           string // of the refusal; "" when they talk
	}{
		{"same", capability{n, b}, capability{n, b}, ""},
		{"older client", capability{n, b}, capability{b, a}, ""},
		{"older server", capability{b, a}, capability{n, b}, ""},
		{"client too old", capability{n, b}, capability{a, a},
			"g1 speaks protocol version 20260101, but this member needs at least 20260601; upgrade souk there"},
		{"server too old", capability{a, a}, capability{n, b},
			"g1 needs at least protocol version 20260601, but this member speaks 20260101; upgrade souk here"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, k := newCast(t, time.Now()), newStub()
			addr := c.serve(t, "w1", Options{Worker: k}, func(s *Server) { s.setCapability(x.server) })
			client := NewClient(c.all["g1"], nil)
			client.speaks = x.client
			w := client.Worker("w1", func() string { return addr })
			defer w.Close()
			_, err := w.Quote(t.Context(), placement.Request{})
			if x.text == "" {
				must(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), "souk") || k.total() != 0 {
				t.Errorf("got %v, and the worker was asked %d times", err, k.total())
			}
		})
	}
	// An older server would not know fields, routes: it passes over the former and names the latter.
	k := newStub()
	w := far(t, k)
	must(t, post(t, w.Link, pathMachine, strings.NewReader(`{"app":"a","tomorrow":{"x":1}}`), 30))
	err := post(t, w.Link, "/wire/tomorrow", strings.NewReader("{}"), 2)
	wantFault(t, err, fault.NotFound, "route")
	for _, s := range []string{"", "x y", "1", "1 2", "2 1 0", strings.Repeat("1", 100) + " 1"} {
		if _, ok := parseCapability(s); ok {
			t.Errorf("%q is taken for a capability", s)
		}
	}
}
