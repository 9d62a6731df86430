package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// portRig is a rig whose proxy opens ports.
type portRig struct {
	*rig
	ports *ports
	mu    sync.Mutex
	log   bytes.Buffer
}

func (r *portRig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *portRig) logged(words string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.log.String(), words)
}

func newPortRig(t *testing.T, conf *tls.Config) *portRig {
	t.Helper()
	r := &portRig{ports: &ports{open: map[int]net.Listener{}}}
	r.rig = newRig(t, func(o *proxy.Options) {
		o.Listen, o.TLS, o.Log = r.ports.listen, conf, slog.New(slog.NewTextHandler(r, nil))
	})
	return r
}

// portOf is a service of one port.
func portOf(port int, handlers ...string) machine.Service {
	return machine.Service{Protocol: "tcp", Ports: []machine.Port{{Port: &port, Handlers: handlers}}}
}

// update gives a machine another service, as souk update does.
func (h *host) update(id string, s machine.Service) {
	h.mu.Lock()
	g := h.machines[id]
	s.InternalPort = g.port
	conf := *g.Config
	conf.Services = []machine.Service{s}
	g.Config = &conf
	m := g.Machine
	h.mu.Unlock()
	h.own.Machine(&m)
}

// talk is a connection of lines.
type talk struct {
	net.Conn
	t  *testing.T
	br *bufio.Reader
}

func (r *portRig) dial(port int) (*talk, error) {
	ln := r.ports.at(port)
	if ln == nil {
		return nil, net.ErrClosed
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(waittest.Patience))
	return &talk{c, r.t, bufio.NewReader(c)}, nil
}

// says sends a line, of four bytes at least, and returns the one that comes.
func (c *talk) says(line string) string {
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return err.Error()
	}
	got, err := c.br.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(got, "\r\n")
}

// repeats answers each line with itself, and a request of HTTP with its path.
func repeats(c net.Conn) {
	br := bufio.NewReader(c)
	if head, err := br.Peek(4); err == nil && string(head) == "GET " {
		if q, err := http.ReadRequest(br); err == nil {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(q.URL.Path), q.URL.Path)
		}
		return
	}
	_, _ = io.Copy(c, br)
}

// certificate is some server's.
func certificate(t *testing.T) *tls.Config {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	t.Cleanup(s.Close)
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
}

