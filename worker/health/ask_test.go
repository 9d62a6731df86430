package health

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reach"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a machine in the host's network.
func host() *machine.Machine {
	return &machine.Machine{ID: "00000000000001", Config: &machine.Config{Image: machine.HostImage}}
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(addr, "https://"), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func get(port int, path string) machine.HealthCheck {
	return machine.HealthCheck{Port: port, HTTP: true, Method: "GET", Path: path, Timeout: 20 * time.Second}
}

func asked(t *testing.T, h machine.HealthCheck) verdict {
	t.Helper()
	v, _ := New(Options{Dial: new(reach.Dialer).Dial}).askOnce(t.Context(), host(), &h)
	return v
}

// TestHTTPAnswersSetTheCheckStatus asks a server, each path of which answers in its own way.
func TestHTTPAnswersSetTheCheckStatus(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/moved":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/busy":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/early":
			for range 3 {
				w.WriteHeader(http.StatusEarlyHints)
			}
		case "/endless":
			for range 10000 {
				if _, err := io.WriteString(w, strings.Repeat("0123456789", 100)); err != nil {
					return
				}
			}
		case "/odd":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "a\r\nb\x1b[31mc\x00\xff\u202ed")
		case "/seen":
			_, _ = fmt.Fprintf(w, "%s %s %s %v %s", r.Method, r.Host, r.URL.RawQuery, r.Header["X-A"], r.UserAgent())
		}
	}))
	defer srv.Close()
	port := portOf(t, srv.URL)
	for path, want := range map[string]verdict{
		"/":      {machine.CheckPassing, "200 OK"},
		"/empty": {machine.CheckPassing, "204 No Content"},
		"/moved": {machine.CheckCritical, "302 Found (redirects are not followed, and this one leads to " +
			other.URL + ")\n" +
			"<a href=\"" + other.URL + "\">Found</a>."},
		"/busy":    {machine.CheckWarning, "429 Too Many Requests"},
		"/early":   {machine.CheckPassing, "200 OK"},
		"/endless": {machine.CheckPassing, "200 OK\n" + strings.Repeat("0123456789", 26)[:maxBody]},
		"/odd":     {machine.CheckCritical, "500 Internal Server Error\na  b[31mcd"},
	} {
		if got := asked(t, get(port, path)); got != want {
			t.Errorf("%s: %q, not %q", path, got, want)
		}
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
	h := get(port, "/seen?a=b&c")
	h.Method = "POST"
	h.Headers = []machine.HTTPHeader{{Name: "host", Values: []string{"a.example:81"}}, {Name: "x-a",
		Values: []string{"1", "2"}}}
	if got := asked(t, h); got.output != "200 OK\nPOST a.example:81 a=b&c [1 2] souk-health-check" {
		t.Errorf("%q", got)
	}
}

