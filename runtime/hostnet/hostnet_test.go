package hostnet_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// space is a network namespace, held by a process in it.
type space struct {
	t    *testing.T
	pid  int
	ns   netns.NsHandle
	stop func()
}

// apart puts the test into a network namespace of its own, which is its host. What it does never reaches the real one.
func apart(t *testing.T) *space {
	t.Helper()
	if os.Geteuid() != 0 {
		needs.Skip(t, errors.New("this needs root"))
	}
	needs.Programs(t, "busybox", "nft")
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	ns, err := netns.Get()
	must(t, err)
	t.Cleanup(func() { must(t, ns.Close()) })
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	return &space{t: t, ns: ns}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inner makes another namespace, as a container has one.
func inner(t *testing.T) *space {
	t.Helper()
	cmd := exec.Command("busybox", "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	ns, err := netns.GetFromPid(cmd.Process.Pid)
	must(t, err)
	s := &space{t: t, pid: cmd.Process.Pid, ns: ns}
	over := false
	s.stop = func() {
		if over {
			return
		}
		over = true
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		must(t, ns.Close())
	}
	t.Cleanup(s.stop)
	s.run("busybox", "ip", "link", "set", "lo", "up")
	return s
}

// in does something in the namespace.
func (s *space) in(f func()) {
	s.t.Helper()
	back, err := netns.Get()
	must(s.t, err)
	defer back.Close()
	must(s.t, netns.Set(s.ns))
	defer func() { must(s.t, netns.Set(back)) }()
	f()
}

// try runs a command there.
func (s *space) try(argv ...string) (out string, err error) {
	s.t.Helper()
	s.in(func() {
		var b []byte
		b, err = exec.Command(argv[0], argv[1:]...).CombinedOutput()
		out = strings.TrimSpace(string(b))
	})
	return out, err
}

func (s *space) run(argv ...string) string {
	s.t.Helper()
	out, err := s.try(argv...)
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return out
}

// serve answers on a port, with the name it is given.
func (s *space) serve(port int, name string) {
	s.t.Helper()
	s.in(func() {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port}) // on this thread
		must(s.t, err)
		s.t.Cleanup(func() { must(s.t, ln.Close()) })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_, err = c.Write([]byte(name))
				if err := errors.Join(err, c.Close()); err != nil {
					s.t.Log(err)
				}
			}
		}()
	})
}

// get connects to an address and port, and gives up after a while.
func (s *space) get(to string) (got string, err error) {
	s.t.Helper()
	s.in(func() {
		c, wrong := net.DialTimeout("tcp", to, 4*time.Second)
		if err = wrong; err != nil {
			return
		}
		defer c.Close()
		b, wrong := io.ReadAll(c)
		got, err = string(b), wrong
	})
	return got, err
}

var network = cluster.Network("test")

func plan(app, machine string) *netplan.Network {
	n := cluster.AppNetwork(network, app)
	return &netplan.Network{Cluster: network, App: n, Address: cluster.MachineAddress(n, machine)}
}

// world is what is outside the host: a server, and the metadata of a cloud.
func world(t *testing.T, host *space) *space {
	t.Helper()
	w := inner(t)
	v := netlink.NewVeth(netlink.LinkAttrs{Name: "wan", MTU: 1400, TxQLen: -1})
	v.PeerName, v.PeerNamespace = "lan", netlink.NsFd(w.ns)
	must(t, netlink.LinkAdd(v))
	for _, c := range []string{
		"ip addr add 203.0.113.1/24 dev wan", "ip -6 addr add 2001:db8::1/64 dev wan nodad", "ip link set wan up",
		"ip route add default via 203.0.113.2",
		"ip -6 route add default via 2001:db8::2",
	} {
		host.run(strings.Fields(c)...)
	}
	for _, c := range []string{
		"ip addr add 203.0.113.2/24 dev lan", "ip -6 addr add 2001:db8::2/64 dev lan nodad",
		"ip addr add 169.254.169.254/32 dev lo", "ip addr add fd00:ec2::254/128 dev lo nodad", "ip link set lan up",
	} {
		w.run(strings.Fields(c)...)
	}
	w.serve(80, "world")
	return w
}

