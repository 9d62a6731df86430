package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// entrance is where machines of the rig's host ask for others.
type entrance struct {
	r    *rig
	at   string
	next chan proxy.Inside
}

func (r *rig) inside() *entrance {
	r.t.Helper()
	ln := listen(r.t)
	e := &entrance{r: r, at: ln.Addr().String(), next: make(chan proxy.Inside, 1)}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.proxy.ServeInside(ctx, func(net.Conn) (proxy.Inside, error) { return <-e.next, nil }, ln)
	}()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	return e
}

func (e *entrance) dial(to proxy.Inside) *net.TCPConn {
	e.r.t.Helper()
	c, err := e.try(to)
	if err != nil {
		e.r.t.Fatal(err)
	}
	return c
}

// try is dial for who may be refused, which may be seen at once.
func (e *entrance) try(to proxy.Inside) (*net.TCPConn, error) {
	e.next <- to
	c, err := net.Dial("tcp", e.at)
	if err != nil {
		return nil, err
	}
	e.r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(waittest.Patience))
	return c.(*net.TCPConn), nil
}

// ask says something, ends its half, and returns all of the answer.
func (e *entrance) ask(to proxy.Inside) (string, error) {
	c, err := e.try(to)
	if err != nil {
		return "", err
	}
	_, said := io.WriteString(c, "hello") // a reset is told once: to whatever asks first
	said = errors.Join(said, c.CloseWrite())
	all, err := io.ReadAll(c)
	return string(all), errors.Join(err, said)
}

// lets has a machine let other apps in, and be one of a group.
func (h *host) lets(id, group string, from ...string) {
	h.mu.Lock()
	g := h.machines[id]
	c := *g.Config
	c.Network = &machine.Network{From: from}
	g.Config = &c
	if group != "" {
		g.Replica = &machine.Replica{Group: group}
	}
	m := g.Machine
	h.mu.Unlock()
	h.own.Machine(&m)
}

// hears answers with its name and all that it has heard, when that has ended.
func hears(name string) func(net.Conn) {
	return func(c net.Conn) {
		all, _ := io.ReadAll(c)
		_, _ = io.WriteString(c, name+" "+string(all))
	}
}

// TestInternalPortWakesSleepingMachines: a connection to an internal port of an app or group wakes a sleeping machine,
// here or at another member, and each direction ends by itself. A caller that is not allowed wakes nothing, and the
// log says what would allow it.
func TestInternalPortWakesSleepingMachines(t *testing.T) {
	t.Parallel()
	to := far{}
	r := newRig(t, withFar(to))
	e := r.inside()
	x := r.behind("w2", to)
	near := r.host.add("shop", "m1", machine.Stopped, httpService(nil), hears("m1"))
	r.host.lets("m1", "web", "ask")
	away := x.host.add("there", "m2", machine.Stopped, httpService(nil), hears("m2"))
	x.host.lets("m2", "web", "ask")
	r.knows(away, machine.Stopped)
	for _, c := range []struct {
		app, group, from string
		port             int
		want             string
		why              string
	}{
		{"shop", "", "other", near.port, "", "app shop does not let machines of app other in; to " +
			`let them, set network = { from = [\"other\"] }`},
		{"there", "", "other", away.port, "", "app there does not let machines of app other in"},
		{"shop", "db", "shop", near.port, "", "app shop has no service with the internal port"},
		{"shop", "", "ask", near.port + 1, "", "app shop has no service with the internal port"},
		{"shop", "", "ask", near.port, "m1 hello", ""},
		{"shop", "web", "shop", near.port, "m1 hello", ""},
		{"there", "web", "ask", away.port, "m2 hello", ""},
	} {
		asked := proxy.Inside{App: c.app, Group: c.group, Port: c.port, From: c.from, Machine: "a1"}
		got, err := e.ask(asked)
		if got != c.want || (c.why == "") != (err == nil) || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%+v: %q, %v", asked, got, err)
		}
		if c.why != "" {
			waittest.Until(t, "the log says why: "+c.why, func() bool {
				return strings.Contains(r.log.String(), c.why)
			})
		}
		starts, _ := r.host.count()
		others, _ := x.host.count()
		if c.why != "" && starts+others != 0 {
			t.Errorf("%+v: somebody was woken", asked)
		}
	}
}

