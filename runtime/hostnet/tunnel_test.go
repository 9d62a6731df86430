package hostnet_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/hostnet/wgspace"
)

// TestMain is also the program of WireGuard in user space.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "wireguard" {
		if err := wgspace.Run(context.Background(), os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// far is a host among others.
type far struct {
	*space
	id      string
	at      netip.Addr
	net     *hostnet.Net
	options hostnet.TunnelOptions
	tunnel  *hostnet.Tunnel
	plans   []*netplan.Network
}

// hosts makes some on one link, each with a tunnel that leads nowhere yet. They are one cluster.
func hosts(t *testing.T, way netplan.Way, ids ...string) map[string]*far {
	t.Helper()
	middle := apart(t)
	middle.run("ip", "link", "add", "middle", "type", "bridge")
	middle.run("ip", "link", "set", "middle", "up")
	all := map[string]*far{}
	for i, id := range ids {
		h := &far{space: inner(t), id: id, at: netip.AddrFrom4([4]byte{10, 88, 0, byte(i + 1)})}
		v := netlink.NewVeth(netlink.LinkAttrs{Name: "to-" + id, MTU: 1500, TxQLen: -1})
		v.PeerName, v.PeerNamespace = "wan", netlink.NsFd(h.ns)
		must(t, netlink.LinkAdd(v))
		middle.run("ip", "link", "set", "to-"+id, "master", "middle", "up")
		h.run("ip", "addr", "add", h.at.String()+"/24", "dev", "wan")
		h.run("sysctl", "-q", "net.ipv6.conf.wan.disable_ipv6=1") // nothing comes and goes there by itself
		h.run("ip", "link", "set", "wan", "up")
		h.net = hostnet.New("souk-" + id)
		h.options = hostnet.TunnelOptions{Way: way, ID: id, At: h.at, Name: t.TempDir(),
			Network: netplan.Network{Cluster: network}, Helper: []string{os.Args[0], "wireguard"},
			Log: t.TempDir() + "/log", Build: "test"}
		h.open()
		t.Cleanup(func() { h.in(func() { must(t, h.tunnel.Remove()) }) })
		all[id] = h
	}
	return all
}

func (h *far) open() {
	h.t.Helper()
	h.in(func() {
		var err error
		h.tunnel, err = hostnet.OpenTunnel(h.options)
		must(h.t, err)
	})
}

// machine makes a container on the host, which answers on port 80 with its name.
func (h *far) machine(app, name string, allow ...string) *space {
	h.t.Helper()
	s, p := inner(h.t), plan(app, name)
	for _, other := range allow {
		p.Allow = append(p.Allow, cluster.AppNetwork(network, other))
	}
	h.in(func() {
		_, err := h.net.Attach(s.pid, name, p)
		must(h.t, err)
	})
	s.serve(80, name)
	h.plans = append(h.plans, p)
	return s
}

func (h *far) peer() hostnet.Peer {
	p := hostnet.Peer{ID: h.id, At: h.at, Key: h.tunnel.Public()}
	for _, x := range h.plans {
		p.Machines = append(p.Machines, x.Address)
	}
	return p
}

func (h *far) apply(peers ...hostnet.Peer) {
	h.t.Helper()
	h.in(func() { must(h.t, h.tunnel.Apply(peers, false)) })
}

func toPrefix(app, name string) string {
	return net.JoinHostPort(plan(app, name).Address.String(), "80")
}

// TestAppsOfTwoHostsAreIsolated: machines of two apps on two hosts reach their own app only, and a third host that is
// no member reaches none, with each kind of tunnel.
func TestAppsOfTwoHostsAreIsolated(t *testing.T) {
	for _, way := range []netplan.Way{netplan.VXLAN, netplan.WireGuard} {
		t.Run(string(way), func(t *testing.T) { betweenHosts(t, way) })
	}
}

func betweenHosts(t *testing.T, way netplan.Way) {
	all := hosts(t, way, "a", "b", "c")
	a, b, c := all["a"], all["b"], all["c"]
	before := map[*far]string{a: a.inventory(), b: b.inventory()}
	a1 := a.machine("shop", "a1")
	a2 := b.machine("shop", "a2")
	x, friend := b.machine("other", "x"), b.machine("friend", "friend", "shop")
	large := strings.Repeat("more than fits into a packet, ", 10_000)
	a2.serve(81, large)
	cross := func() {
		t.Helper()
		a.apply(b.peer())
		b.apply(a.peer())
	}
	cross()
	reaches := func(what string, who *space, where, want string) {
		t.Helper()
		if got, err := who.get(where); got != want {
			t.Errorf("%s: %s answers %q, %v; want %q", what, where, got, err, want)
		}
	}
	reaches("its own app on another host", a1, toPrefix("shop", "a2"), "a2")
	reaches("the way back", a2, toPrefix("shop", "a1"), "a1")
	reaches("what is large", a1, net.JoinHostPort(plan("shop", "a2").Address.String(), "81"), large)
	reaches("another app", x, toPrefix("shop", "a1"), "")
	reaches("another app, back", a1, toPrefix("other", "x"), "")
	reaches("an app that allows it", a1, toPrefix("friend", "friend"), "friend")
	reaches("the app that it allows", friend, toPrefix("shop", "a1"), "")
	reaches("the host itself", a.space, toPrefix("shop", "a2"), "")
	reaches("a machine that nobody has", a1, toPrefix("shop", "nobody"), "")
	strangers(t, way, a, b, c, a2)

	first := a.tunnel.Public()
	a.open() // by the next process of souk
	if a.tunnel.Public() != first {
		t.Error("the next process has another key, though the tunnel goes on")
	}
	a.apply(hostnet.Peer{ID: "b", Partial: true})
	reaches("a host that has told nothing yet", a1, toPrefix("shop", "a2"), "a2")
	b.plans = b.plans[1:] // without a2
	cross()
	if routes := a.run("ip", "-6", "route"); strings.Contains(routes, plan("shop", "a2").Address.String()) {
		t.Errorf("a machine that is gone has a route:\n%s", routes)
	}
	reaches("a machine that is gone", a1, toPrefix("shop", "a2"), "")
	reaches("one that is not", a1, toPrefix("friend", "friend"), "friend")
	a.run("ip", "link", "del", tunnelOf(a)) // by whomever
	a.in(func() { must(t, a.tunnel.Apply([]hostnet.Peer{b.peer()}, true)) })
	reaches("after a mending", a1, toPrefix("friend", "friend"), "friend")
	a.apply()
	b.apply()
	reaches("a host that is removed", a1, toPrefix("friend", "friend"), "")
	for h, want := range before {
		h.in(func() { must(t, h.tunnel.Remove()); must(t, h.tunnel.Remove()) })
		h.end()
		if after := h.inventory(); after != want {
			t.Errorf("left on %s:\n%s\nbefore:\n%s", h.id, after, want)
		}
	}
}

// inventory lists what there is on the host, but for what its link to the others brings about by itself.
func (h *far) inventory() (out string) {
	for line := range strings.Lines(h.things() + "\n" + h.run("bridge", "fdb")) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "wan") {
			out += line + "\n"
		}
	}
	return out
}

