package hostnet_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/runtime/hostnet"
)

// serveFour answers on a port of TCP and of UDP, by IPv4 alone, with the name it is given.
func (s *space) serveFour(port int, name string) {
	s.t.Helper()
	s.in(func() {
		ln, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
		must(s.t, err)
		u, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		must(s.t, err)
		s.t.Cleanup(func() { _ = ln.Close(); _ = u.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(name + " " + c.RemoteAddr().(*net.TCPAddr).IP.String()))
				_ = c.Close()
			}
		}()
		go func() {
			b := make([]byte, 100)
			for {
				_, from, err := u.ReadFromUDP(b)
				if err != nil {
					return
				}
				_, _ = u.WriteToUDP([]byte(name+" "+from.IP.String()), from)
			}
		}()
	})
}

// ask sends a packet, and returns the answer; "": none came.
func (s *space) ask(to string) (got string) {
	s.t.Helper()
	s.in(func() {
		c, err := net.Dial("udp4", to)
		must(s.t, err)
		defer c.Close()
		b := make([]byte, 100)
		for range 3 {
			_, _ = c.Write([]byte("?"))
			must(s.t, c.SetReadDeadline(time.Now().Add(time.Second/4)))
			if n, err := c.Read(b); err == nil {
				got = string(b[:n])
				return
			}
		}
	})
	return got
}

// TestAppsAreIsolatedByIPv4: on one host the machines of an app, and those of apps that are let in, reach each other by
// IPv4 as they do by IPv6, and are seen with their own addresses; others are refused. It is so again after a reload of
// the host's firewall, with the next process, and once a container is gone and its address another's.
func TestAppsAreIsolatedByIPv4(t *testing.T) {
	h := apart(t)
	n := hostnet.New("souk-t")
	at := map[string]hostnet.Addresses{}
	in := map[string]*space{}
	start := func(id, app string, allow ...string) {
		t.Helper()
		s := inner(t)
		s.serveFour(80, id)
		p := plan(app, id)
		for _, a := range allow {
			p.Allow = append(p.Allow, cluster.AppNetwork(network, a))
		}
		a, err := n.Attach(s.pid, id, p)
		must(t, err)
		at[id], in[id] = a, s
	}
	start("a1", "a")
	start("a2", "a")
	start("b", "b", "a")
	start("c", "c")
	check := func(when string) {
		t.Helper()
		for _, x := range []struct {
			from, to string
			reaches  bool
		}{{"a1", "a2", true}, {"a2", "a1", true}, {"a1", "b", true}, {"b", "a1", false}, {"c", "a1", false},
			{"a1", "c", false}, {"c", "b", false}} {
			to := netip.AddrPortFrom(at[x.to].V4, 80).String()
			want := ""
			if x.reaches {
				want = x.to + " " + at[x.from].V4.String()
			}
			began := time.Now()
			got, err := in[x.from].get(to)
			if got != want {
				t.Errorf("%s: %s to %s: %q, %v", when, x.from, x.to, got, err)
			}
			if !x.reaches && time.Since(began) > 2*time.Second {
				t.Errorf("%s: %s to %s is refused after %v", when, x.from, x.to, time.Since(began))
			}
			if got := in[x.from].ask(to); got != want {
				t.Errorf("%s: %s to %s by UDP: %q", when, x.from, x.to, got)
			}
		}
		if got, err := h.get(netip.AddrPortFrom(at["c"].V4, 80).String()); got != "c 169.254.1.1" {
			t.Errorf("%s: the host itself: %q, %v", when, got, err)
		}
	}
	check("at first")
	if mended, err := n.Mend(); mended || err != nil {
		t.Errorf("what stands is mended: %v, %v", mended, err)
	}
	h.run("nft", "flush", "ruleset")
	if mended, err := n.Mend(); !mended || err != nil {
		t.Fatal(mended, err)
	}
	check("after a flush")
	h.run("nft", "flush", "set", "inet", "souk-t", "admits4")
	if mended, err := n.Mend(); !mended || err != nil {
		t.Fatal(mended, err)
	}
	check("after a flush of a set")
	next := hostnet.New("souk-t") // of the next process
	for id, app := range map[string]string{"a1": "a", "a2": "a", "b": "b", "c": "c"} {
		p := plan(app, id)
		if id == "b" {
			p.Allow = append(p.Allow, cluster.AppNetwork(network, "a"))
		}
		next.Keep(id, p, at[id])
	}
	n = next
	if mended, err := n.Mend(); mended || err != nil {
		t.Errorf("the next process mends what stands: %v, %v", mended, err)
	}
	check("with the next process")

	old := at["a2"].V4
	in["a2"].stop() // and with it its link, before anybody says so
	for taken := 0; ; taken++ {
		start("c2", "c") // the same container's name would have it; another may
		if at["c2"].V4 == old {
			break
		}
		must(t, n.Detach("c2"))
		if taken > 0 {
			must(t, n.Detach("a2"))
			start("a2", "c") // the same name, another app's now
			if at["a2"].V4 != old {
				t.Fatalf("%s is not given again, but %s", old, at["a2"].V4)
			}
			break
		}
	}
	if got, _ := in["a1"].get(netip.AddrPortFrom(old, 80).String()); got != "" {
		t.Errorf("a container of another app, that has the address of one of a's, is reached: %q", got)
	}
	if got, err := in["c"].get(netip.AddrPortFrom(old, 80).String()); got == "" {
		t.Errorf("its own app does not reach it: %v", err)
	}
	for _, id := range []string{"a1", "a2", "b", "c"} {
		in[id].stop()
		must(t, n.Detach(id))
	}
	if left := h.run("nft", "list", "set", "inet", "souk-t", "admits4"); len(left) > 250 {
		t.Errorf("of containers that are gone there is left: %s", left)
	}
}