// TestAppsOfOneHostAreIsolated: machines of two apps on one host reach their own app and apps that let them in, and no
// other.
func TestAppsOfOneHostAreIsolated(t *testing.T) {
	h := apart(t)
	w := world(t, h)
	h.serve(8000, "host")
	n := hostnet.New("souk-t")
	a1, a2, b, shut := inner(t), inner(t), inner(t), inner(t)
	at := map[*space]hostnet.Addresses{}
	attach := func(s *space, name string, p *netplan.Network) {
		t.Helper()
		got, err := n.Attach(s.pid, name, p)
		must(t, err)
		at[s] = got
	}
	published := plan("a", "a1")
	published.Publish = []netplan.Port{{Host: 8080, To: 80}}
	attach(a1, "a1", published)
	attach(a2, "a2", plan("a", "a2"))
	friendly := plan("b", "b")
	attach(b, "b", friendly)
	closed := plan("c", "c")
	closed.Closed, closed.Allow = true, []netip.Prefix{cluster.AppNetwork(network, "b")}
	attach(shut, "c", closed)
	for s, name := range map[*space]string{a1: "a1", a2: "a2", b: "b", shut: "c"} {
		s.serve(80, name)
	}
	v4 := func(s *space) string { return at[s].V4.String() + ":80" }
	v6 := func(s *space) string { return "[" + at[s].V6.String() + "]:80" }
	for _, c := range []struct {
		name string
		who  *space
		to   string
		want string // "": not reached
	}{
		{"its own app", a1, v6(a2), "a2"},
		{"its own app, back", a2, v6(a1), "a1"},
		{"another app", a1, v6(b), ""},
		{"another app, back", b, v6(a1), ""},
		{"another app by IPv4", b, v4(a1), ""},
		{"its own app by IPv4", a1, v4(a2), "a2"},
		{"an app that allows it", b, v6(shut), "c"},
		{"an app that allows another", a1, v6(shut), ""},
		{"who allows it, back", shut, v6(b), ""},
		{"the world", a1, "203.0.113.2:80", "world"},
		{"the world by IPv6", a1, "[2001:db8::2]:80", "world"},
		{"the world, of who may not", shut, "203.0.113.2:80", ""},
		{"the world by IPv6, of who may not", shut, "[2001:db8::2]:80", ""},
		{"metadata, for the host", h, "169.254.169.254:80", "world"},
		{"metadata by IPv6, for the host", h, "[fd00:ec2::254]:80", "world"},
		{"metadata", a1, "169.254.169.254:80", ""},
		{"metadata by IPv6", a1, "[fd00:ec2::254]:80", ""},
		{"the host", a1, "203.0.113.1:8000", ""},
		{"the host by IPv6", a1, "[2001:db8::1]:8000", ""},
		{"the host by the link", a1, "169.254.1.1:8000", ""},
		{"a published port, from another app", b, "203.0.113.1:8080", "a1"},
		{"a published port, from another app by IPv6", b, "[2001:db8::1]:8080", "a1"},
		{"a published port, from its own app", a2, "203.0.113.1:8080", "a1"},
		{"a published port, from itself", a1, "203.0.113.1:8080", "a1"},
		{"a published port, from itself by IPv6", a1, "[2001:db8::1]:8080", "a1"},
		{"a published port, of who may not", shut, "203.0.113.1:8080", ""},
		{"a port that is not published, at that address", b, "203.0.113.1:80", ""},
		{"its loopback is its own", a1, "127.0.0.1:80", "a1"},
		{"the host to a machine", h, v6(b), "b"},
		{"the host to a machine by IPv4", h, v4(b), "b"},
		{"a published port, on the host", h, "127.0.0.1:8080", "a1"},
		{"a published port, by the host's address", h, "203.0.113.1:8080", "a1"},
		{"a published port, from outside", w, "203.0.113.1:8080", "a1"},
		{"a published port, from outside by IPv6", w, "[2001:db8::1]:8080", "a1"},
		{"the host's own server, from outside", w, "203.0.113.1:8000", "host"},
	} {
		if got, _ := c.who.get(c.to); got != c.want {
			t.Errorf("%s: %s answers %q, want %q", c.name, c.to, got, c.want)
		}
	}
	w.run("ip", "-6", "route", "add", network.String(), "via", "2001:db8::1")
	w.run("ip", "route", "add", hostnet.Private.String(), "via", "203.0.113.1")
	for _, to := range []string{v4(b), v6(b)} {
		if got, _ := w.get(to); got != "" {
			t.Errorf("from outside %s answers %q, and nothing of it is published", to, got)
		}
	}
	if t.Failed() {
		t.Log(h.run("nft", "list", "ruleset"))
	}
}