func tunnelOf(h *far) string {
	for line := range strings.Lines(h.run("ip", "-o", "link")) {
		if _, rest, is := strings.Cut(line, ": souk-"); is {
			name, _, _ := strings.Cut(rest, ":")
			return "souk-" + name
		}
	}
	h.t.Fatal("there is no tunnel")
	return ""
}

// end ends what the host has of containers.
func (h *far) end() {
	h.in(func() {
		for _, name := range []string{"a1", "a2", "x", "friend", "sibling"} {
			must(h.t, h.net.Detach(name))
		}
		must(h.t, h.net.Remove())
	})
}

// forgery is a way to send to a machine with the address of another. before is whether it comes, and after whether it
// does once a chain of the receiver's rules is gone, which shows that it was this that held it back.
type forgery struct {
	what          string
	send          func()
	chain         string
	before, after bool
}

// strangers has host c, which is on the link and no member, and the root of host a, which is one, send to machine a2 of
// host b with addresses that are not theirs.
func strangers(t *testing.T, way netplan.Way, a, b, c *far, a2 *space) {
	t.Helper()
	there, nobody := plan("shop", "a2").Address, plan("shop", "nobody").Address
	var ears *net.UDPConn
	var err error
	a2.in(func() { ears, err = net.ListenUDP("udp", &net.UDPAddr{Port: 99}) })
	must(t, err)
	defer ears.Close()
	says := func(h *far, from netip.Addr) func() {
		return func() {
			h.in(func() {
				u, err := net.DialUDP("udp", &net.UDPAddr{IP: from.AsSlice()},
					&net.UDPAddr{IP: there.AsSlice(), Port: 99})
				must(t, err)
				_, _ = u.Write([]byte("x")) // that it is refused at once is as good
				must(t, u.Close())
			})
		}
	}
	heard := func(send func()) bool {
		t.Helper()
		send()
		must(t, ears.SetReadDeadline(time.Now().Add(time.Second/5)))
		_, err := ears.Read(make([]byte, 1))
		return err == nil
	}
	own := plan("shop", "a1").Address
	for _, x := range []netip.Addr{nobody, own} {
		a.run("ip", "-6", "addr", "add", x.String()+"/128", "dev", "lo", "nodad")
	}
	a.run("nft", "delete", "table", "inet", tunnelOf(a))
	if !heard(says(a, own)) {
		t.Error("a member, with the address of its own machine: not heard, so the test shows nothing")
	}
	b.machine("shop", "sibling")
	sibling := plan("shop", "sibling").Address
	a.run("ip", "-6", "addr", "add", sibling.String()+"/128", "dev", "lo", "nodad")
	liar := a.peer()
	liar.Machines = append(liar.Machines, sibling)
	b.apply(liar)
	tries := []forgery{
		{"a member, with the address of a machine that is here", says(a, sibling), "forged", false, true},
		{"a member, with an address that nobody has", says(a, nobody), "forged", false,
			way == netplan.VXLAN}}
	if way == netplan.VXLAN {
		c.imitate(a, b, there)
		tries = append(tries, forgery{"who is no member", says(c, own), "outer", false, true})
	}
	for _, x := range tries {
		if heard(x.send) != x.before {
			t.Errorf("%s: heard %v", x.what, !x.before)
		}
		b.run("nft", "flush", "chain", "inet", tunnelOf(b), x.chain)
		if heard(x.send) != x.after {
			t.Errorf("%s, without the rules %s: heard %v", x.what, x.chain, !x.after)
		}
		b.in(func() { must(t, b.tunnel.Apply([]hostnet.Peer{liar}, true)) })
	}
	for _, h := range []*far{a, b} { // the rules come back with a mending
		h.in(func() { must(t, h.tunnel.Apply([]hostnet.Peer{map[*far]*far{a: b, b: a}[h].peer()}, true)) })
	}
	for _, x := range tries {
		if heard(x.send) {
			t.Errorf("%s, once all is mended: heard", x.what)
		}
	}
	for _, x := range []netip.Addr{nobody, own, sibling} {
		a.run("ip", "-6", "addr", "del", x.String()+"/128", "dev", "lo")
	}
}

// imitate has a host make a device that sends what a's tunnel would send to b.
func (h *far) imitate(a, b *far, to netip.Addr) {
	h.t.Helper()
	words := strings.Fields(b.run("ip", "-d", "-o", "link", "show", tunnelOf(b)))
	var id, mac string
	for i, w := range words[:len(words)-2] {
		switch w {
		case "vxlan":
			id = words[i+2]
		case "link/ether":
			mac = words[i+1]
		}
	}
	h.run("ip", "link", "add", "false", "type", "vxlan", "id", id, "dstport", fmt.Sprint(hostnet.TunnelPort), "remote",
		b.at.String(), "local", h.at.String())
	h.run("ip", "link", "set", "false", "up")
	h.run("ip", "-6", "addr", "add", plan("shop", "a1").Address.String()+"/128", "dev", "false", "nodad")
	h.run("ip", "-6", "route", "add", to.String(), "dev", "false")
	h.run("ip", "-6", "neigh", "add", to.String(), "lladdr", mac, "dev", "false")
	h.t.Cleanup(func() { h.run("ip", "link", "del", "false") })
}