// TestInvalidHTTPAnswersAreCritical asks servers that speak no HTTP, or not enough of it.
func TestInvalidHTTPAnswersAreCritical(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refuses := portOf(t, free.Addr().String())
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	if got := asked(t, get(refuses, "/")); got.status != machine.CheckCritical ||
		got.output != fmt.Sprintf("port %d: connect: connection refused", refuses) {
		t.Errorf("%q", got)
	}
	for name, c := range map[string]struct{ says, want string }{
		"it closes":     {"", "the connection was closed before a whole answer"},
		"half a header": {"HTTP/1.1 200 OK\r\nA: b", "the connection was closed before a whole answer"},
		"garbage":       {"SSH-2.0-OpenSSH_9.2\r\n", `malformed HTTP response "SSH-2.0-OpenSSH_9.2"`},
		"an endless header": {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 1<<20),
			"the connection was closed before a whole answer"},
		"interim for ever": {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100),
			"the server answers with interim (1xx) statuses only"},
		"a line that colours": {"\x1b[31mHTTP\r\n", `malformed HTTP response "\x1b[31mHTTP"`},
	} {
		port := serve(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, c.says)
			if tcp, is := conn.(*net.TCPConn); is {
				_ = tcp.CloseWrite()
				_, _ = io.Copy(io.Discard, tcp) // or what was written may be lost
			}
		})
		got := asked(t, get(port, "/"))
		if want := fmt.Sprintf("port %d: %s", port, c.want); got != (verdict{machine.CheckCritical, want}) {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
	hangs := serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	h := get(hangs, "/")
	h.Timeout = 50 * time.Millisecond
	if got := asked(t, h); got.output != fmt.Sprintf("port %d: no answer within 50ms", hangs) {
		t.Errorf("%q", got)
	}
	h.TLS = true
	if got := asked(t, h); got.output != fmt.Sprintf("port %d: no answer within 50ms", hangs) {
		t.Errorf("over TLS: %q", got)
	}
	h = machine.HealthCheck{Port: hangs, Timeout: time.Minute}
	if got := asked(t, h); got != (verdict{machine.CheckPassing, fmt.Sprintf("port %d accepts connections", hangs)}) {
		t.Errorf("%q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h = get(hangs, "/")
	if got, _ := New(Options{Dial: new(reach.Dialer).Dial}).askOnce(ctx, host(),
		&h); got.status != machine.CheckCritical {
		t.Errorf("%q", got)
	}
}

// serve answers each connection on a free port until the test ends.
func serve(t *testing.T, answer func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return portOf(t, l.Addr().String())
}

// TestUnverifiedCertificateIsCritical: one that cannot be verified is critical, unless the config says that it need not be.
func TestUnverifiedCertificateIsCritical(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate()) // for example.com and 127.0.0.1
	known := New(Options{Dial: new(reach.Dialer).Dial, Roots: roots})
	strange := New(Options{Dial: new(reach.Dialer).Dial, Roots: x509.NewCertPool()})
	for _, tt := range []struct {
		name       string
		c          *Checker
		serverName string
		host       string
		skip       bool
		want       string
	}{
		{"by its name", known, "example.com", "", false, machine.CheckPassing},
		{"by the host's name", known, "", "example.com:443", false, machine.CheckPassing},
		{"another name", known, "other.example", "", false, machine.CheckCritical},
		{"no name", known, "", "", false, machine.CheckCritical},
		{"an unknown root", strange, "example.com", "", false, machine.CheckCritical},
		{"not verified", strange, "", "", true, machine.CheckPassing},
	} {
		h := get(portOf(t, srv.URL), "/")
		h.TLS, h.ServerName, h.SkipVerify = true, tt.serverName, tt.skip
		if tt.host != "" {
			h.Headers = []machine.HTTPHeader{{Name: "Host", Values: []string{tt.host}}}
		}
		if got, _ := tt.c.askOnce(t.Context(), host(), &h); got.status != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	plain := get(portOf(t, srv.URL), "/")
	if got := asked(t, plain); got.status != machine.CheckCritical {
		t.Errorf("HTTP to a port of HTTPS: %q", got)
	}
}

// TestChecksConnectOnlyToTheirMachine: nothing that a config says makes souk connect to anything else.
func TestChecksConnectOnlyToTheirMachine(t *testing.T) {
	for _, c := range []struct {
		image string
		mode  machine.NetworkMode
		ip    string
		want  string
	}{
		{machine.HostImage, "", "127.0.0.1", "127.0.0.1"}, // or ::1, and no other
		{machine.HostImage, "", "fd00::1", "127.0.0.1"},
		{"nginx", "", "fd00:1::2", "fd00:1::2"},
		{"nginx", machine.NetworkHost, "", "127.0.0.1"},
		{"nginx", "", "127.0.0.1", ""},
		{"nginx", "", "::1", ""},
		{"nginx", "", "169.254.169.254", ""},
		{"nginx", "", "::ffff:10.0.0.1", ""},
		{"nginx", "", "fe80::1", ""},
		{"nginx", "", "2001:db8::1", ""},
		{"nginx", "", "", ""},
		{"nginx", machine.NetworkNone, "fd00:1::2", ""},
		{"nginx", "other", "fd00:1::2", ""},
	} {
		m := host()
		m.PrivateIP, m.Config = c.ip, &machine.Config{Image: c.image, Network: &machine.Network{Mode: c.mode}}
		a, err := m.Reach(80)
		if c.want == "" && fault.CodeOf(err) != "no_address" ||
			c.want != "" && (err != nil || a[0].Addr().String() != c.want || a[0].Port() != 80) {
			t.Errorf("%+v: %v, %v", c, a, err)
		}
	}
	m := host()
	m.Config.Image = "nginx"
	h := get(80, "/")
	got, _ := New(Options{Dial: new(reach.Dialer).Dial}).askOnce(t.Context(), m, &h)
	if got.status != machine.CheckCritical ||
		!strings.Contains(got.output, "has no network") {
		t.Errorf("%q", got)
	}
}

// BenchmarkCheckOnLoopback is one check of a server on loopback: what a worker pays for each, with the server's own work.
func BenchmarkCheckOnLoopback(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		b.Fatal(err)
	}
	c := New(Options{Dial: new(reach.Dialer).Dial})
	for _, h := range []machine.HealthCheck{get(n, "/"), {Port: n, Timeout: time.Minute}} {
		b.Run(map[bool]string{true: "http", false: "tcp"}[h.HTTP], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v, _ := c.askOnce(b.Context(), host(), &h); v.status != machine.CheckPassing {
					b.Fatal(v)
				}
			}
		})
	}
}
