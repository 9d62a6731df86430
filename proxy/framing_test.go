package proxy_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
	"github.com/soukhq/souk/proxy/hop/hoptest"
)

// TestClientAddressComesFromTrustedHops: the client address comes from souk or a trusted proxy, never from a client's
// header.
func TestClientAddressComesFromTrustedHops(t *testing.T) {
	names := []string{"True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "X-Cluster-Client-IP", "Client-IP",
		"X-Remote-Addr", "X-Original-Forwarded-For", "Fastly-Client-IP", "X-Azure-ClientIP", "true_client_ip",
		"CF_Connecting_IP"}
	for _, way := range []string{"own", "far"} {
		for _, trusted := range []bool{false, true} {
			to := far{}
			r := newRig(t, func(o *proxy.Options) {
				o.Far = to
				if trusted {
					o.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
				}
			})
			h := r.host
			if way == "far" {
				h = r.behind("w2", to).host
			}
			got := make(chan *http.Request, 1)
			g := h.add("shop", "m1", machine.Started, httpService(nil),
				handles(func(_ http.ResponseWriter, q *http.Request) { _ = q.ParseForm(); got <- q }))
			if way == "far" {
				r.knows(g, machine.Started)
			}
			for _, name := range names {
				r.get("shop", "/", name+": 6.6.6.6", "X-Own: 1")
				q := <-got
				value := q.Header[http.CanonicalHeaderKey(name)]
				if trusted != (len(value) == 1) || q.Header.Get("X-Own") != "1" {
					t.Errorf("%s, trusted %v: %s is %q", way, trusted, name, value)
				}
				c := r.connect()
				c.Send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nTransfer-Encoding: chunked\r\nTrailer: " + name +
					"\r\n\r\n0\r\n" + name + ": 6.6.6.6\r\n\r\n")
				c.Answer("POST")
				if q = <-got; !trusted && len(q.Trailer) > 0 && q.Trailer.Get(name) != "" {
					t.Errorf("%s: a trailer %v", way, q.Trailer)
				}
			}
		}
	}
}

// TestAmbiguousLengthClosesTheConnection (RFC 9112, 6.1): nothing follows a request of which the end may be read in two ways.
func TestAmbiguousLengthClosesTheConnection(t *testing.T) {
	const next = "GET /next HTTP/1.1\r\nHost: shop.localhost\r\n\r\n"
	end := "0\r\n\r\n"
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	for raw, last := range map[string]bool{
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n":                                      false,
		"POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 2\r\n\r\nhi":              false,
		post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", end):                      true,
		post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", end):                      true,
		post("Content-Length: 0\r\nTransfer-Encoding: Chunked\r\n", end):                      true,
		post("transfer-encoding: chunked\r\ncontent-length: 99\r\n", "2\r\nhi\r\n"+end):       true,
		post("Content-Length: 5\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", end): true,
		"PUT" + post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", end)[4:]:          true,
		"GET" + post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", end)[4:]:          true,
		"POST / HTTP/1.0\r\nHost: shop.localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n" +
			"\r\n": true,
		"GET / HTTP/1.0\r\nHost: shop.localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n" +
			"\r\n": true,
		"POST / HTTP/1.0\r\nHost: shop.localhost\r\nConnection: keep-alive\r\nContent-Length: 5\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n" + end: true,
		post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: a\r\n", end): true, // refused
	} {
		c := r.connect()
		c.Send(raw + next)
		if !last {
			c.Answer("POST")
			if _, body := c.Answer("GET"); !strings.HasPrefix(body, "m1 GET /next") {
				t.Errorf("%q: what follows is answered %q", raw, body)
			}
			c.Close()
			continue
		}
		if all := c.Ends(); strings.Count(all, "HTTP/1.") != 1 || strings.Contains(all, "/next") {
			t.Errorf("%q: %q", raw, all)
		}
	}
}

// TestAbsoluteURIMustMatchItsHost (RFC 9112, 3.2.2): a whole URI names a host, and HTTP/1.1 names it in the header Host, too.
func TestAbsoluteURIMustMatchItsHost(t *testing.T) {
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(nil), says("m1"))
	for raw, want := range map[string]int{
		"GET http://shop.localhost/a HTTP/1.1\r\nHost: shop.localhost\r\n\r\n": 200,
		"GET http://shop.localhost/a HTTP/1.0\r\n\r\n":                         200, // which has no Host
		"GET http://shop.localhost/a HTTP/1.1\r\n\r\n":                         400,
		"GET /a HTTP/1.1\r\n\r\n":                                              400,
		"GET http:///a HTTP/1.1\r\nHost: shop.localhost\r\n\r\n":               400,
		"GET http:/a HTTP/1.1\r\nHost: shop.localhost\r\n\r\n":                 400,
		"GET https:///a HTTP/1.1\r\nHost: shop.localhost\r\n\r\n":              400,
		"GET http://:80/a HTTP/1.1\r\nHost: shop.localhost\r\n\r\n":            400,
	} {
		c := hoptest.Connect(t, r.addr)
		c.Send(raw)
		if resp, body := c.Answer("GET"); resp.StatusCode != want {
			t.Errorf("%q is answered %s %q", raw, resp.Status, body)
		}
	}
}
