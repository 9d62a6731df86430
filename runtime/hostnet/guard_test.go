package hostnet_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// TestRemovedRulesAreRestored: what somebody removes of the host's rules is laid again, with the ports of what runs, and
// what a container had begun with the host meanwhile goes no further. The metadata of clouds are refused all the while.
func TestRemovedRulesAreRestored(t *testing.T) {
	h := apart(t)
	w := world(t, h)
	h.serve(8000, "host")
	n := hostnet.New("souk-t")
	a, b := inner(t), inner(t)
	pa := plan("a", "a")
	pa.Publish = []netplan.Port{{Host: 8080, To: 80}}
	at, err := n.Attach(a.pid, "a", pa)
	must(t, err)
	_, err = n.Attach(b.pid, "b", plan("b", "b"))
	must(t, err)
	a.serve(80, "a")
	type try struct {
		who      *space
		to, want string
	}
	six := []try{{a, "[2001:db8::1]:8000", ""}, {a, "[fd00:ec2::254]:80", ""}} // one takes a second
	right := func(when string, more ...try) {
		t.Helper()
		for _, c := range append([]try{
			{a, "203.0.113.1:8000", ""}, {a, "203.0.113.2:80", "world"}, {a, "169.254.169.254:80", ""},
			{w, "203.0.113.1:8080", "a"}, {w, "[2001:db8::1]:8080", "a"}, {h, "127.0.0.1:8080", "a"},
		}, more...) {
			if got, _ := c.who.get(c.to); got != c.want {
				t.Errorf("%s: %s answers %q, want %q", when, c.to, got, c.want)
			}
		}
	}
	mend := func(when string, want bool) {
		t.Helper()
		if mended, err := n.Mend(); mended != want || err != nil {
			t.Errorf("%s: mended is %v, %v", when, mended, err)
		}
	}
	right("at first", six...)
	mend("at first", false)

	h.run("nft", "flush", "ruleset")
	if got, _ := a.get("203.0.113.1:8000"); got != "host" {
		t.Errorf("without rules the host answers %q: the test shows nothing", got)
	}
	h.run("sh", "-c", "nft add table ip mine; "+
		"nft add chain ip mine out '{ type nat hook postrouting priority 100; }'; "+
		"nft add rule ip mine out oifname wan masquerade")
	if got, _ := a.get("169.254.169.254:80"); got != "" {
		t.Errorf("without rules of the host the metadata answer %q", got)
	}
	if lost, err := hostnet.Unguarded(); !slices.Equal(lost, []string{"souk-t"}) || err != nil {
		t.Errorf("unguarded are %q, %v", lost, err)
	}
	kept := h.echo(8001)
	var begun net.Conn
	a.in(func() { begun, err = net.Dial("tcp", "203.0.113.1:8001") })
	must(t, err)
	defer begun.Close()
	if !echoes(begun) {
		t.Fatal("the connection that was begun without rules has no answer")
	}
	mend("after the flush", true)
	right("after the flush", six...)
	mend("once more", false)
	if echoes(begun) {
		t.Error("a connection that was begun without rules goes on")
	}
	kept()
	if lost, err := hostnet.Unguarded(); len(lost) > 0 || err != nil {
		t.Errorf("unguarded are %q, %v", lost, err)
	}

	for _, part := range [][]string{
		{"nft", "flush", "chain", "inet", "souk-t", "input"},
		{"nft", "delete", "table", "inet", "souk-t"},
		{"nft", "flush", "map", "inet", "souk-t", "ports4"},
		{"nft", "flush", "table", "inet", "souk-t"},
		{"sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"},
	} {
		h.run(part...)
		mend(part[len(part)-1], true)
		right(part[len(part)-1])
	}

	h.run("nft", "flush", "ruleset")
	c := inner(t)
	_, err = n.Attach(c.pid, "c", plan("b", "c"))
	must(t, err)
	right("after another has come")

	h.run("nft", "flush", "ruleset") // while no process looks after them
	n = hostnet.New("souk-t")
	mend("of nobody's", false)
	n.Keep("a", pa, at)
	mend("of who has taken over", true)
	right("of who has taken over")
	must(t, n.Detach("a"))
	must(t, n.Remove())
	mend("with no container", false)
}

// echo answers on a port of the host with what it gets, until it is closed.
func (s *space) echo(port int) (closed func()) {
	s.t.Helper()
	var ln *net.TCPListener
	s.in(func() {
		var err error
		ln, err = net.ListenTCP("tcp", &net.TCPAddr{Port: port})
		must(s.t, err)
	})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // it ends with the test
				_ = c.Close()
			}()
		}
	}()
	return func() { must(s.t, ln.Close()) }
}

// echoes reports whether something that is sent comes back within a second.
func echoes(c net.Conn) bool {
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	_, werr := c.Write([]byte("x"))
	_, rerr := c.Read(make([]byte, 1))
	return werr == nil && rerr == nil
}

