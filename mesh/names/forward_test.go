package names

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/soukhq/souk/internal/wait/waittest"
)

// upstream is a server of the host's, which knows all names but fail.example, and lies about lie.example.
func upstream(t *testing.T) (at string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		asked.Add(1)
		m := new(dns.Msg).SetReply(q)
		switch name := q.Question[0].Name; {
		case name == "fail.example.":
			m.Rcode = dns.RcodeServerFailure
		case name == "none.example.":
			m.Rcode = dns.RcodeNameError
		case name == "lie.example.":
			m.Question[0].Name = "other.example."
		default:
			n := 1
			if strings.HasPrefix(name, "long") {
				n = 200
			}
			for i := range n {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA,
					Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, byte(i))})
			}
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			m.Truncate(dns.MinMsgSize)
		}
		_ = w.WriteMsg(m)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{Listener: ln, Handler: handler}, {PacketConn: udp, Handler: handler}} {
		begun := make(chan struct{})
		s.NotifyStartedFunc = func() { close(begun) }
		done := make(chan error, 1)
		go func() { done <- s.ActivateAndServe() }()
		<-begun
		t.Cleanup(func() { _ = s.Shutdown(); <-done })
	}
	return ln.Addr().String(), asked
}

// forwarding is a server that asks others, over sockets.
func forwarding(t *testing.T, servers ...string) (at string) {
	t.Helper()
	s, err := Listen("127.0.0.1:0", shop())
	if err != nil {
		t.Fatal(err)
	}
	s.Forward(&Forwarder{Servers: func() []string { return servers }})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

// TestForeignNamesAreForwardedInTurn: names of others are asked of the host's servers, in turn; those of the zone never are.
func TestForeignNamesAreForwardedInTurn(t *testing.T) {
	dead, err := net.ListenPacket("udp", "127.0.0.1:0") // it refuses
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	up, asked := upstream(t)
	at := forwarding(t, dead.LocalAddr().String(), up)
	for _, c := range []struct{ name, kind, want string }{
		{"www.example.", "A", "192.0.2.0"},
		{"none.example.", "A", "NXDOMAIN"},
		{"fail.example.", "A", "SERVFAIL"},
		{"lie.example.", "A", "SERVFAIL"},
		{"shop.souk.", "A", "10.0.0.1"},
		{"nobody.souk.", "A", "NXDOMAIN"},
		{"www.example.", "ANY", "REFUSED"},
		{"www.example.", "AXFR", "REFUSED"},
	} {
		before := asked.Load()
		for _, network := range []string{"udp", "tcp"} {
			q := new(dns.Msg).SetQuestion(c.name, dns.StringToType[c.kind])
			if c.kind == "AXFR" && network == "udp" {
				continue
			}
			m, _, err := (&dns.Client{Net: network}).ExchangeContext(t.Context(), q, at)
			if err != nil || told(m) != c.want || m.IsEdns0() != nil {
				t.Errorf("%s %s by %s: %v, %v", c.name, c.kind, network, m, err)
			}
		}
		if n := asked.Load() - before; n > 0 != strings.HasSuffix(c.name, ".example.") && n > 0 {
			t.Errorf("%s was asked of the host's server", c.name)
		}
	}
	long := new(dns.Msg).SetQuestion("long.example.", dns.TypeA)
	if m, _, err := new(dns.Client).ExchangeContext(t.Context(), long, at); err != nil || !m.Truncated {
		t.Errorf("a long answer by UDP: %v, %v", m, err)
	}
	if m, _, err := (&dns.Client{Net: "tcp"}).ExchangeContext(t.Context(), long, at); err != nil ||
		len(m.Answer) != 200 || m.Truncated {
		t.Errorf("a long answer by TCP: %v, %v", m, err)
	}
}

// TestForwardingIsBoundedPerClient: a server that never answers does not delay names of the zone, and a client with
// too many queries is refused at once.
func TestForwardingIsBoundedPerClient(t *testing.T) {
	var f Forwarder
	for i := range 2 * MaxForwarded {
		who := netip.AddrFrom4([4]byte{198, 18, 0, byte(i / 40)})
		free := f.all < MaxForwarded
		if got := f.addQuery(who); got != (free && i%40 < MaxForwardedOne) {
			t.Fatalf("query %d is entered: %v", i, got)
		}
	}
	if f.all != MaxForwarded {
		t.Errorf("%d queries are under way", f.all)
	}
	for who, n := range f.by {
		for range n {
			f.removeQuery(who)
		}
	}
	if f.all != 0 || len(f.by) != 0 {
		t.Errorf("%d, %v are left", f.all, f.by)
	}
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	at := forwarding(t, silent.LocalAddr().String())
	q := new(dns.Msg).SetQuestion("www.example.", dns.TypeA)
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * MaxQueries {
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
	}
	zone := new(dns.Msg).SetQuestion("shop.souk.", dns.TypeA)
	waittest.See(t, "a name of the zone, while others hang", func() string { // a packet may be dropped
		m, _, err := new(dns.Client).ExchangeContext(t.Context(), zone, at)
		if err != nil {
			return err.Error()
		}
		return told(m)
	}, func(got string) bool { return got == "10.0.0.1" })
}

// TestResolvConfServersAreRead: also a resolver of the host itself, and as many as glibc asks.
func TestResolvConfServersAreRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	for text, want := range map[string][]string{
		"nameserver 127.0.0.1\n":                                  {"127.0.0.1:53"},
		"# none\nsearch example\n":                                {"127.0.0.1:53"},
		"nameserver 127.0.0.53\nnameserver fe80::1%eth0\n":        {"127.0.0.53:53", "[fe80::1%eth0]:53"},
		strings.Repeat("nameserver 192.0.2.1\n", maxServers+2):    slices.Repeat([]string{"192.0.2.1:53"}, maxServers),
		fmt.Sprint("options ndots:5\nnameserver 2001:db8::53 \n"): {"[2001:db8::53]:53"},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := serversOf(file); !slices.Equal(got, want) {
			t.Errorf("%q: %v", text, got)
		}
	}
	if got := serversOf(filepath.Join(file, "none")); !slices.Equal(got, []string{"127.0.0.1:53"}) {
		t.Errorf("without a file: %v", got)
	}
}
