package proxy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
)

// selfSigned makes a certificate for some names.
func selfSigned(t *testing.T, names ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestAuthorityDecidesTheApp: the request's authority decides the app, not the connection's SNI; 421 says that the
// app's certificate does not cover the host. It holds for HTTP/1.1, HTTP/2 and resumed sessions.
func TestAuthorityDecidesTheApp(t *testing.T) {
	r := newRig(t, nil)
	for _, app := range []string{"a", "b", "alone"} {
		r.host.add(app, "m-"+app, machine.Started, httpService(nil), says(app))
	}
	wild, alone := selfSigned(t, "*.localhost"), selfSigned(t, "alone.localhost")
	conf := &tls.Config{NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if strings.HasPrefix(hello.ServerName, "alone") {
				return alone, nil
			}
			return wild, nil
		}}
	ln := listen(t)
	go func() { _ = r.proxy.ServeHTTPAt(r.ctx, ln, conf) }() // ends with the rig
	for _, proto := range []string{"h2", "http/1.1"} {
		sessions := tls.NewLRUClientSessionCache(8)
		for _, x := range []struct{ sni, host, want string }{
			{"a.localhost", "a.localhost", "200 a GET / "},
			{"a.localhost", "b.localhost", "200 b GET / "},
			{"a.localhost", "B.localhost.:443", "200 b GET / "},
			{"A.Localhost", "a.localhost", "200 a GET / "},
			{"", "a.localhost", "200 a GET / "},
			{"alone.localhost", "alone.localhost", "200 alone GET / "},
			{"alone.localhost", "a.localhost", "421 misdirected"},
			{"a.localhost", "a.b.localhost", "421 misdirected"},
			{"a.localhost", "other.example", "421 misdirected"},
			{"a.localhost", "nobody.localhost", "404 host"},
		} {
			transport := &http.Transport{ForceAttemptHTTP2: true,
				DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					c := &tls.Dialer{Config: &tls.Config{ServerName: x.sni, InsecureSkipVerify: true,
						NextProtos: []string{proto}, ClientSessionCache: sessions}}
					if x.sni == "" { // a name of an address is not sent
						c.Config.ServerName = "127.0.0.1"
					}
					return c.DialContext(ctx, "tcp", ln.Addr().String())
				}}
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+ln.Addr().String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Host = x.host
			resp, err := transport.RoundTrip(q)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			transport.CloseIdleConnections()
			got := fmt.Sprint(resp.StatusCode, " ", string(body))
			if code := resp.Header.Get("Souk-Error"); code != "" {
				got = fmt.Sprint(resp.StatusCode, " ", code)
			}
			if got != x.want || (resp.ProtoMajor == 2) != (proto == "h2") {
				t.Errorf("%s, connected for %q, asked for %q: %s %q, want %q", proto, x.sni, x.host, resp.Proto, got,
					x.want)
			}
		}
	}
}
