package certs_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
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

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/proxy/certs"
)

// lines is a log that tests read.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), words)
}

func open(t *testing.T, o certs.Options) (*certs.Certs, *lines) {
	t.Helper()
	log := new(lines)
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Allowed == nil {
		o.Allowed = func(string) bool { return true }
	}
	c, err := certs.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, log
}

// shown returns the certificate that a client is shown, and what it was refused with at the server.
func shown(t *testing.T, conf *tls.Config, name string, protocols ...string) (*x509.Certificate, error) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	refused := make(chan error, 1)
	go func() {
		s := tls.Server(far, conf)
		err := s.HandshakeContext(context.Background())
		refused <- err
		if err != nil {
			far.Close()
		}
	}()
	c := tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols})
	if err := c.HandshakeContext(t.Context()); err != nil {
		if strings.Contains(err.Error(), "unrecognized name") { // the alert for what is not there
			err = fault.Wrap(err, fault.NotFound, "no_certificate", "no certificate was shown")
			return nil, errors.Join(err, <-refused)
		}
		return nil, <-refused
	}
	return c.ConnectionState().PeerCertificates[0], nil
}

func mustShow(t *testing.T, c *certs.Certs, name string) *x509.Certificate {
	t.Helper()
	leaf, err := shown(t, c.TLS(), name, "h2")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return leaf
}

// write makes a certificate of its own for names, as two files.
func write(t *testing.T, certFile, keyFile string, ends time.Time, names ...string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	tmpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

const day = 24 * time.Hour

// TestCertificateFilesAreServedAndReloaded: own certificates are served by name, exact names before wildcards, and
// reloaded when they change.
func TestCertificateFilesAreServedAndReloaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	one := write(t, in("shop.crt"), in("shop.key"), time.Now().Add(30*day), "shop.example.com")
	wild := write(t, in("live/fullchain.pem"), in("live/privkey.pem"), time.Now().Add(90*day), "*.example.com")
	c, log := open(t, certs.Options{Files: dir, Allowed: func(string) bool { return false }})
	for name, want := range map[string]*x509.Certificate{"shop.example.com": one, "SHOP.example.com.": one,
		"other.example.com": wild} {
		if got := mustShow(t, c, name); !got.Equal(want) {
			t.Errorf("%s is shown %v", name, got.DNSNames)
		}
	}
	for _, name := range []string{"example.com", "a.b.example.com", "shop.example.org"} {
		if _, err := shown(t, c.TLS(), name); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}

	next := write(t, in("shop.crt"), in("shop.key"), time.Now().Add(31*day), "shop.example.com", "new.example.org")
	waittest.Until(t, "the new one is shown", func() bool { return mustShow(t, c, "shop.example.com").Equal(next) })
	mustShow(t, c, "new.example.org")

	// one that is broken changes nothing, and is told once
	if err := os.WriteFile(in("shop.key"), []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the broken one is reported", func() bool { return log.count("cannot be used") == 1 })
	write(t, in("third.crt"), in("third.key"), time.Now().Add(day), "third.example.org")
	waittest.Until(t, "the new file is seen", func() bool {
		_, err := shown(t, c.TLS(), "third.example.org")
		return err == nil
	})
	if got := mustShow(t, c, "shop.example.com"); !got.Equal(next) || log.count("cannot be used") != 1 {
		t.Errorf("%v is shown, told %d times", got.DNSNames, log.count("cannot be used"))
	}
	list := c.Certificates()
	if len(list) != 3 || list[0].Names[0] != "*.example.com" || list[1].Error == "" || list[1].File != in("shop.crt") {
		t.Errorf("%+v", list)
	}

	if err := os.Remove(in("third.crt")); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "what was removed is no longer shown", func() bool {
		_, err := shown(t, c.TLS(), "third.example.org")
		return err != nil
	})
}

// TestExpiredCertificateIsReplacedIfPossible: an expired certificate is reported, and not served where there is
// another.
func TestExpiredCertificateIsReplacedIfPossible(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("a.crt"), in("a.key"), time.Now().Add(-day), "shop.localhost")
	c, log := open(t, certs.Options{Files: dir, Local: []string{"localhost"}})
	if got := mustShow(t, c, "shop.localhost"); got.Issuer.CommonName != "souk proxy of localhost" {
		t.Error(got.Issuer)
	}
	if log.count("it ended on") != 1 {
		t.Error("its end was not told")
	}
	later := write(t, in("b.crt"), in("b.key"), time.Now().Add(day), "shop.localhost")
	waittest.Until(t, "the good one is shown", func() bool { return mustShow(t, c, "shop.localhost").Equal(later) })
}

