package proxyproto_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/proxy/proxyproto"
)

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// two makes a header of version 2.
func two(command, family byte, body string) string {
	return signature + string(binary.BigEndian.AppendUint16([]byte{command, family}, uint16(len(body)))) + body
}

// TestSpecificationExamplesAreReadOrRefused reads its examples, its longest lines and what it says must be taken or refused.
func TestSpecificationExamplesAreReadOrRefused(t *testing.T) {
	v4 := "\xc0\xa8\x00\x01\xc0\xa8\x00\x0b\xdc\x04\x01\xbb"
	v6 := strings.Repeat("\xff", 16) + strings.Repeat("\x00", 15) + "\x01\x00\x50\x01\xbb"
	ones := "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	const none, wrong = "none", "wrong"
	const line, read = "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", "192.168.0.1:56324 192.168.0.11:443"
	for name, c := range map[string]struct{ in, want string }{
		"1: IPv4": {line, read},
		"1: longest IPv4": {"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
			"255.255.255.255:65535 255.255.255.255:65535"},
		"1: longest IPv6": {"PROXY TCP6 " + ones + " " + ones + " 65535 65535\r\n",
			"[" + ones + "]:65535 [" + ones + "]:65535"},
		"1: unknown":          {"PROXY UNKNOWN\r\n", none},
		"1: longest unknown":  {"PROXY UNKNOWN " + ones + " " + ones + " 65535 65535\r\n", none},
		"1: too long":         {"PROXY UNKNOWN " + ones + " " + ones + " 65535 655350\r\n", wrong},
		"1: no end":           {"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443", wrong},
		"1: only LF":          {"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\n", wrong},
		"1: small letters":    {"proxy TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", wrong},
		"1: other family":     {"PROXY UDP4 192.168.0.1 192.168.0.11 56324 443\r\n", wrong},
		"1: family and addr":  {"PROXY TCP4 ::1 ::1 56324 443\r\n", wrong},
		"1: addr and family":  {"PROXY TCP6 192.168.0.1 192.168.0.11 56324 443\r\n", wrong},
		"1: zone":             {"PROXY TCP6 fe80::1%eth0 ::1 56324 443\r\n", wrong},
		"1: leading zero":     {"PROXY TCP4 192.168.0.01 192.168.0.11 56324 443\r\n", wrong},
		"1: port with zero":   {"PROXY TCP4 192.168.0.1 192.168.0.11 056324 443\r\n", wrong},
		"1: port too large":   {"PROXY TCP4 192.168.0.1 192.168.0.11 65536 443\r\n", wrong},
		"1: negative port":    {"PROXY TCP4 192.168.0.1 192.168.0.11 -1 443\r\n", wrong},
		"1: two spaces":       {"PROXY TCP4  192.168.0.1 192.168.0.11 56324 443\r\n", wrong},
		"1: one more":         {"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443 1\r\n", wrong},
		"1: nothing":          {"PROXY \r\nabcdefgh", wrong},
		"2: IPv4":             {two(0x21, 0x11, v4), read},
		"2: IPv6":             {two(0x21, 0x21, v6), "[" + ones + "]:80 [::1]:443"},
		"2: local":            {two(0x20, 0x00, ""), none},
		"2: local with more":  {two(0x20, 0x11, v4), none},
		"2: unspecified":      {two(0x21, 0x00, "whatever"), none},
		"2: unix":             {two(0x21, 0x31, strings.Repeat("\x00", 216)), none},
		"2: with an extra":    {two(0x21, 0x11, v4+"\x02\x00\x03abc"), read},
		"2: extra cut off":    {two(0x21, 0x11, v4+"\x02\x00\x04abc"), wrong},
		"2: half an extra":    {two(0x21, 0x11, v4+"\x02\x00"), wrong},
		"2: with a checksum":  {checked(two(0x21, 0x11, v4+"\x03\x00\x04\x00\x00\x00\x00"), 0), read},
		"2: a wrong checksum": {checked(two(0x21, 0x11, v4+"\x03\x00\x04\x00\x00\x00\x00"), 1), wrong},
		"2: short checksum":   {two(0x21, 0x11, v4+"\x03\x00\x01\x00"), wrong},
		"2: cut off":          {two(0x21, 0x11, v4)[:20], wrong},
		"2: short addresses":  {two(0x21, 0x21, v4), wrong},
		"2: datagrams":        {two(0x21, 0x12, v4), wrong},
		"2: other version":    {two(0x31, 0x11, v4), wrong},
		"2: other command":    {two(0x22, 0x11, v4), wrong},
		"2: too long":         {two(0x21, 0x11, v4+strings.Repeat("\x04\x00\x00", 2000)), wrong},
		"HTTP":                {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", wrong},
		"TLS":                 {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00", wrong},
		"nothing":             {"", wrong},
	} {
		const rest = "GET /"
		r := strings.NewReader(c.in + rest)
		if c.want == wrong {
			r = strings.NewReader(c.in)
		}
		a, err := proxyproto.Read(r)
		got := none
		if a.Known {
			got = a.From.String() + " " + a.To.String()
		}
		if err != nil {
			got = wrong
		}
		if got != c.want || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
		if left, _ := io.ReadAll(r); err == nil && string(left) != rest {
			t.Errorf("%s: %q is left", name, left)
		}
	}
}

// checked writes the checksum into a header that ends with a place for it.
func checked(header string, off uint32) string {
	b := []byte(header)
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) + off
	binary.BigEndian.PutUint32(b[len(b)-4:], sum)
	return string(b)
}

// TestWrittenHeaderReadsBack: a written header reads as it was.
func TestWrittenHeaderReadsBack(t *testing.T) {
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	for _, c := range []struct {
		from, to net.Addr
		one      string
	}{
		{tcp("192.0.2.1:1234"), tcp("192.0.2.2:443"), "PROXY TCP4 192.0.2.1 192.0.2.2 1234 443\r\n"},
		{tcp("[2001:db8::1]:1234"), tcp("[::1]:443"), "PROXY TCP6 2001:db8::1 ::1 1234 443\r\n"},
		{tcp("[::ffff:192.0.2.1]:1234"), tcp("192.0.2.2:443"), "PROXY TCP4 192.0.2.1 192.0.2.2 1234 443\r\n"},
		{tcp("192.0.2.1:1234"), tcp("[::1]:443"), "PROXY TCP6 ::ffff:192.0.2.1 ::1 1234 443\r\n"},
		{tcp("[fe80::1%eth0]:1"), tcp("[::1]:443"), "PROXY TCP6 fe80::1 ::1 1 443\r\n"},
		{&net.UnixAddr{Name: "@"}, tcp("192.0.2.2:443"), "PROXY UNKNOWN\r\n"},
	} {
		one := proxyproto.Header(1, c.from, c.to)
		if string(one) != c.one {
			t.Errorf("%q, want %q", one, c.one)
		}
		a, err := proxyproto.Read(bytes.NewReader(one))
		b, err2 := proxyproto.Read(bytes.NewReader(proxyproto.Header(2, c.from, c.to)))
		if err != nil || err2 != nil || a != b {
			t.Errorf("%v %v %v %v", a, err, b, err2)
		}
	}
}

// TestListenTrustsOnlyConfiguredProxies: only a trusted peer sets the client address, and a silent one delays no
// other.
func TestListenTrustsOnlyConfiguredProxies(t *testing.T) {
	for name, c := range map[string]struct {
		trusted, send, from, read string
	}{
		"trusted": {"127.0.0.0/8", "PROXY TCP4 192.0.2.1 192.0.2.2 1234 443\r\nhello", "192.0.2.1:1234",
			"hello"},
		"its own":        {"127.0.0.0/8", "PROXY UNKNOWN\r\nhello", "127.0.0.1", "hello"},
		"without header": {"127.0.0.0/8", "GET / HTTP/1.1\r\n\r\n", "", ""},
		"not trusted":    {"10.0.0.0/8", "PROXY UNKNOWN\r\nhello", "127.0.0.1", "PROXY UNKNOWN\r\nhello"},
	} {
		t.Run(name, func(t *testing.T) {
			bare, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			trusted := []netip.Prefix{netip.MustParsePrefix(c.trusted)}
			ln := proxyproto.Listen(bare, trusted, slog.New(slog.DiscardHandler))
			defer ln.Close()
			slow, err := net.Dial("tcp", bare.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Close()
			client, err := net.Dial("tcp", bare.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := io.WriteString(client, c.send); err != nil {
				t.Fatal(err)
			}
			if c.from == "" {
				if n, err := client.Read(make([]byte, 1)); err == nil {
					t.Errorf("%d bytes came", n)
				}
				return
			}
			if err := client.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if c.trusted == "10.0.0.0/8" { // then the slow one is given, too
				if s, err := ln.Accept(); err != nil {
					t.Fatal(err)
				} else {
					defer s.Close()
				}
			}
			got, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			raw, err := io.ReadAll(got)
			from := got.RemoteAddr().String()
			if !strings.HasPrefix(from, c.from) || string(raw) != c.read || err != nil {
				t.Errorf("%q from %s, %v", raw, from, err)
			}
		})
	}
}

// TestIncompleteHeaderIsClosed: a connection with an incomplete header is closed after some seconds.
func TestIncompleteHeaderIsClosed(t *testing.T) {
	t.Parallel()
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := proxyproto.Listen(bare, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, slog.New(slog.DiscardHandler))
	defer ln.Close()
	client, err := net.Dial("tcp", bare.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	began := time.Now()
	_, _ = io.WriteString(client, two(0x21, 0x11, "\xc0\xa8\x00\x01\xc0\xa8\x00\x0b\xdc\x04\x01\xbb")[:20])
	if n, err := client.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came", n)
	}
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("it was closed after %v", took)
	}
}

// TestCloseEndsWaitingConnections: Close ends the connections that wait for a header, and pending Accepts.
func TestCloseEndsWaitingConnections(t *testing.T) {
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := proxyproto.Listen(bare, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, slog.New(slog.DiscardHandler))
	client, err := net.Dial("tcp", bare.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	waits := make(chan error, 1)
	go func() { _, err := ln.Accept(); waits <- err }()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err == nil {
		t.Error("a connection without header was given")
	}
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("it is open")
	}
}

// FuzzReadRoundTripsOrRefuses: whatever is sent is read or refused, and what is read can be written again.
func FuzzReadRoundTripsOrRefuses(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"))
	f.Add([]byte(two(0x21, 0x11, "\xc0\xa8\x00\x01\xc0\xa8\x00\x0b\xdc\x04\x01\xbb")))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, err := proxyproto.Read(bytes.NewReader(in))
		if err != nil || !a.Known || a.From.Addr().Is4In6() || a.To.Addr().Is4In6() {
			return
		}
		again, err := proxyproto.Read(bytes.NewReader(proxyproto.Header(2, net.TCPAddrFromAddrPort(a.From),
			net.TCPAddrFromAddrPort(a.To))))
		if err != nil || again != a {
			t.Errorf("%v, %v; was %v", again, err, a)
		}
	})
}
