package names

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixed map[string][]Machine

func (f fixed) Started(app string, most int) ([]Machine, bool) {
	l, ok := f[app]
	return slices.Clone(l[:min(most, len(l))]), ok
}

func (f fixed) Named(app, label string) (Machine, bool) {
	for _, m := range f[app] {
		if m.ID == label || m.Name == label {
			return m, true
		}
	}
	return Machine{}, false
}

func shop() fixed {
	return fixed{"empty": nil, "shop": {
		{ID: "00000000000001", Name: "web", Worker: "a", Region: "fra", Addr: netip.MustParseAddr("10.0.0.1"),
			Port: 8080},
		{ID: "00000000000002", Name: "job", Worker: "a", Region: "fra", Addr: netip.MustParseAddr("10.0.0.1")},
		{ID: "00000000000003", Name: "web2", Worker: "b", Region: "ams", Addr: netip.MustParseAddr("2001:db8::7"),
			Port: 9090},
	}}
}

// TestAnswers: each question and what is told, sorted.
func TestAnswers(t *testing.T) {
	for _, c := range []struct{ name, kind, want string }{
		{"shop.souk.", "A", "10.0.0.1"},
		{"SHOP.souk.", "A", "10.0.0.1"},
		{"shop.souk.", "AAAA", "2001:db8::7"},
		{"shop.souk.", "SRV", "1 1 8080 00000000000001.shop.souk.; 1 1 9090 00000000000003.shop.souk."},
		{"00000000000003.shop.souk.", "AAAA", "2001:db8::7"},
		{"web.shop.souk.", "A", "10.0.0.1"},
		{"web.shop.souk.", "TXT", `"id=00000000000001" "name=web" "worker=a" "region=fra"`},
		{"web2.shop.souk.", "A", "NOERROR"},
		{"empty.souk.", "A", "NOERROR"},
		{"souk.", "SOA", "ns.souk. nobody.souk. 1 3600 600 86400 2"},
		{"nobody.souk.", "A", "NXDOMAIN"},
		{"nobody.shop.souk.", "A", "NXDOMAIN"},
		{"a.b.shop.souk.", "A", "NXDOMAIN"},
		{"shop.souk.", "ANY", "REFUSED"},
		{"souk.", "AXFR", "REFUSED"},
		{"example.com.", "A", "REFUSED"},
		{"notsouk.", "A", "REFUSED"},
	} {
		q := new(dns.Msg)
		q.SetQuestion(c.name, dns.StringToType[c.kind])
		if got := told(Answer(shop(), q)); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.name, c.kind, got, c.want)
		}
	}
}

func told(m *dns.Msg) string {
	var out []string
	for _, rr := range m.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	if len(out) == 0 {
		return dns.RcodeToString[m.Rcode]
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// TestServer asks over sockets: a long answer is cut over UDP and whole over TCP, and it ends when it is told to.
func TestServer(t *testing.T) {
	view := fixed{}
	for i := range 100 {
		view["big"] = append(view["big"], Machine{ID: fmt.Sprintf("%014x", i), Name: fmt.Sprintf("m%d", i),
			Addr: netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})})
	}
	s, err := Listen("127.0.0.1:0", view)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	q := new(dns.Msg)
	q.SetQuestion("big.souk.", dns.TypeA)
	udp, _, err := new(dns.Client).ExchangeContext(ctx, q, s.Addr())
	if err != nil || !udp.Truncated || len(udp.Answer) == 0 {
		t.Fatalf("%v %v", err, udp)
	}
	tcp, _, err := (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, q, s.Addr())
	if err != nil || tcp.Truncated || len(tcp.Answer) != MaxAnswers {
		t.Fatalf("%v %d", err, len(tcp.Answer))
	}
	// What is no DNS is dropped, and harms nobody.
	c, err := net.Dial("udp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, odd := range []string{"", "x", strings.Repeat("\xff", 600),
		"\x00\x01\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00"} {
		if _, err := c.Write([]byte(odd)); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if again, _, err := new(dns.Client).ExchangeContext(ctx, q, s.Addr()); err != nil || len(again.Answer) == 0 {
		t.Fatal(err)
	}
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// FuzzAnswer: whatever comes, there is no panic, the answer is no question, packs, and is bounded.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"shop.souk.", "web.shop.souk.", "souk.", ".", "a.b.c.d.souk.", `\000.souk.`} {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeSRV)
		q.SetEdns0(4096, true)
		raw, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	view := shop()
	f.Fuzz(func(t *testing.T, raw []byte) {
		q := new(dns.Msg)
		if q.Unpack(raw) != nil {
			return
		}
		m := Answer(view, q)
		if m == nil {
			return
		}
		m.Truncate(dns.MinMsgSize)
		packed, err := m.Pack()
		if !m.Response || len(m.Answer) > MaxAnswers || err == nil && len(packed) > dns.MinMsgSize {
			t.Fatalf("%d bytes, %v: %v", len(packed), err, m)
		}
	})
}