// TestHostReachesMachines: souk on the host connects to machines at their addresses, also where the host has no address of
// its own but loopback, from the moment on at which the network is there, and whatever the machine may reach.
func TestHostReachesMachines(t *testing.T) {
	h := apart(t)
	n := hostnet.New("souk-t")
	for _, name := range []string{"open", "closed"} {
		s := inner(t)
		s.serve(80, name)
		p := plan("a", name)
		p.Closed = name == "closed"
		at, err := n.Attach(s.pid, name, p)
		must(t, err)
		if got, err := h.get(net.JoinHostPort(at.V6.String(), "80")); got != name {
			t.Errorf("%s at %s answers %q, %v", name, at.V6, got, err)
		}
		route := h.run("ip", "-6", "route", "get", at.V6.String())
		if !strings.Contains(route, "src fe80::1 ") {
			t.Errorf("the host speaks with another address than the link's: %s", route)
		}
	}
}

// TestForgedSourceAddressIsDropped: what is sent with another's address does not leave the link, whatever a container may do
// inside.
func TestForgedSourceAddressIsDropped(t *testing.T) {
	h := apart(t)
	n := hostnet.New("souk-t")
	a, b := inner(t), inner(t)
	_, err := n.Attach(a.pid, "a", plan("a", "a"))
	must(t, err)
	to, err := n.Attach(b.pid, "b", plan("b", "b"))
	must(t, err)
	forged := plan("b", "other").Address // of b's app
	a.run("nft", "flush", "ruleset")     // as if it had got the right
	a.run("ip", "-6", "addr", "add", forged.String()+"/128", "dev", "eth0", "nodad")
	var hears, says *net.UDPConn
	b.in(func() { hears, err = net.ListenUDP("udp", &net.UDPAddr{Port: 99}) })
	must(t, err)
	defer hears.Close()
	a.in(func() {
		says, err = net.DialUDP("udp", &net.UDPAddr{IP: forged.AsSlice()}, &net.UDPAddr{IP: to.V6.AsSlice(), Port: 99})
	})
	must(t, err)
	defer says.Close()
	heard := func() bool {
		must(t, hears.SetReadDeadline(time.Now().Add(time.Second/5)))
		_, err := says.Write([]byte("x"))
		must(t, err)
		_, err = hears.Read(make([]byte, 1))
		return err == nil
	}
	if heard() {
		t.Error("what was sent with a forged address came")
	}
	h.run("nft", "flush", "chain", "inet", "souk-t", "forged")
	if !heard() {
		t.Error("it does not come without the rule either: the test shows nothing")
	}
}

// TestDNSReachesTheHostServerAlone: what is asked at the link's own address is answered by a server on the host's loopback, and nothing else
// there is reached.
func TestDNSReachesTheHostServerAlone(t *testing.T) {
	h := apart(t)
	h.serve(5353, "names") // TCP is all the test has a server for
	p := plan("a", "a")
	dns := netip.MustParseAddrPort("127.0.0.1:5353")
	h.serve(5354, "narrow")
	narrow := netip.MustParseAddrPort("127.0.0.1:5354")
	p.DNS, p.Narrow = &dns, &narrow
	a := inner(t)
	n := hostnet.New("souk-t")
	_, err := n.Attach(a.pid, "a", p)
	must(t, err)
	if got, err := a.get("169.254.1.1:53"); got != "names" {
		t.Errorf("%q, %v", got, err)
	}
	closed, c := inner(t), plan("c", "c") // what may not go out has names of the cluster alone
	c.DNS, c.Narrow, c.Closed = &dns, &narrow, true
	_, err = n.Attach(closed.pid, "c", c)
	must(t, err)
	if got, err := closed.get("169.254.1.2:53"); got != "narrow" {
		t.Errorf("%q, %v", got, err)
	}
	if got, _ := closed.get("169.254.1.1:53"); got != "" {
		t.Errorf("who may not go out asks for names of others, and is answered %q", got)
	}
	for _, to := range []string{"169.254.1.1:5353", "169.254.1.1:80"} {
		if got, _ := a.get(to); got != "" {
			t.Errorf("%s answers %q", to, got)
		}
	}
}

