// Package acme_test has the proxy get certificates from Pebble, the ACME server that Let's Encrypt tests clients with.
// It is here, in a module of its own, so that what Pebble needs is not what souk needs.
package acme_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/proxy/certs"
)

func TestMain(m *testing.M) {
	os.Setenv("PEBBLE_VA_NOSLEEP", "1") // it would wait for up to 5 s before it looks
	os.Exit(m.Run())
}

// authority is a Pebble of a test's own.
type authority struct {
	*httptest.Server
	trust, roots *x509.CertPool // to reach it; of what it issues
	ca           *ca.CAImpl
	orders       atomic.Int64 // that it made
}

// newAuthority starts a Pebble that finds all names at this host, at the ports of two listeners. Its certificates last
// for some seconds; 0: for long.
func newAuthority(t *testing.T, plain, https net.Listener, seconds uint64) *authority {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	a := &authority{ca: ca.New(quiet, store, "", "ecdsa", 0, 1,
		map[string]ca.Profile{"default": {ValidityPeriod: seconds}})}
	v := va.New(quiet, port(plain), port(https), false, names(t), store)
	front := wfe.New(quiet, store, v, a.ca, []string{"pebble.letsencrypt.org"}, true, false, 1, 1)
	h := front.Handler()
	a.Server = httptest.NewTLSServer(counting(h, &a.orders))
	t.Cleanup(a.Close)
	a.trust, a.roots = x509.NewCertPool(), x509.NewCertPool()
	a.trust.AddCert(a.Certificate())
	a.roots.AddCert(a.ca.GetRootCert(0).Cert)
	return a
}

// counting counts the orders that were made. Those that were asked for are more: Pebble refuses one request in twenty for
// its nonce, and the client asks again.
func counting(h http.Handler, orders *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/order-plz" {
			w = &made{w, orders}
		}
		h.ServeHTTP(w, r)
	})
}

// made counts answers which say that something was made.
type made struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (m *made) WriteHeader(code int) {
	if code == http.StatusCreated {
		m.n.Add(1)
	}
	m.ResponseWriter.WriteHeader(code)
}

func (a *authority) options(o certs.ACME) *certs.ACME {
	o.Directory, o.Roots, o.Agreed, o.Email = a.URL+wfe.DirectoryPath, a.trust, true, "admin@example.com"
	return &o
}

func port(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }

// names answers DNS: all names are at this host.
func names(t *testing.T) string {
	t.Helper()
	ln := listen(t)
	s := &dns.Server{Listener: ln, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA,
				Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)})
		}
		_ = w.WriteMsg(m) // it asks again
	})}
	go func() { _ = s.ActivateAndServe() }() // ends with the test
	t.Cleanup(func() { _ = s.Shutdown() })
	return ln.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func serve(t *testing.T, ln net.Listener, h http.Handler) {
	t.Helper()
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.Serve(ln) }() // ends with the test
	t.Cleanup(func() { s.Close() })
}

func open(t *testing.T, o certs.Options) *certs.Certs {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Allowed == nil {
		o.Allowed = func(name string) bool { return strings.HasSuffix(name, ".example.com") }
	}
	c, err := certs.New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var behind = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gochecknoglobals // a constant
	_, _ = io.WriteString(w, "behind "+r.URL.Path)
})

// shown returns what a client is shown for a name, and what it was refused with at the server.
func shown(t *testing.T, conf *tls.Config, name string) (*tls.ConnectionState, error) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	refused := make(chan error, 1)
	go func() {
		err := tls.Server(far, conf).HandshakeContext(context.Background())
		refused <- err
		if err != nil {
			far.Close()
		}
	}()
	c := tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := c.HandshakeContext(t.Context()); err != nil {
		if strings.Contains(err.Error(), "unrecognized name") { // the alert for what is not there
			err = fault.Wrap(err, fault.NotFound, "no_certificate", "no certificate was shown")
			return nil, errors.Join(err, <-refused)
		}
		return nil, <-refused
	}
	s := c.ConnectionState()
	return &s, nil
}

// must returns the certificate for a name, which the authority's root vouches for.
func must(t *testing.T, c *certs.Certs, a *authority, name string) *x509.Certificate {
	t.Helper()
	s, err := shown(t, c.TLS(), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	between := x509.NewCertPool()
	for _, x := range s.PeerCertificates[1:] {
		between.AddCert(x)
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: a.roots, Intermediates: between}); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return leaf
}