// TestInternalConnectionKeepsAMachineUp: such a connection counts as what its machine has to do, so the machine does not rest, also
// where the service is one of HTTP; a stop does not wait for its end, which may never come. It is so here and at another
// member.
func TestInternalConnectionKeepsAMachineUp(t *testing.T) {
	t.Parallel()
	to := far{}
	r := newRig(t, withFar(to))
	e := r.inside()
	for _, x := range []*rig{r, r.behind("w2", to)} {
		app := string(x.host.ID())
		g := x.host.add(app, "m"+app, machine.Stopped, httpService(restsAfter(time.Second)),
			func(c net.Conn) { _, _ = io.Copy(c, c) })
		if x != r {
			r.knows(g, machine.Stopped)
		}
		c := e.dial(proxy.Inside{App: app, Port: g.port, From: app})
		b := make([]byte, 1)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(app, err)
		}
		if n := x.proxy.Load(g.ID); n != 1 {
			t.Errorf("%s: its load is %d", app, n)
		}
		if err := x.proxy.Rest(t.Context(), app, g.ID); err != nil {
			t.Error(err)
		}
		if _, stops := x.host.count(); stops != 0 {
			t.Errorf("%s rests with a connection", app)
		}
		began := time.Now()
		x.proxy.Drain(t.Context(), app, g.ID, time.Hour)
		if took := time.Since(began); took > waittest.Patience/2 {
			t.Errorf("%s: a stop waits for the connection", app)
		}
		_ = c.Close()
		waittest.Until(t, "its load has gone", func() bool { return x.proxy.Load(g.ID) == 0 })
	}
}

// TestMachineIsNotRoutedToItself: who asks for its own app gets another machine of it, where there is one that can serve.
func TestMachineIsNotRoutedToItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	e := r.inside()
	g := r.host.add("shop", "m1", machine.Started, httpService(nil), hears("m1"))
	ask := func() string {
		t.Helper()
		got, err := e.ask(proxy.Inside{App: "shop", Port: g.port, From: "shop", Machine: "m1"})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := ask(); got != "m1 hello" {
		t.Errorf("the only one is told %q", got)
	}
	second := httpService(nil)
	second.InternalPort = g.port
	r.host.mu.Lock()
	r.host.machines["m1"].close() // the other one has its port, on the loopback that they share
	r.host.mu.Unlock()
	r.host.add("shop", "m2", machine.Started, second, hears("m2"))
	for range 20 {
		if got := ask(); got != "m2 hello" {
			t.Fatalf("it is led to %q", got)
		}
	}
}

// TestPortOfAnEmptyKeptGroupWaits: while a group that is kept has no machine, its port is one that may be asked for, and a connection
// waits for the machine; who will not be let in does not wait.
func TestPortOfAnEmptyKeptGroupWaits(t *testing.T) {
	t.Parallel()
	var kept atomic.Pointer[proxy.Kept]
	r := newRig(t, func(o *proxy.Options) {
		o.Kept = func(app string) (k proxy.Kept) {
			if p := kept.Load(); p != nil && app == "shop" {
				k = *p
			}
			return k
		}
	})
	e := r.inside()
	g := r.host.add("shop", "m1", machine.Started, httpService(nil), hears("m1"))
	service := g.Config.Services
	r.host.own.Gone("m1")
	if ports := r.proxy.PortsInside("shop", ""); len(ports) != 0 {
		t.Errorf("an app without machines has ports: %v", ports)
	}
	kept.Store(&proxy.Kept{Groups: []proxy.KeptGroup{{Name: "web", Services: service, From: []string{"ask"}}}})
	for group, want := range map[string]int{"": 1, "web": 1, "db": 0} {
		if ports := r.proxy.PortsInside("shop", group); len(ports) != want || want > 0 && int(ports[0]) != g.port {
			t.Errorf("group %q has ports %v", group, ports)
		}
	}
	if _, err := e.ask(proxy.Inside{App: "shop", Port: g.port, From: "other"}); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	got := make(chan string, 1)
	c := e.dial(proxy.Inside{App: "shop", Group: "web", Port: g.port, From: "ask"})
	go func() {
		_, _ = io.WriteString(c, "hello")
		_ = c.CloseWrite()
		all, err := io.ReadAll(c)
		if err != nil {
			all = []byte(err.Error())
		}
		got <- string(all)
	}()
	r.host.lets("m1", "web", "ask")
	if s := <-got; s != "m1 hello" {
		t.Error(s)
	}
}

// TestOneMachineCannotTakeAllConnections: who opens connections without end leaves places to others.
func TestOneMachineCannotTakeAllConnections(t *testing.T) {
	const a, b = "a", "b"
	enter, leave := proxy.InsidePlaces(80)
	for i := range 20 {
		if in := enter(a); in != (i < 10) {
			t.Errorf("connection %d of one machine: %v", i, in)
		}
	}
	for i := range 80 {
		if in := enter(fmt.Sprint(i)); in != (i < 70) {
			t.Errorf("connection %d of others: %v", i, in)
		}
	}
	leave(a)
	if !enter(b) || enter(a) {
		t.Error("a place that is left is not the next one's")
	}
}
