package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
	"github.com/soukhq/souk/proxy/hop/hoptest"
)

// host is a worker whose machines are listeners of this process.
type host struct {
	t   *testing.T
	id  cluster.WorkerID
	own *fleet.Own

	mu       sync.Mutex
	machines map[string]*guest
	starts   int
	stops    int
	events   int
	changed  chan struct{} // closed when a machine changes, and made anew
	fail     error         // of each start
	slow     chan struct{} // not nil: each start waits for it
}

// guest is a machine of a host.
type guest struct {
	machine.Machine
	serve   func(net.Conn) // each connection, in a goroutine of its own
	silent  bool           // it never listens
	halted  bool           // it is stopped by a signal
	check   func()         // is called when its checks are made; nil: nothing is
	started func()         // is called at each start; nil: nothing is
	wrote   []string       // its output
	port    int
	fd      int // a socket that has the port and does not listen; -1: it listens
	ln      net.Listener
	conns   map[net.Conn]bool
}

func newHost(t *testing.T, f *fleet.Fleet, id cluster.WorkerID) *host {
	h := &host{t: t, id: id, own: f.Own(id), machines: map[string]*guest{}, changed: make(chan struct{})}
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, g := range h.machines {
			g.close()
		}
	})
	return h
}

// reserve has a port, at which nothing listens.
func (g *guest) reserve(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: g.port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		t.Error(err)
		return
	}
	name, _ := syscall.Getsockname(fd)
	g.port, g.fd = name.(*syscall.SockaddrInet4).Port, fd
}

func (g *guest) listen(t *testing.T, h *host) {
	if err := syscall.Listen(g.fd, 1024); err != nil {
		t.Error(err)
		return
	}
	f := os.NewFile(uintptr(g.fd), "")
	ln, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Error(err)
		return
	}
	g.fd, g.ln, g.conns = -1, ln, map[net.Conn]bool{}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			g.conns[c] = true
			h.mu.Unlock()
			go func() {
				g.serve(c)
				h.mu.Lock()
				delete(g.conns, c)
				h.mu.Unlock()
				c.Close()
			}()
		}
	}()
}

// close ends a machine's listener and connections, as its end would. It is called with the lock.
func (g *guest) close() {
	if g.fd >= 0 {
		syscall.Close(g.fd)
		g.fd = -1
	}
	if g.ln != nil {
		g.ln.Close()
		g.ln = nil
	}
	for c := range g.conns {
		c.Close()
	}
}

// http returns a service for HTTP, changed by edit.
func httpService(edit func(*machine.Service)) machine.Service {
	port := 443
	s := machine.Service{Protocol: "tcp", Ports: []machine.Port{{Port: &port, Handlers: []string{"tls", "http"}}}}
	if edit != nil {
		edit(&s)
	}
	return s
}

// add makes a machine that is in a state. Its port is free, or one that other machines of the service have already.
func (h *host) add(app, id string, state machine.State, s machine.Service, serve func(net.Conn)) *guest {
	return h.addWith(app, id, state, s, serve, nil)
}

func (h *host) addWith(app, id string, state machine.State, s machine.Service, serve func(net.Conn),
	metadata map[string]string) *guest {
	h.mu.Lock()
	g := &guest{serve: serve, fd: -1, port: s.InternalPort}
	g.reserve(h.t)
	s.InternalPort = g.port
	g.Machine = machine.Machine{ID: id, App: app, Name: id, State: machine.Stopped, Region: "here", InstanceID: "i0",
		Worker: h.id, UpdatedAt: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
		Config: &machine.Config{Image: machine.HostImage, Services: []machine.Service{s}, Metadata: metadata}}
	h.machines[id] = g
	if g.State = state; state == machine.Started {
		g.listen(h.t, h)
	}
	m := g.Machine
	h.mu.Unlock()
	h.own.Machine(&m)
	return g
}

// set changes the state that the fleet and the worker tell of a machine.
func (h *host) set(id string, state machine.State) {
	h.mu.Lock()
	g := h.machines[id]
	g.State = state
	g.InstanceID = "i" + strconv.Itoa(h.starts)
	h.tell(g)
}