// TestPortFollowsServiceUpdates: connections that come in after an update are served as it says, with the same listener;
// one that was open before goes on.
func TestPortFollowsServiceUpdates(t *testing.T) {
	r := newPortRig(t, certificate(t))
	r.host.add("shop", "m1", machine.Started, portOf(7100), repeats)
	var first *talk
	waittest.Succeed(t, "the port is open", func() (err error) { first, err = r.dial(7100); return err })
	if got := first.says("the first"); got != "the first" {
		t.Fatalf("%q", got)
	}
	over := func() *talk {
		c, err := r.dial(7100)
		if err != nil {
			t.Fatal(err)
		}
		x := tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
		return &talk{x, t, bufio.NewReader(x)}
	}
	get := func(c *talk) string {
		_, _ = io.WriteString(c, "GET /path HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(c.br, nil)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %v %s", resp.StatusCode, resp.Header["Fly-Request-Id"] != nil, body)
	}
	plain := func() *talk {
		c, err := r.dial(7100)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, step := range []struct {
		handlers []string
		ask      func() string
		want     string
	}{
		{[]string{"proxy_proto"}, func() string { return plain().says("hello")[:5] }, "PROXY"},
		{[]string{"tls"}, func() string { return over().says("the second") }, "the second"},
		{[]string{"http"}, func() string { return get(plain()) }, "200 true /path"},
		{[]string{"tls", "http"}, func() string { return get(over()) }, "200 true /path"},
		{nil, func() string { return plain().says("the third") }, "the third"},
	} {
		r.host.update("m1", portOf(7100, step.handlers...))
		waittest.Until(t, fmt.Sprint("served with ", step.handlers), func() bool { return step.ask() == step.want })
		if got := first.says("again"); got != "again" {
			t.Errorf("with %v: the connection that was open: %q", step.handlers, got)
		}
	}
	if n := r.ports.count(); n != 1 {
		t.Errorf("it was opened %d times", n)
	}
}

// TestUpgradedConnectionOutlivesItsListener, and its port.
func TestUpgradedConnectionOutlivesItsListener(t *testing.T) {
	r := newPortRig(t, nil)
	r.host.add("shop", "m1", machine.Started, portOf(7110, "http"), func(c net.Conn) {
		br := bufio.NewReader(c)
		q, err := http.ReadRequest(br)
		if err != nil || q.Header.Get("Upgrade") == "" {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, br)
	})
	var c *talk
	waittest.Succeed(t, "the port is open", func() (err error) { c, err = r.dial(7110); return err })
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if resp, err := http.ReadResponse(c.br, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	r.host.update("m1", portOf(7110))
	waittest.Until(t, "the port is one of TCP", func() bool {
		x, err := r.dial(7110)
		if err != nil {
			return false
		}
		_, _ = io.WriteString(x, "GET / HTTP/1.1\r\n\r\n")
		resp, err := http.ReadResponse(x.br, nil) // the machine closes, and no proxy answers
		return err != nil || resp.Header.Get("Souk-Error") == "" && resp.StatusCode != http.StatusBadRequest
	})
	if got := c.says("still"); got != "still" {
		t.Errorf("%q", got)
	}
	r.host.own.Gone("m1")
	waittest.Until(t, "the port is closed", func() bool { return len(r.proxy.Doors().Ports) == 0 })
	if got := c.says("and still"); got != "and still" {
		t.Errorf("%q", got)
	}
}

// TestTLSPortWithoutCertificatesStaysShut: a TLS port without certificates is closed until its service asks for no
// TLS.
func TestTLSPortWithoutCertificatesStaysShut(t *testing.T) {
	r := newPortRig(t, nil)
	r.host.add("shop", "m1", machine.Started, portOf(7120), repeats)
	waittest.Succeed(t, "the port is open", func() error { _, err := r.dial(7120); return err })
	r.host.update("m1", portOf(7120, "tls"))
	shut := func() bool { d := r.proxy.Doors().Ports; return len(d) == 1 && d[0].Shut && d[0].At == "" }
	waittest.Until(t, "it is shut", shut)
	if _, err := r.dial(7120); err == nil {
		t.Error("it can be connected to")
	}
	waittest.Until(t, "it is told", func() bool { return r.logged("this proxy has no certificates") == 1 })
	r.host.update("m1", portOf(7120))
	waittest.Until(t, "it is open", func() bool { return !shut() })
	if c, err := r.dial(7120); err != nil || c.says("the first") != "the first" {
		t.Error(err)
	}
}

// TestFailedPortIsReopened: a port that could not be opened, or whose listener failed, is soon opened again.
func TestFailedPortIsReopened(t *testing.T) {
	r := newPortRig(t, nil)
	r.ports.fails, r.ports.broken = 2, make(chan error)
	began := time.Now()
	r.host.add("shop", "m1", machine.Started, portOf(7130), repeats)
	waittest.Succeed(t, "the port is open", func() error { _, err := r.dial(7130); return err })
	if took := time.Since(began); took > 4*time.Second {
		t.Logf("it took %v", took)
	}
	if n := r.logged("cannot be opened here"); n != 1 {
		t.Errorf("told %d times", n)
	}
	c, err := r.dial(7130)
	if err != nil || c.says("the first") != "the first" {
		t.Fatal(err)
	}
	r.ports.broken <- syscall.EINVAL
	waittest.Until(t, "it is opened anew", func() bool { return r.ports.count() == 2 })
	waittest.Succeed(t, "the port is open", func() error { _, err := r.dial(7130); return err })
	if got := c.says("the second"); got != "the second" {
		t.Errorf("the connection that was open: %q", got)
	}
}

// TestPortMovesToAnotherAppWithoutClosing: a port that moves to another app stays open: each connection goes to the
// app that has the port when it arrives.
func TestPortMovesToAnotherAppWithoutClosing(t *testing.T) {
	r := newPortRig(t, nil)
	named := func(name string) func(net.Conn) {
		return func(c net.Conn) {
			for br := bufio.NewReader(c); ; {
				line, err := br.ReadString('\n')
				if err != nil {
					return
				}
				fmt.Fprint(c, name+" "+line)
			}
		}
	}
	r.host.add("alpha", "m1", machine.Started, portOf(7140), named("alpha"))
	r.host.add("beta", "m2", machine.Started, portOf(7140), named("beta"))
	var first *talk
	waittest.Until(t, "the port is alpha's", func() (is bool) {
		c, err := r.dial(7140)
		first = c
		return err == nil && c.says("x") == "alpha x"
	})
	r.host.own.Gone("m1")
	waittest.Until(t, "the port is beta's", func() bool {
		c, err := r.dial(7140)
		if err != nil {
			t.Error(err) // it is never closed
		}
		return err != nil || c.says("y") == "beta y"
	})
	if got := first.says("z"); got != "alpha z" {
		t.Errorf("the connection that was open: %q", got)
	}
	if n := r.ports.count(); n != 1 {
		t.Errorf("it was opened %d times", n)
	}
}
