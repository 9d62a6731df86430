package hostnet_test

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

func publishing(machine string, ports ...netplan.Port) *netplan.Network {
	p := plan("a", machine)
	p.Publish = ports
	return p
}

// TestPublishedPortIsOpenAtItsAddressOnly: a port of one address of the host is reached at that address alone, and one of its loopback
// from the host alone: neither from outside, also where a neighbour sends to 127.0.0.1, nor from containers. The same
// holds once the rules were flushed and laid again.
func TestPublishedPortIsOpenAtItsAddressOnly(t *testing.T) {
	h := apart(t)
	w := world(t, h)
	h.run("ip", "addr", "add", "203.0.113.7/24", "dev", "wan")
	n := hostnet.New("souk-t")
	inside, other := inner(t), inner(t)
	loop := netip.MustParseAddr("127.0.0.1")
	_, err := n.Attach(inside.pid, "a", publishing("a",
		netplan.Port{Address: loop, Host: 7000, To: 80},
		netplan.Port{Address: netip.MustParseAddr("203.0.113.7"), Host: 7000, To: 81},
		netplan.Port{Address: netip.MustParseAddr("2001:db8::1"), Host: 7001, To: 80},
		netplan.Port{Host: 7002, To: 80}))
	must(t, err)
	_, err = n.Attach(other.pid, "b", plan("a", "b"))
	must(t, err)
	inside.serve(80, "80")
	inside.serve(81, "81")
	// The neighbour has 127.0.0.1 be the host's.
	for _, argv := range [][]string{
		{"ip", "addr", "del", "127.0.0.1/8", "dev", "lo"}, {"ip", "route", "add", "127.0.0.1/32", "via", "203.0.113.1"},
		{"sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"},
		{"sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/lan/rp_filter"},
	} {
		w.run(argv...)
	}
	type try struct {
		name string
		who  *space
		to   string
		want string // "": not reached
	}
	right := func(when string) {
		t.Helper()
		for _, c := range []try{
			{"loopback, on the host", h, "127.0.0.1:7000", "80"},
			{"another address of loopback", h, "127.0.0.2:7000", ""},
			{"loopback of IPv6", h, "[::1]:7000", ""},
			{"another address, on the host", h, "203.0.113.1:7000", ""},
			{"another address, from outside", w, "203.0.113.1:7000", ""},
			{"another address of IPv6, from outside", w, "[2001:db8::1]:7000", ""},
			{"loopback, from a neighbour", w, "127.0.0.1:7000", ""},
			{"all addresses: the neighbour does get there", w, "127.0.0.1:7002", "80"},
			{"loopback, from a container", other, "127.0.0.1:7000", ""},
			{"another address, from a container", other, "203.0.113.1:7000", ""},
			{"one address, on the host", h, "203.0.113.7:7000", "81"},
			{"one address, from outside", w, "203.0.113.7:7000", "81"},
			{"one address, from a container", other, "203.0.113.7:7000", "81"},
			{"one address of IPv6, from outside", w, "[2001:db8::1]:7001", "80"},
			{"its port at another address", w, "203.0.113.1:7001", ""},
			{"all addresses", w, "203.0.113.1:7002", "80"},
		} {
			if got, _ := c.who.get(c.to); got != c.want {
				t.Errorf("%s, %s: %s answers %q, want %q", when, c.name, c.to, got, c.want)
			}
		}
	}
	right("at first")
	h.run("nft", "flush", "ruleset")
	if mended, err := n.Mend(); !mended || err != nil {
		t.Errorf("mended is %v, %v", mended, err)
	}
	right("after a flush")
	for _, m := range []string{"at4", "at6"} {
		h.run("nft", "flush", "map", "inet", "souk-t", m)
		if mended, err := n.Mend(); !mended || err != nil {
			t.Errorf("after a flush of %s: mended is %v, %v", m, mended, err)
		}
	}
	if t.Failed() {
		t.Log(h.run("nft", "list", "ruleset"))
	}
}