// TestTLSChallengeOrdersOneCertificate: a name is proved where TLS is spoken; many clients at once cost one order; a restart costs none.
func TestTLSChallengeOrdersOneCertificate(t *testing.T) {
	t.Parallel()
	plain, door := listen(t), listen(t)
	a := newAuthority(t, plain, door, 0)
	dir := t.TempDir()
	c := open(t, certs.Options{Dir: dir, ACME: a.options(certs.ACME{TLS: true})})
	serve(t, tls.NewListener(door, c.TLS()), behind)

	var all sync.WaitGroup
	var mu sync.Mutex
	serials := map[string]bool{}
	for range 8 {
		all.Go(func() {
			if s, err := shown(t, c.TLS(), "shop.example.com"); err == nil {
				mu.Lock()
				defer mu.Unlock()
				serials[s.PeerCertificates[0].SerialNumber.String()] = true
			} else {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(serials) != 1 {
		t.Errorf("%d certificates for one name", len(serials))
	}
	first := must(t, c, a, "shop.example.com")
	if list := c.Certificates(); len(list) != 1 || list[0].Source != "acme" || list[0].Names[0] != "shop.example.com" {
		t.Errorf("%+v", list)
	}
	if _, err := shown(t, c.TLS(), "stranger.example.org"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a stranger's name: %v", err)
	}
	c.Close()
	a.Close()
	again := open(t, certs.Options{Dir: dir, ACME: a.options(certs.ACME{TLS: true})})
	if !must(t, again, a, "shop.example.com").Equal(first) {
		t.Error("it has another certificate after a restart")
	}
}

// TestHTTPChallengePassesOtherRequests: a name is proved at the plain door, where all other requests go on to what is behind.
func TestHTTPChallengePassesOtherRequests(t *testing.T) {
	t.Parallel()
	door, other := listen(t), listen(t)
	a := newAuthority(t, door, other, 0)
	c := open(t, certs.Options{ACME: a.options(certs.ACME{HTTP: true})})
	serve(t, door, c.HTTPChallenge(behind))
	must(t, c, a, "shop.example.com")
	for _, path := range []string{"/", "/.well-known/acme-challenge/own-of-an-app", "/.well-known/acme-challenge/a/b"} {
		r, err := http.Get("http://" + door.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || string(body) != "behind "+path {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
}

// others are other members, which are asked for challenges alone.
type others map[string]*certs.Certs

func (o others) Ranked(string) (before, after []cluster.WorkerID) { return nil, nil }

func (o others) Certificate(context.Context, cluster.WorkerID, string, bool) (chain, key []byte, err error) {
	return nil, nil, fault.New(fault.NotFound, "no_certificate", "nobody asks")
}

func (o others) Challenge(_ context.Context, name, token string) (proof string, known bool) {
	for _, c := range o {
		if proof, known = c.Challenge(name, token); known {
			return proof, known
		}
	}
	return "", false
}

// TestChallengeAtAnotherMemberIsAnswered: the authority looks at a member that knows nothing of it, which asks the one that does.
func TestChallengeAtAnotherMemberIsAnswered(t *testing.T) {
	t.Parallel()
	door, other := listen(t), listen(t)
	a := newAuthority(t, door, other, 0)
	c := open(t, certs.Options{ACME: a.options(certs.ACME{HTTP: true, TLS: true}), Others: others{}})
	reached := open(t, certs.Options{ACME: a.options(certs.ACME{HTTP: true, TLS: true}), Others: others{"c": c}})
	serve(t, door, reached.HTTPChallenge(behind))
	must(t, c, a, "shop.example.com")
	if list := reached.Certificates(); len(list) != 0 {
		t.Errorf("the one that was reached has %+v", list)
	}
}

// TestCertificateIsRenewedInTime: one that lasts for seconds is renewed before its end, without anybody asking for it.
func TestCertificateIsRenewedInTime(t *testing.T) {
	t.Parallel()
	door, other := listen(t), listen(t)
	a := newAuthority(t, door, other, 10)
	c := open(t, certs.Options{ACME: a.options(certs.ACME{HTTP: true, RenewEvery: 200 * time.Millisecond})})
	serve(t, door, c.HTTPChallenge(behind))
	var first *x509.Certificate
	waittest.Succeed(t, "it is shown", func() error { // a busy host may show it only after its end
		s, err := shown(t, c.TLS(), "shop.example.com")
		if err == nil {
			first = s.PeerCertificates[0]
		}
		return err
	})
	waittest.Until(t, "it is renewed", func() bool { return c.Certificates()[0].NotAfter.After(first.NotAfter) })
	waittest.Until(t, "the new one is shown", func() bool {
		s, err := shown(t, c.TLS(), "shop.example.com")
		return err == nil && !s.PeerCertificates[0].Equal(first)
	})
}

// TestACMEKeysAreSealed: with an external key the keys of the account and of certificates are sealed.
func TestACMEKeysAreSealed(t *testing.T) {
	door, other := listen(t), listen(t)
	a := newAuthority(t, other, door, 0)
	dir := t.TempDir()
	o := certs.Options{Dir: dir, Local: []string{"localhost"}, ACME: a.options(certs.ACME{TLS: true})}
	c := open(t, o)
	serve(t, tls.NewListener(door, c.TLS()), behind)
	first := must(t, c, a, "shop.example.com")
	c.Close()
	if n := keys(t, dir, false); n != 3 { // as in clear
		t.Errorf("%d keys", n)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOUK_KEY_FILE", file)
	c = open(t, o)
	if !must(t, c, a, "shop.example.com").Equal(first) {
		t.Error("it is another one")
	}
	c.Close()
	if n := keys(t, dir, true); n != 3 {
		t.Errorf("%d keys", n)
	}
	t.Setenv("SOUK_KEY_FILE", "")
	if _, err := certs.New(t.Context(), o); !fault.Is(err, fault.Precondition) {
		t.Errorf("without the key: %v", err)
	}
}

// keys counts the files of keys, which are all sealed or all in clear.
func keys(t *testing.T, dir string, sealed bool) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && file != dir {
				if st, err := d.Info(); err != nil || st.Mode().Perm() != 0o700 {
					t.Errorf("%s: %v, %v", file, st.Mode(), err)
				}
			}
			return err
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		clear, is := bytes.Contains(raw, []byte("PRIVATE KEY")), bytes.HasPrefix(raw, []byte("souk sealed"))
		if st, err := d.Info(); (clear || is) && (err != nil || st.Mode().Perm() != 0o600 || is != sealed) {
			t.Errorf("%s: %v, sealed %v, %v", file, st.Mode(), is, err)
		}
		if clear || is {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