// TestLocalCertificatesShareOneRoot: local names have certificates of a root that is made once and covers no other
// names.
func TestLocalCertificatesShareOneRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := certs.Options{Dir: dir, Local: []string{"localhost", "test"}}
	c, _ := open(t, o)
	raw, err := os.ReadFile(c.LocalRoot())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	long := strings.Repeat("a.", 80) + "test"
	for _, name := range []string{"shop.localhost", "a.b.test", "localhost", long} {
		leaf := mustShow(t, c, name)
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !mustShow(t, c, name).Equal(leaf) {
			t.Errorf("%s has another one each time", name)
		}
	}
	for _, name := range []string{"example.com", "notlocalhost", "shop.localhost.example.com"} {
		if _, err := shown(t, c.TLS(), name); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list := c.Certificates(); len(list) != 4 || list[0].Source != "local" {
		t.Errorf("%+v", list)
	}
	again, _ := open(t, o)
	leaf := mustShow(t, again, "shop.localhost")
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "shop.localhost"}); err != nil {
		t.Errorf("the root was made twice: %v", err)
	}
	o.Local, o.Allowed = []string{"example.com"}, func(string) bool { return true }
	if _, err := certs.New(t.Context(), o); !fault.Is(err, fault.Precondition) {
		t.Errorf("a root for others is taken: %v", err)
	}
}

// TestUnknownNamesGetNoCertificate: no certificate is made for an unknown name.
func TestUnknownNamesGetNoCertificate(t *testing.T) {
	t.Parallel()
	c, _ := open(t, certs.Options{Local: []string{"localhost"},
		Allowed: func(name string) bool { return name == "a.localhost" }})
	mustShow(t, c, "a.localhost")
	for _, name := range []string{"b.localhost", "", "a..localhost", "-a.localhost", "a b.localhost", "ä.localhost",
		strings.Repeat("a", 64) + ".localhost", "127.0.0.1"} {
		if _, err := shown(t, c.TLS(), name); err == nil {
			t.Errorf("%q was shown a certificate", name)
		}
	}
	if list := c.Certificates(); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	if conf := c.TLS(); conf.MinVersion != tls.VersionTLS12 || len(conf.NextProtos) != 2 {
		t.Errorf("%+v", conf)
	}
}

// TestFailingAuthorityIsAskedOnce: a failing authority is asked once per name and then not for a while; the name has a
// local certificate meanwhile.
func TestFailingAuthorityIsAskedOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c, log := open(t, certs.Options{Local: []string{"fallback.example"}, ACME: &certs.ACME{Directory: s.URL,
		Agreed: true, Roots: roots, HTTP: true, TLS: true}})
	_, err := shown(t, c.TLS(), "shop.example.com", "h2")
	if !fault.Is(err, fault.Unavailable) || asked.Load() == 0 {
		t.Errorf("%v, asked %d times", err, asked.Load())
	}
	n := asked.Load()
	for range 3 {
		if _, err := shown(t, c.TLS(), "shop.example.com", "h2"); err == nil {
			t.Error("it has one")
		}
	}
	if asked.Load() != n || log.count("no certificate was got") != 1 {
		t.Errorf("asked %d times, then %d; told %d times", n, asked.Load(), log.count("no certificate was got"))
	}
	if got := mustShow(t, c, "a.fallback.example"); got.Issuer.CommonName != "souk proxy of fallback.example" {
		t.Error(got.Issuer)
	}
	if list := c.Certificates(); len(list) != 3 || list[1].Error == "" {
		t.Errorf("%+v", list)
	}
	problems := c.Problems()
	if len(problems) != 2 || c.Failures() != 2 {
		t.Fatalf("%d failures, %+v", c.Failures(), problems)
	}
	p := problems[1]
	if p.Names[0] != "shop.example.com" || !strings.Contains(p.Why, "403") || p.Ends != nil ||
		!p.Again.After(time.Now()) || p.Again.After(time.Now().Add(time.Minute)) {
		t.Errorf("%+v", p)
	}
	for _, name := range []string{"shop.localhost", "10.0.0.1", "shop"} { // no authority has these
		_, _ = shown(t, c.TLS(), name, "h2")
	}
	if asked.Load() > 2*n {
		t.Errorf("asked for names that it cannot vouch for")
	}
	if _, err := shown(t, c.TLS(), "shop.example.com", "acme-tls/1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a challenge that is not there: %v", err)
	}
}

// nobody are other members that have nothing.
type nobody struct{ certs.Others }

// TestInvalidACMEOptionsAreRefused: ACME options that cannot work are refused.
func TestInvalidACMEOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]certs.ACME{
		"terms":        {Directory: "https://a.example", HTTP: true},
		"directory":    {Directory: "http://a.example", HTTP: true, Agreed: true},
		"no door":      {Directory: "https://a.example", Agreed: true},
		"in a cluster": {Directory: "https://a.example", Agreed: true, TLS: true},
		"account":      {Directory: "https://a.example", Agreed: true, HTTP: true, KeyID: "a"},
	} {
		opts := certs.Options{Dir: t.TempDir(), ACME: &o, Allowed: func(string) bool { return true }}
		if name == "in a cluster" {
			opts.Others = nobody{}
		}
		_, err := certs.New(t.Context(), opts)
		if err == nil || fault.KindOf(err) == fault.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	if _, err := certs.New(t.Context(), certs.Options{Dir: t.TempDir(), Files: none}); err == nil {
		t.Error("a directory that is not there is taken")
	}
}
