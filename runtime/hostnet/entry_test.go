package hostnet_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/hostnet"
)

// TestEntryPortsReachTheServerAlone: what containers of a souk send to open ports of Entries comes to its server, which learns where it was
// sent to and by which container. Others are refused at once, as where nothing listens, so that a client goes on to
// another address. Containers of another souk and the host are not led there.
func TestEntryPortsReachTheServerAlone(t *testing.T) {
	h := apart(t)
	needs.Programs(t, "ip")
	n := hostnet.New("souk-t")
	in, at := map[string]*space{}, map[string]hostnet.Addresses{}
	for _, id := range []string{"open", "closed", "foreign"} {
		p := plan("a", id)
		p.Closed = id == "closed"
		if id == "foreign" {
			p.Realm = "of another souk"
		}
		of := n
		if id == "foreign" {
			of = hostnet.New("souk-f")
		}
		s := inner(t)
		a, err := of.Attach(s.pid, id, p)
		must(t, err)
		in[id], at[id] = s, a
	}
	server := func(addr string) netip.AddrPort {
		ln, err := net.Listen("tcp", addr) // on this thread
		must(t, err)
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				to, err := hostnet.Asked(c.(*net.TCPConn))
				_, _ = fmt.Fprint(c, to, " ", c.RemoteAddr().(*net.TCPAddr).IP, " ", err)
				_ = c.Close()
			}
		}()
		return ln.Addr().(*net.TCPAddr).AddrPort()
	}
	at6, err := hostnet.HoldEntry6("")
	must(t, err)
	four, six := server("127.77.1.1:0"), server(netip.AddrPortFrom(at6, 0).String())
	first := hostnet.Entries.Addr().Next()
	open := []netip.AddrPort{netip.AddrPortFrom(first, 8080), netip.AddrPortFrom(first.Next(), 80)}
	before := hostnet.NewEntry(plan("a", "x"), four, netip.AddrPortFrom(six.Addr(), six.Port()+1))
	must(t, before.Apply(open, false)) // of an earlier process, which had another port
	e := hostnet.NewEntry(plan("a", "x"), four, six)
	must(t, e.Apply(open, false))
	one := func(when, from string, to netip.AddrPort, led bool) {
		t.Helper()
		began := time.Now()
		got, err := in[from].get(to.String())
		want := fmt.Sprint(to, " ", at[from].V4, " <nil>")
		if to.Addr().Is6() {
			want = fmt.Sprint(to, " ", at[from].V6, " <nil>")
		}
		switch took := time.Since(began); {
		case led && got != want:
			t.Errorf("%s: %s to %s: %q, %v; want %q", when, from, to, got, err, want)
		case !led && (!errors.Is(err, syscall.ECONNREFUSED) || took > 500*time.Millisecond):
			t.Errorf("%s: %s to %s is refused by %v, after %v", when, from, to, err, took)
		}
	}
	see := func(when, from string, to netip.AddrPort, led bool) {
		t.Helper()
		one(when, from, to, led)
		six := hostnet.Six(to.Addr())
		if back := hostnet.Four(six); back != to.Addr() || hostnet.Four(back) != back {
			t.Errorf("%s goes with %s, and that with %s", to.Addr(), six, back)
		}
		one(when, from, netip.AddrPortFrom(six, to.Port()), led)
	}
	all := func(when string) {
		t.Helper()
		for _, from := range []string{"open", "closed"} {
			for _, to := range open {
				see(when, from, to, true)
			}
			see(when, from, netip.AddrPortFrom(first, 80), false)
			see(when, from, netip.AddrPortFrom(first.Next().Next(), 80), false)
		}
	}
	all("at first")
	for name, s := range map[string]*space{"a container of another souk": in["foreign"], "the host": h} {
		s.in(func() {
			for _, at := range []netip.AddrPort{open[0], netip.AddrPortFrom(hostnet.Six(first), open[0].Port()), six} {
				to := at.String()
				if c, err := net.DialTimeout("tcp", to, 300*time.Millisecond); err == nil {
					t.Errorf("%s is led to %s", name, to)
					_ = c.Close()
				}
			}
		})
	}
	h.run("nft", "flush", "ruleset")
	if _, err := n.Mend(); err != nil {
		t.Fatal(err)
	}
	must(t, e.Apply(open, true))
	all("after a flush")
	open = open[1:]
	must(t, e.Apply(open, false))
	see("once it is shut", "open", netip.AddrPortFrom(first, 8080), false)
	all("with one port less")

	var owners hostnet.Owners
	for _, id := range []string{"open", "closed", "open"} {
		if got := owners.Of(at[id].V4); got != at[id].V6 {
			t.Errorf("%s is at %s, not %s", at[id].V4, at[id].V6, got)
		}
	}
	in["open"].stop()
	must(t, n.Detach("open"))
	if got := owners.Of(at["open"].V4); got.IsValid() {
		t.Errorf("the address of a container that is gone is of %s", got)
	}
	if has := h.run("ip", "-6", "addr", "show", "dev", "lo", "deprecated"); !strings.Contains(has, at6.String()) {
		t.Errorf("the host may speak by %s: %s", at6, has)
	}
	must(t, hostnet.NewEntry(plan("a", "x"), four).Apply(open, false)) // where there is no loopback by IPv6
	one("by IPv4 alone", "closed", open[0], true)
	one("by IPv4 alone", "closed", netip.AddrPortFrom(hostnet.Six(open[0].Addr()), open[0].Port()), false)
	must(t, e.Release())
	if has := h.run("ip", "-6", "addr", "show", "dev", "lo"); !strings.Contains(has, at6.String()) {
		t.Errorf("its address is gone, and rules lead to it: %s", has)
	}
	must(t, hostnet.RemoveEntry("")) // as another process does
	if has := h.run("nft", "list", "tables"); strings.Contains(has, "souk-in-") {
		t.Errorf("rules are left: %s", has)
	}
	if has := h.run("ip", "-6", "addr", "show", "dev", "lo"); strings.Contains(has, at6.String()) {
		t.Errorf("its address is left: %s", has)
	}
	must(t, e.Remove())
	_, err = hostnet.HoldEntry6("")
	must(t, err)
	must(t, e.Release())
	if has := h.run("ip", "-6", "addr", "show", "dev", "lo"); strings.Contains(has, at6.String()) {
		t.Errorf("its address is left without rules: %s", has)
	}
}
