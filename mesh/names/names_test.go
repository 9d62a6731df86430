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

func (f fixed) Started(app, group string, most int) ([]Machine, bool) {
	l, ok := f[strings.TrimPrefix(group+"."+app, ".")]
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

// Entry has an entry for the apps and groups that "entry." is written before.
func (f fixed) Entry(app, group string) (at Entry, known bool) {
	if l, is := f["entry."+strings.TrimPrefix(group+"."+app, ".")]; is {
		return Entry{V4: l[0].V4, V6: l[0].Addr, Ports: []uint16{l[0].Port}}, true
	}
	return at, false
}

// Refuses refuses 198.18.0.66 all but what is "let."
func (f fixed) Refuses(app, group string, asker netip.Addr) bool {
	_, let := f["let."+strings.TrimPrefix(group+"."+app, ".")]
	return !let && asker == netip.AddrFrom4([4]byte{198, 18, 0, 66})
}

func shop() fixed {
	return fixed{"empty": nil, "api.shop": {{ID: "00000000000003", Addr: netip.MustParseAddr("2001:db8::7")}}, "shop": {
		{ID: "00000000000001", Name: "web", Worker: "a", Region: "fra", Addr: netip.MustParseAddr("10.0.0.1"),
			Port: 8080},
		{ID: "00000000000002", Name: "job", Worker: "a", Region: "fra", Addr: netip.MustParseAddr("10.0.0.1")},
		{ID: "00000000000003", Name: "web2", Worker: "b", Region: "ams", Addr: netip.MustParseAddr("2001:db8::7"),
			Port: 9090},
	}}
}

// TestAnswersAreSortedByType: each question and what is told, sorted.
func TestAnswersAreSortedByType(t *testing.T) {
	for _, c := range []struct{ name, kind, want string }{
		{"shop.souk.", "A", "10.0.0.1"},
		{"SHOP.souk.", "A", "10.0.0.1"},
		{"shop.souk.", "AAAA", "2001:db8::7"},
		{"shop.souk.", "SRV", "1 1 8080 00000000000001.shop.souk.; 1 1 9090 00000000000003.shop.souk."},
		{"00000000000003.shop.souk.", "AAAA", "2001:db8::7"},
		{"web.shop.souk.", "A", "10.0.0.1"},
		{"web.shop.souk.", "TXT", `"id=00000000000001" "name=web" "worker=a" "region=fra"`},
		{"web2.shop.souk.", "A", "NOERROR"},
		{"api.shop.souk.", "AAAA", "2001:db8::7"},
		{"_all.shop.souk.", "A", "10.0.0.1"},
		{"_all.api.shop.souk.", "AAAA", "2001:db8::7"},
		{"_all.nobody.shop.souk.", "AAAA", "NXDOMAIN"},
		{"_all.souk.", "AAAA", "NXDOMAIN"},
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
		if got := told(Answer(shop(), q, netip.Addr{})); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.name, c.kind, got, c.want)
		}
	}
}