// TestUDPPublishedAtLoopbackStaysLocal: a packet comes to the machine from the host's loopback, and none at another address.
func TestUDPPublishedAtLoopbackStaysLocal(t *testing.T) {
	h := apart(t)
	world(t, h)
	c := inner(t)
	_, err := hostnet.New("souk-t").Attach(c.pid, "a", publishing("a",
		netplan.Port{UDP: true, Address: netip.MustParseAddr("127.0.0.1"), Host: 5300, To: 53}))
	must(t, err)
	var hears *net.UDPConn
	c.in(func() { hears, err = net.ListenUDP("udp", &net.UDPAddr{Port: 53}) })
	must(t, err)
	defer hears.Close()
	for to, want := range map[string]bool{"127.0.0.1:5300": true, "203.0.113.1:5300": false} {
		var says net.Conn
		h.in(func() { says, err = net.Dial("udp", to) })
		must(t, err)
		_, err = says.Write([]byte("x"))
		must(t, err)
		must(t, hears.SetReadDeadline(time.Now().Add(time.Second)))
		if _, err := hears.Read(make([]byte, 1)); (err == nil) != want {
			t.Errorf("%s: %v", to, err)
		}
		must(t, says.Close())
	}
}

// TestOverlappingPortsConflict: one port of all addresses and of one is a conflict, of two addresses it is none, also between
// workers of a host, with programs, and over the machine's own next container. A host has not every address.
func TestOverlappingPortsConflict(t *testing.T) {
	h := apart(t)
	world(t, h)
	h.in(func() {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(203, 0, 113, 1), Port: 9000})
		must(t, err)
		t.Cleanup(func() { must(t, ln.Close()) })
	})
	addr := netip.MustParseAddr
	one, all := inner(t), inner(t)
	n := hostnet.New("souk-t")
	_, err := n.Attach(one.pid, "one", publishing("one", netplan.Port{Address: addr("127.0.0.1"), Host: 8080, To: 80},
		netplan.Port{Address: addr("2001:db8::1"), Host: 8081, To: 80}))
	must(t, err)
	_, err = n.Attach(all.pid, "all", publishing("all", netplan.Port{Host: 8082, To: 80}))
	must(t, err)
	for i, c := range []struct {
		port netplan.Port
		code fault.Code
	}{
		{netplan.Port{Host: 8080, To: 1}, "port_taken"},
		{netplan.Port{Address: addr("127.0.0.1"), Host: 8080, To: 1}, "port_taken"},
		{netplan.Port{Address: addr("127.0.0.2"), Host: 8080, To: 1}, ""},
		{netplan.Port{UDP: true, Host: 8080, To: 1}, ""},
		{netplan.Port{Host: 8081, To: 1}, "port_taken"},
		{netplan.Port{Address: addr("127.0.0.1"), Host: 8081, To: 1}, ""},
		{netplan.Port{Address: addr("127.0.0.1"), Host: 8082, To: 1}, "port_taken"},
		{netplan.Port{Address: addr("127.0.0.1"), Host: 9000, To: 1}, ""},
		{netplan.Port{Address: addr("203.0.113.1"), Host: 9000, To: 1}, "port_taken"},
		{netplan.Port{Address: addr("198.51.100.9"), Host: 9001, To: 1}, "port_taken"},
	} {
		name := "c" + strconv.Itoa(i)
		s, next := inner(t), hostnet.New("souk-other")
		_, err := next.Attach(s.pid, name, publishing(name, c.port))
		if fault.CodeOf(err) != c.code {
			t.Errorf("%v: %v, want %q", c.port, err, c.code)
		}
		must(t, next.Detach(name))
	}
	again := inner(t)
	_, err = n.Attach(again.pid, "one anew",
		publishing("one", netplan.Port{Address: addr("127.0.0.1"), Host: 8080, To: 80}))
	must(t, err)
	again.serve(80, "anew")
	if got, err := h.get("127.0.0.1:8080"); got != "anew" {
		t.Errorf("%q, %v", got, err)
	}
	must(t, n.Detach("one anew"))
	must(t, n.Detach("one"))
	must(t, n.Detach("all"))
	bad := publishing("x", netplan.Port{Address: netip.IPv6Loopback(), Host: 1, To: 1})
	if _, err := n.Attach(unix.Getpid(), "x", bad); !fault.Is(err, fault.Invalid) {
		t.Errorf("::1: %v", err)
	}
	if left := h.run("nft", "list", "map", "inet", "souk-t", "at6"); strings.Contains(left, "elements") {
		t.Errorf("ports of containers that are gone:\n%s", left)
	}
}