// TestWatchReportsRemovedTableParts: the removal of any part of a table is reported to the watchers of that table
// only.
func TestWatchReportsRemovedTableParts(t *testing.T) {
	h := apart(t)
	n := hostnet.New("souk-t")
	a := inner(t)
	_, err := n.Attach(a.pid, "a", plan("a", "a"))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	watch := func(table string) *atomic.Int64 {
		told := new(atomic.Int64)
		all.Go(func() {
			runtime.LockOSThread() // it ends with the goroutine
			if err := netns.Set(h.ns); err != nil {
				t.Error(err)
				return
			}
			hostnet.Watch(ctx, table, func() { told.Add(1) })
		})
		waittest.Until(t, "it hears", func() bool { return told.Load() == 1 })
		return told
	}
	told, other := watch("souk-t"), watch("souk-other")
	for _, c := range [][]string{
		{"nft", "flush", "chain", "inet", "souk-t", "input"},
		{"nft", "delete", "table", "inet", "souk-t"},
		{"nft", "flush", "ruleset"},
	} {
		before := told.Load()
		h.run(c...)
		waittest.Until(t, strings.Join(c, " "), func() bool { return told.Load() > before })
		if mended, err := n.Mend(); !mended || err != nil {
			t.Fatal(mended, err)
		}
	}
	if n := other.Load(); n != 1 {
		t.Errorf("who watches another table is told %d times", n-1)
	}
}

// TestPortsOfARemovedWorkerAreFree: the ports of a worker that was removed without cleaning up are free, and its rules
// count as unused.
func TestPortsOfARemovedWorkerAreFree(t *testing.T) {
	h := apart(t)
	w := world(t, h)
	is := func(name string) bool { return strings.HasPrefix(name, "souk-") }
	gone, stays, next := inner(t), inner(t), inner(t)
	published := func(name string, port uint16) *netplan.Network {
		p := plan("a", name)
		p.Publish = []netplan.Port{{Host: port, To: 80}}
		return p
	}
	_, err := hostnet.New("souk-gone").Attach(gone.pid, "gone", published("gone", 8088))
	must(t, err)
	_, err = hostnet.New("souk-stays").Attach(stays.pid, "stays", published("stays", 8089))
	must(t, err)
	stays.serve(80, "stays")
	gone.stop()
	waittest.Until(t, "its link is gone", func() bool { return strings.Count(h.run("ip", "-o", "link"), ": sk") == 1 })
	if unused, err := hostnet.Unused(is); !slices.Equal(unused, []string{"souk-gone"}) || err != nil {
		t.Errorf("unused are %q, %v", unused, err)
	}
	want := published("next", 8088)
	if used, err := hostnet.PortsInUse(want.Publish, want.Address); len(used) > 0 || err != nil {
		t.Errorf("in use are %v, %v", used, err)
	}
	n := hostnet.New("souk-next")
	_, err = n.Attach(next.pid, "next", published("next", 8088))
	must(t, err)
	next.serve(80, "next")
	for port, want := range map[string]string{"8088": "next", "8089": "stays"} {
		if got, _ := w.get("203.0.113.1:" + port); got != want {
			t.Errorf("port %s answers %q, want %q", port, got, want)
		}
	}
	must(t, hostnet.RemoveTable("souk-gone"))
	if unused, err := hostnet.Unused(is); len(unused) > 0 || err != nil {
		t.Errorf("unused are %q, %v", unused, err)
	}
}

// TestUDPClientReachesTheNextMachine: one that sends by UDP from one port reaches a machine that comes later, and the one after
// that, although the kernel knows where its packets went before.
func TestUDPClientReachesTheNextMachine(t *testing.T) {
	h := apart(t)
	w := world(t, h)
	n := hostnet.New("souk-t")
	clients := map[string]*net.UDPConn{}
	dial := func(name string, from *space, to string) {
		from.in(func() {
			c, err := net.Dial("udp", to)
			must(t, err)
			clients[name] = c.(*net.UDPConn)
			t.Cleanup(func() { _ = c.Close() })
		})
	}
	dial("outside", w, "203.0.113.1:26000")
	dial("outside by IPv6", w, "[2001:db8::1]:26000")
	dial("the host", h, "203.0.113.1:26000")
	ask := func(c *net.UDPConn) string {
		_, _ = c.Write([]byte("x")) // that nobody is there is said now or with the next
		must(t, c.SetReadDeadline(time.Now().Add(time.Second/5)))
		b := make([]byte, 100)
		got, _ := c.Read(b)
		return string(b[:got])
	}
	for _, c := range clients {
		if got := ask(c); got != "" {
			t.Errorf("nobody answers %q", got)
		}
	}
	for _, name := range []string{"first", "second"} {
		s := inner(t)
		p := plan("a", name)
		p.Publish = []netplan.Port{{UDP: true, Host: 26000, To: 5555}}
		_, err := n.Attach(s.pid, name, p)
		must(t, err)
		s.in(func() {
			ears, err := net.ListenUDP("udp", &net.UDPAddr{Port: 5555})
			must(t, err)
			t.Cleanup(func() { _ = ears.Close() })
			go func() {
				b := make([]byte, 100)
				for {
					_, from, err := ears.ReadFromUDP(b)
					if err != nil {
						return
					}
					_, _ = ears.WriteToUDP([]byte(name), from)
				}
			}()
		})
		for who, c := range clients {
			waittest.See(t, who+" is answered", func() string { return ask(c) },
				func(got string) bool { return got == name })
		}
		s.stop()
		must(t, n.Detach(name))
		for _, c := range clients {
			_ = ask(c) // it goes on
		}
	}
}