// TestAnswersRotateAmongMachines: each answer has the address of one machine, of each as often as of the others, and never that of the
// machine that asks, where there is another.
func TestAnswersRotateAmongMachines(t *testing.T) {
	view := fixed{}
	at := func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, i}) }
	for i := range byte(9) {
		view["web"] = append(view["web"], Machine{ID: fmt.Sprint(i), V4: at(i),
			Addr: netip.AddrFrom16([16]byte{0: 0xfd, 15: i})})
	}
	view["alone"] = view["web"][:1]
	ask := func(name string, asker netip.Addr) *dns.Msg {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeAAAA)
		return Answer(view, q, asker)
	}
	const looks = 1600
	for asker, others := range map[netip.Addr]int{at(3): 8, at(77): 9, netip.MustParseAddr("::ffff:198.18.0.3"): 8} {
		count := map[string]int{}
		for range looks {
			m := ask("web.souk.", asker)
			if len(m.Answer) != 1 {
				t.Fatalf("%d addresses are told", len(m.Answer))
			}
			count[told(m)]++
		}
		if asker != at(77) && count["fd00::3"] > 0 {
			t.Errorf("%s is told itself %d times", asker, count["fd00::3"])
		}
		if len(count) != others {
			t.Errorf("to %s %d machines are told: %v", asker, len(count), count)
		}
		for who, n := range count {
			if n < looks/others/2 || n > looks/others*2 {
				t.Errorf("to %s %s is told %d times of %d", asker, who, n, looks)
			}
		}
	}
	if got := told(ask("alone.souk.", at(0))); got != "fd00::" {
		t.Errorf("the only one is told %q", got)
	}
	if n := len(ask("_all.web.souk.", at(3)).Answer); n != 9 {
		t.Errorf("of all, %d are told", n)
	}
	q := new(dns.Msg)
	q.SetQuestion("alone.souk.", dns.TypeA)
	if got := told(Answer(view, q, at(5))); got != at(0).String() {
		t.Errorf("by IPv4 the only one is told %q", got)
	}
	for _, name := range []string{"alone.souk.", "0.alone.souk."} {
		q.SetQuestion(name, dns.TypeA)
		if got := told(Answer(Narrow{view}, q, at(5))); got != "NOERROR" {
			t.Errorf("who may not go out is told %q", got)
		}
		q.SetQuestion(name, dns.TypeAAAA)
		if got := told(Answer(Narrow{view}, q, at(5))); got != "fd00::" {
			t.Errorf("who may not go out is told %q by IPv6", got)
		}
	}
	if got := told(ask("3.web.souk.", at(3))); got != "fd00::3" {
		t.Errorf("by its own id it is told %q", got)
	}
}

// TestEntryAddressStandsForSleepingMachines: names of sleeping machines have the entry's address in all kinds of
// answer, and so does by IPv4 a name with IPv6 addresses only. A machine that asks for its own app gets the entry
// where another machine exists. By IPv6 the entry follows a machine's address, for a server that listens by IPv4 only.
func TestEntryAddressStandsForSleepingMachines(t *testing.T) {
	self := netip.MustParseAddr("198.18.0.3")
	near := Machine{ID: "1", V4: self, Addr: netip.MustParseAddr("fd00::1"), Port: 80}
	away := Machine{ID: "2", Addr: netip.MustParseAddr("fd00::2"), Port: 80}
	unreached := Machine{ID: "3"}
	entry := []Machine{{V4: netip.MustParseAddr("198.19.192.1"), Addr: netip.MustParseAddr("fd73::1"), Port: 8080}}
	four := []Machine{{V4: entry[0].V4, Port: 8080}} // the host's loopback has no IPv6
	view := fixed{
		"four": nil, "entry.four": four, "awayfour": {away}, "entry.awayfour": four,
		"asleep": nil, "entry.asleep": entry, "entry.web.asleep": entry, "entry.coming": entry,
		"near": {near, away}, "entry.near": entry, "away": {away}, "entry.away": entry,
		"alone": {near}, "entry.alone": entry, "two": {near, unreached}, "entry.two": entry,
		"shut": nil, "entry.shut": {{Port: 8080}}, // its rules could not be laid
	}
	for _, c := range []struct{ name, kind, want string }{
		{"asleep.souk.", "A", "198.19.192.1"},
		{"asleep.souk.", "AAAA", "fd73::1"},
		{"asleep.souk.", "SRV", "1 1 8080 asleep.souk."},
		{"asleep.souk.", "TXT", "NOERROR"},
		{"_all.asleep.souk.", "A", "NOERROR"},
		{"web.asleep.souk.", "A", "198.19.192.1"},
		{"web.asleep.souk.", "AAAA", "fd73::1"},
		{"db.asleep.souk.", "AAAA", "NXDOMAIN"},
		{"db.asleep.souk.", "A", "NXDOMAIN"},
		{"coming.souk.", "AAAA", "fd73::1"},
		{"coming.souk.", "A", "198.19.192.1"},
		{"away.souk.", "A", "198.19.192.1"},
		{"away.souk.", "AAAA", "fd00::2; fd73::1"},
		{"_all.away.souk.", "AAAA", "fd00::2"},
		{"2.away.souk.", "AAAA", "fd00::2"},
		{"awayfour.souk.", "AAAA", "fd00::2"},
		{"four.souk.", "AAAA", "NOERROR"},
		{"four.souk.", "A", "198.19.192.1"},
		{"2.away.souk.", "A", "NOERROR"},
		{"near.souk.", "A", "198.19.192.1"},
		{"near.souk.", "AAAA", "fd00::2; fd73::1"},
		{"alone.souk.", "A", "198.18.0.3"},
		{"alone.souk.", "AAAA", "fd00::1; fd73::1"},
		{"two.souk.", "A", "198.19.192.1"},
		{"two.souk.", "AAAA", "fd73::1"},
		{"shut.souk.", "A", "NOERROR"},
		{"shut.souk.", "AAAA", "NOERROR"},
		{"souk.", "A", "NOERROR"},
	} {
		for _, v := range []View{view, Narrow{view}} {
			q := new(dns.Msg)
			q.SetQuestion(c.name, dns.StringToType[c.kind])
			got := told(Answer(v, q, self))
			if _, narrow := v.(Narrow); narrow && c.want == "198.18.0.3" {
				c.want = "198.19.192.1" // it may not use the other's
			}
			if got != c.want {
				t.Errorf("%T: %s %s: got %q, want %q", v, c.name, c.kind, got, c.want)
			}
		}
	}
}