// tell tells those who watch of a machine, and the fleet. It is called with the lock, and unlocks it.
func (h *host) tell(g *guest) {
	m := g.Machine
	close(h.changed)
	h.changed = make(chan struct{})
	h.mu.Unlock()
	h.own.Machine(&m)
}

// Watch calls f with a machine after each change.
func (h *host) Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error {
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		m, err := h.Machine(ctx, app, id)
		if err != nil || !f(m) {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *host) ID() cluster.WorkerID { return h.id }

func (h *host) Machine(_ context.Context, app, id string) (*machine.Machine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.machines[id]
	if g == nil || g.App != app {
		return nil, fault.New(fault.NotFound, "machine_not_found", "there is no machine %s", id)
	}
	m := g.Machine
	return &m, nil
}

func (h *host) Do(ctx context.Context, c lifecycle.Command) (out lifecycle.Outcome, err error) {
	h.mu.Lock()
	g, slow, failed := h.machines[c.Machine], h.slow, h.fail
	out.Previous = g.State
	if c.Verb == lifecycle.Start {
		h.starts++
	} else {
		h.stops++
	}
	h.mu.Unlock()
	if c.Source != machine.SourceProxy {
		h.t.Errorf("a command's source is %q", c.Source)
	}
	if c.Verb == lifecycle.Start {
		if slow != nil {
			select {
			case <-slow:
			case <-ctx.Done():
				return out, ctx.Err()
			}
		}
		if failed != nil {
			return out, failed
		}
		h.mu.Lock()
		if !g.silent && g.ln == nil {
			g.listen(h.t, h)
		}
		h.mu.Unlock()
		h.set(c.Machine, machine.Started)
		if g.started != nil {
			out.Machine, err = h.Machine(ctx, g.App, c.Machine)
			g.started()
			return out, err
		}
	} else {
		h.set(c.Machine, machine.Stopping)
		h.mu.Lock()
		g.close()
		g.reserve(h.t)
		h.mu.Unlock()
		if c.Verb == lifecycle.Suspend {
			h.set(c.Machine, machine.Suspended)
		} else {
			h.set(c.Machine, machine.Stopped)
		}
	}
	out.Machine, err = h.Machine(ctx, g.App, c.Machine)
	return out, err
}

// Halted reports whether a machine is stopped by a signal.
func (h *host) Halted(_ context.Context, id string, port int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.machines[id]
	return g != nil && g.halted && g.port == port
}

// CheckNow has a machine checked that has checks: see guest.check.
func (h *host) CheckNow(id string) {
	h.mu.Lock()
	g := h.machines[id]
	check := g.check
	h.mu.Unlock()
	if check != nil {
		check()
	}
}

// Logs gives what a machine wrote.
func (h *host) Logs(_ context.Context, _, id string, _ machine.LogQuery, emit func(machine.LogLine) error) error {
	h.mu.Lock()
	lines := h.machines[id].wrote
	h.mu.Unlock()
	for _, text := range lines {
		if err := emit(machine.LogLine{Text: text}); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) count() (starts, stops int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts, h.stops
}

// says serves HTTP on one connection: the name, and what the request was.
func says(name string) func(net.Conn) {
	return handles(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", name, r.Method, r.URL.Path, body)
	})
}

// one is a listener that has one connection.
type one struct {
	c    net.Conn
	once sync.Once
	end  chan struct{}
}

func (o *one) Accept() (c net.Conn, err error) {
	o.once.Do(func() { c = o.c })
	if c != nil {
		return c, nil
	}
	<-o.end
	return nil, net.ErrClosed
}
func (o *one) Close() error   { return nil }
func (o *one) Addr() net.Addr { return o.c.LocalAddr() }

// handles serves HTTP, 1 and 2 in the clear, on one connection.
func handles(h http.HandlerFunc) func(net.Conn) {
	return func(c net.Conn) {
		o := &one{c: c, end: make(chan struct{})}
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetUnencryptedHTTP2(true)
		s := &http.Server{Handler: h, Protocols: protocols}
		var once sync.Once
		s.ConnState = func(_ net.Conn, st http.ConnState) {
			if st == http.StateClosed || st == http.StateHijacked {
				once.Do(func() { close(o.end) })
			}
		}
		_ = s.Serve(o)
	}
}

// lines collects what is written of the access log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rig is a member: a fleet, a worker, a proxy and its door.
type rig struct {
	t     *testing.T
	fleet *fleet.Fleet
	host  *host
	proxy *proxy.Proxy
	addr  string
	log   lines
	ctx   context.Context //nolint:containedctx // of the proxy
	idle  int             // connections without a request at most; 0: as many as the process has places for
}

func newRig(t *testing.T, edit func(*proxy.Options)) *rig {
	t.Helper()
	r := &rig{t: t, fleet: fleet.New()}
	r.host = newHost(t, r.fleet, "w1")
	o := proxy.Options{
		Fleet:   r.fleet,
		Region:  "here",
		Workers: []proxy.Worker{r.host},
		Domains: []string{"localhost"},
		Hold:    waittest.Patience,
		Access:  &r.log,
	}
	if edit != nil {
		edit(&o)
	}
	r.run(o)
	return r
}

func (r *rig) run(o proxy.Options) {
	r.t.Helper()
	r.proxy = proxy.New(o)
	if r.idle > 0 {
		r.proxy.BoundIdle(r.idle)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	r.ctx = ctx
	ln := listen(r.t)
	r.addr = ln.Addr().String()
	var all sync.WaitGroup
	all.Go(func() { _ = r.proxy.Run(ctx) })
	all.Go(func() { _ = r.proxy.ServeHTTPAt(ctx, ln, nil) })
	r.t.Cleanup(func() { cancel(); all.Wait() })
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// far leads one proxy to others, without TLS.
type far map[cluster.WorkerID]string

func (f far) DialProxy(ctx context.Context, id cluster.WorkerID) (net.Conn, error) {
	addr, known := f[id]
	if !known {
		return nil, errors.New("no such member")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// behind makes another member, of which the first one's fleet knows, and returns its host.
func (r *rig) behind(id cluster.WorkerID, to far) *rig {
	r.t.Helper()
	x := &rig{t: r.t, fleet: fleet.New()}
	x.host = newHost(r.t, x.fleet, id)
	x.run(
		proxy.Options{
			Fleet:   x.fleet,
			Region:  "there",
			Workers: []proxy.Worker{x.host},
			Domains: []string{"localhost"},
			Hold:    waittest.Patience,
			Access:  &x.log,
		},
	)
	s := httptest.NewServer(x.proxy.Members())
	r.t.Cleanup(s.Close)
	to[id] = s.Listener.Addr().String()
	r.fleet.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: id, State: cluster.MemberAlive, Since: time.Now(), Addr: to[id]})
		e.Record(cluster.Record{Worker: id}, 0)
	})
	return x
}

// knows has a member's fleet know a machine of another host.
func (r *rig) knows(g *guest, state machine.State) {
	m := fleet.Summary(&g.Machine)
	m.State = state
	r.fleet.Update(func(e *fleet.Edit) { e.Machine(m) })
}

// connect returns a connection to the door, on which bytes are sent as they are.
func (r *rig) connect() *hoptest.Client {
	r.t.Helper()
	return hoptest.Connect(r.t, r.addr)
}

// get asks for a path of an app, with fields.
func (r *rig) get(app, path string, fields ...string) (*http.Response, string) {
	r.t.Helper()
	return r.do("GET", app, path, "", fields...)
}

func (r *rig) do(method, app, path, body string, fields ...string) (*http.Response, string) {
	r.t.Helper()
	c := r.connect()
	defer c.Close()
	head := method + " " + path + " HTTP/1.1\r\nHost: " + app + ".localhost\r\n"
	for _, f := range fields {
		head += f + "\r\n"
	}
	if body != "" {
		head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	c.Send(head + "\r\n" + body)
	return c.Answer(method)
}

func withFar(to far) func(*proxy.Options) { return func(o *proxy.Options) { o.Far = to } }

// listenFor has a socket listen with a short queue.
func listenFor(fd, queue int) error { return syscall.Listen(fd, queue) }
