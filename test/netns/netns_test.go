package netns_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m.Run)) }

// needs skips for a user who lacks something, and fails in CI.
func needs(t *testing.T) {
	t.Helper()
	if netns.Inside() {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("hosts cannot be made here; lacking: %s", netns.Lacks())
	}
	t.Skipf("lacking: %s", netns.Lacks())
}

// listen makes a host answer each datagram with its own content.
func listen(t *testing.T, h *netns.Host) {
	t.Helper()
	var c net.PacketConn
	if err := h.Do(func() (err error) { c, err = net.ListenPacket("udp", h.Addr+":9"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
}

// echo sends datagrams from one host to another and gives how many came back, and after what time the first did.
func echo(t *testing.T, from, to *netns.Host, n int, patience time.Duration) (back int, first time.Duration) {
	t.Helper()
	c, err := from.Dial(t.Context(), "udp", to.Addr+":9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	begin := time.Now()
	for range n {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.SetReadDeadline(begin.Add(patience)); err != nil {
		t.Fatal(err)
	}
	for back < n {
		if _, err := c.Read(make([]byte, 16)); err != nil {
			return back, first
		}
		if back++; back == 1 {
			first = time.Since(begin)
		}
	}
	return back, first
}

func TestNetworkFaultsAreInjectedAndHealed(t *testing.T) {
	needs(t)
	hs, err := netns.New(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hs {
		listen(t, h)
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	hears := func(from, to, most, least int) {
		t.Helper()
		patience := 500 * time.Millisecond // for what is lost
		if least == 100 {
			patience = waittest.Patience
		}
		if n, _ := echo(t, hs[from], hs[to], 100, patience); n > most || n < least {
			t.Errorf("%d of 100 came back from %s to %s; want %d to %d", n, hs[to].Name, hs[from].Name, least, most)
		}
	}
	hears(0, 1, 100, 100)
	ok(hs.Part(func(i int) bool { return i == 0 }))
	hears(0, 1, 0, 0)
	hears(1, 2, 100, 100)
	ok(hs.Heal())
	ok(hs[2].Deafen(hs[0]))
	hears(0, 2, 0, 0)
	hears(0, 1, 100, 100)
	ok(hs.Heal())
	ok(hs[1].Lose(30))
	hears(0, 1, 95, 40)
	ok(hs.Heal())
	ok(hs[1].Delay(200 * time.Millisecond))
	if n, first := echo(t, hs[0], hs[1], 100, waittest.Patience); n != 100 || first < 200*time.Millisecond {
		t.Errorf("%d of 100 came back, the first after %v; want all, after 200ms or more", n, first)
	}
	ok(hs.Heal())
	hears(0, 1, 100, 100)
	if pids := hs[0].Processes(); len(pids) != 0 {
		t.Error("processes on a host where nothing was started:", pids)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := hs[0].Dial(ctx, "tcp", "127.0.0.1:9"); err == nil {
		t.Error("a dial that was given up succeeds")
	}
}