// TestForeignAppGetsTheEntryAddress: an app that is not allowed gets the entry's address where there is one, and the
// entry says why.
func TestForeignAppGetsTheEntryAddress(t *testing.T) {
	web := Machine{ID: "1", V4: netip.MustParseAddr("198.18.0.1"), Addr: netip.MustParseAddr("fd00::1"), Port: 80}
	view := fixed{"web": {web}, "entry.web": {{V4: netip.MustParseAddr("198.19.192.1"),
		Addr: netip.MustParseAddr("fd73::1"), Port: 80}},
		"db": {web}, "friend": {web}, "entry.friend": {{V4: netip.MustParseAddr("198.19.192.2")}}, "let.friend": nil}
	for _, c := range []struct{ name, v4, v6 string }{
		{"web.souk.", "198.19.192.1", "fd73::1"},
		{"db.souk.", "198.18.0.1", "fd00::1"},
		{"friend.souk.", "198.18.0.1", "fd00::1"},
		{"1.web.souk.", "198.18.0.1", "fd00::1"},
		{"_all.web.souk.", "198.18.0.1", "fd00::1"},
	} {
		for kind, want := range map[uint16]string{dns.TypeA: c.v4, dns.TypeAAAA: c.v6} {
			q := new(dns.Msg)
			q.SetQuestion(c.name, kind)
			if got := told(Answer(view, q, netip.AddrFrom4([4]byte{198, 18, 0, 66}))); got != want {
				t.Errorf("%s %s: %q, want %q", c.name, dns.TypeToString[kind], got, want)
			}
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

// TestServerTruncatesUDPAndAnswersTCP asks over sockets: a long answer is cut over UDP and whole over TCP, and it ends when it is told to.
func TestServerTruncatesUDPAndAnswersTCP(t *testing.T) {
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
	q.SetQuestion("_all.big.souk.", dns.TypeA)
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

// FuzzAnswerIsBoundedAndValid: whatever comes, there is no panic, the answer is no question, packs, and is bounded.
func FuzzAnswerIsBoundedAndValid(f *testing.F) {
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
		m := Answer(view, q, netip.Addr{})
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
