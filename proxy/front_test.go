package proxy_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// Headers of the PROXY protocol, of a client at 192.0.2.7.
const (
	headerOne   = "PROXY TCP4 192.0.2.7 192.0.2.8 1234 443\r\n"
	signature   = "\r\n\r\n\x00\r\nQUIT\n"
	headerTwo   = signature + "\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x08\x04\xd2\x01\xbb"
	headerLocal = signature + "\x20\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x08\x04\xd2\x01\xbb"
)

// behindAFront has a proxy believe headers of the PROXY protocol that come from a network.
func behindAFront(network string, more func(*proxy.Options)) func(*proxy.Options) {
	return func(o *proxy.Options) {
		o.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix(network)}
		if more != nil {
			more(o)
		}
	}
}

// TestProxyProtocolGivesTheClientAddress: at the HTTP and HTTPS ports a machine gets the client's address, a health
// probe of the front counts as the front's own, and a connection without a header is closed.
func TestProxyProtocolGivesTheClientAddress(t *testing.T) {
	r := newRig(t, behindAFront("127.0.0.0/8", nil))
	r.host.add("shop", "m1", machine.Started, httpService(nil), handles(func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprint(w, q.Header.Get("X-Forwarded-For"), " ", q.Header.Get("Fly-Client-Ip"))
	}))
	secure := listen(t)
	conf := certificate(t)
	go func() { _ = r.proxy.ServeHTTPAt(r.ctx, secure, conf) }() // ends with the rig
	const ask = "GET / HTTP/1.1\r\nHost: shop.localhost\r\nX-Forwarded-For: 1.2.3.4\r\nConnection: close\r\n\r\n"
	for _, overTLS := range []bool{false, true} {
		for header, want := range map[string]string{headerOne: "192.0.2.7 192.0.2.7", headerTwo: "192.0.2.7 192.0.2.7",
			headerLocal: "127.0.0.1 127.0.0.1", "PROXY UNKNOWN\r\n": "127.0.0.1 127.0.0.1", "": ""} {
			addr := r.addr
			if overTLS {
				addr = secure.Addr().String()
			}
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(waittest.Patience))
			_, _ = io.WriteString(c, header)
			via := c
			if overTLS {
				via = tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: "shop.localhost"})
			}
			_, _ = io.WriteString(via, ask)
			body := ""
			if resp, err := http.ReadResponse(bufio.NewReader(via), nil); err == nil {
				raw, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				body = string(raw)
			}
			c.Close()
			if body != want {
				t.Errorf("TLS %v, %q: the machine heard of %q, not %q", overTLS, header, body, want)
			}
		}
	}
}

// TestUntrustedProxyHeaderIsRefused: a PROXY header of an untrusted peer is a bad request.
func TestUntrustedProxyHeaderIsRefused(t *testing.T) {
	r := newRig(t, behindAFront("10.0.0.0/8", nil))
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	c := r.connect()
	c.Send(headerOne + "GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
	if resp, _ := c.Answer("GET"); resp.StatusCode != http.StatusBadRequest {
		t.Error(resp.Status)
	}
	if resp, body := r.get("shop", "/"); resp.StatusCode != http.StatusOK || body != "m1 GET / " {
		t.Errorf("%s %q", resp.Status, body)
	}
}

// TestPortBehindProxyProtocolPassesAllBytes: what follows the header arrives whole, also that of a probe; and the end of one direction is passed
// on alone, whichever side has ended, to a machine here and to another member's.
func TestPortBehindProxyProtocolPassesAllBytes(t *testing.T) {
	for _, way := range []string{"own", "far"} {
		p, heard := &ports{open: map[int]net.Listener{}}, make(chan string, 1)
		to := far{}
		r := newRig(t, behindAFront("127.0.0.0/8", func(o *proxy.Options) { o.Listen, o.Far = p.listen, to }))
		h := r.host
		if way == "far" {
			h = r.behind("w2", to).host
		}
		after := h.add("after", "m1", machine.Started, portOf(7200), func(c net.Conn) { // answers once it has heard all
			all, _ := io.ReadAll(c)
			fmt.Fprintf(c, "%d bytes, ", len(all))
			_, _ = c.Write(all)
		})
		first := h.add("first", "m2", machine.Started, portOf(7201), func(c net.Conn) { // has its say, and listens on
			_, _ = io.WriteString(c, "all that I say")
			_ = c.(*net.TCPConn).CloseWrite()
			all, _ := io.ReadAll(c)
			heard <- string(all)
		})
		if way == "far" {
			r.knows(after, machine.Started)
			r.knows(first, machine.Started)
		}
		waittest.Until(t, "the ports are open", func() bool { return p.at(7200) != nil && p.at(7201) != nil })
		dial := func(port int) *net.TCPConn {
			c, err := net.Dial("tcp", p.at(port).Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			_ = c.SetDeadline(time.Now().Add(waittest.Patience))
			return c.(*net.TCPConn)
		}
		const large = 1 << 20
		for _, header := range []string{headerOne, headerTwo, headerLocal} {
			c := dial(7200)
			sent := "hello" + strings.Repeat("x", large)
			_, _ = io.WriteString(c, header+sent)
			_ = c.CloseWrite()
			if got, err := io.ReadAll(c); string(got) != fmt.Sprintf("%d bytes, %s", len(sent), sent) || err != nil {
				t.Errorf("%s: after %q came %d bytes, %v", way, header, len(got), err)
			}
			c = dial(7201)
			_, _ = io.WriteString(c, header)
			if got, err := io.ReadAll(c); string(got) != "all that I say" || err != nil {
				t.Errorf("%s: %q, %v", way, got, err)
			}
			_, _ = io.WriteString(c, sent)
			_ = c.CloseWrite()
			if got := <-heard; got != sent {
				t.Errorf("%s: after its own end the machine heard %d bytes", way, len(got))
			}
		}
		waittest.Until(t, "both are in the log", func() bool {
			return strings.Count(r.log.String(), `"client":"192.0.2.7"`) == 4 &&
				strings.Count(r.log.String(), `"client":"127.0.0.1"`) == 2
		})
	}
}