// things lists what there is in the host's namespace.
func (s *space) things() string {
	var out string
	for _, of := range []string{"-o link", "-4 route", "-6 route", "neigh", "-o addr"} {
		out += s.run(append([]string{"ip"}, strings.Fields(of)...)...) + "\n"
	}
	return out + s.run("nft", "list", "ruleset")
}

// TestRemovedContainersLeaveNothing: after the end of containers, whichever way, the host is as it was.
func TestRemovedContainersLeaveNothing(t *testing.T) {
	h := apart(t)
	before := h.things()
	n := hostnet.New("souk-t")
	killed, ended := inner(t), inner(t)
	p, q := plan("a", "1"), plan("a", "2")
	p.Publish, q.Publish = []netplan.Port{{Host: 8080, To: 80}}, []netplan.Port{{UDP: true, Host: 8080, To: 53}}
	_, err := n.Attach(killed.pid, "1", p)
	must(t, err)
	_, err = n.Attach(ended.pid, "2", q)
	must(t, err)
	again := plan("a", "3")
	again.Publish = p.Publish
	third := inner(t)
	_, err = n.Attach(third.pid, "3", again)
	if !fault.Is(err, fault.Precondition) || fault.CodeOf(err) != "port_taken" {
		t.Errorf("a port that is published: %v", err)
	}
	must(t, n.Detach("3"))
	next4 := inner(t)
	_, err = n.Attach(next4.pid, "1 anew", p) // the same machine's, while the one before is still there
	must(t, err)
	next4.serve(80, "anew")
	if got, err := h.get("127.0.0.1:8080"); got != "anew" {
		t.Errorf("the port of a machine's next container answers %q, %v", got, err)
	}
	must(t, n.Detach("1 anew"))
	next4.stop()
	killed.stop() // and nobody is told: the kernel takes it away in its own time
	waittest.See(t, "no device of a container is left", func() string { return h.run("ip", "-o", "link") },
		func(links string) bool { return strings.Count(links, ": sk") <= 1 })
	next := hostnet.New("souk-t") // who was there before was killed, too
	must(t, next.Sweep())
	if rules := h.run("nft", "list", "map", "inet", "souk-t", "ports4"); strings.Count(rules, "8080") != 1 {
		t.Errorf("ports of one that is gone and one that runs:\n%s", rules)
	}
	must(t, next.Detach("2"))
	must(t, next.Detach("2"))
	must(t, next.Remove())
	must(t, next.Remove())
	if after := h.things(); after != before {
		t.Errorf("left:\n%s\nbefore:\n%s", after, before)
	}
}

// TestInvalidNetworksAndUsedPortsAreRefused: bad input before anything is done, and ports that the host uses.
func TestInvalidNetworksAndUsedPortsAreRefused(t *testing.T) {
	h := apart(t)
	h.serve(8000, "host")
	before := h.things()
	a := inner(t)
	n := hostnet.New("souk-t")
	for name, change := range map[string]func(p *netplan.Network){
		"no network":           func(p *netplan.Network) { *p = netplan.Network{} },
		"another's address":    func(p *netplan.Network) { p.Address = plan("b", "b").Address },
		"an app of no cluster": func(p *netplan.Network) { p.App = netip.MustParsePrefix("fd01::/96") },
		"to allow the world":   func(p *netplan.Network) { p.Allow = []netip.Prefix{netip.MustParsePrefix("::/0")} },
		"port 0":               func(p *netplan.Network) { p.Publish = []netplan.Port{{To: 1}} },
		"a port twice": func(p *netplan.Network) {
			p.Publish = []netplan.Port{{Host: 1, To: 1}, {Host: 1, To: 2}}
		},
	} {
		p := plan("a", "a")
		change(p)
		if _, err := n.Attach(a.pid, "a", p); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := h.things(); after != before {
		t.Errorf("something was done:\n%s", after)
	}
	p := plan("a", "a")
	p.Publish = []netplan.Port{{Host: 8000, To: 80}}
	if _, err := n.Attach(a.pid, "a", p); fault.CodeOf(err) != "port_taken" {
		t.Errorf("a port on which the host listens: %v", err)
	}
}
