package tlscert_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/tlscert"
)

// dial connects to a server with a config, as a client that trusts a root and means a host.
func dial(t *testing.T, c *tls.Config, roots *x509.CertPool, host string) (*x509.Certificate, error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_ = c.(*tls.Conn).Handshake() // the client's end tells what came of it
			_ = c.Close()
		}
	}()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", ln.Addr().String(),
		&tls.Config{RootCAs: roots, ServerName: host})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

func rootOf(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, tlscert.RootFile))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		t.Fatal("no root in the file")
	}
	return pool
}

func TestOwnCertificateCoversOnlyItsHosts(t *testing.T) {
	dir, hosts := t.TempDir(), []string{"10.0.0.7", "node-1.example", "fd00::7"}
	c, err := tlscert.Own(dir, hosts, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	roots := rootOf(t, dir)
	for _, h := range hosts {
		if _, err := dial(t, c, roots, h); err != nil {
			t.Errorf("%s: %v", h, err)
		}
	}
	if _, err := dial(t, c, roots, "10.0.0.8"); err == nil {
		t.Error("another host's name was accepted")
	}
	st, err := os.Stat(filepath.Join(dir, "api-root-key.pem"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the root's key: %v, %v", st.Mode(), err)
	}
	again, err := tlscert.Own(dir, hosts[:2], []string{"10.0.0.99"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, again, roots, "10.0.0.7"); err != nil {
		t.Errorf("a client does not trust it after a restart: %v", err)
	}
	if _, err := tlscert.Own(dir, []string{"10.0.0.8"}, nil, time.Now()); !fault.Is(err, fault.Precondition) {
		t.Errorf("a host that the root cannot vouch for: %v", err)
	}
}

// TestRootSignsForItsHostsOnly: a stolen root signs for no other hosts, in a client that checks name constraints as
// Go's does.
func TestRootSignsForItsHostsOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := tlscert.Own(dir, []string{"10.0.0.7"}, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"10.0.0.8", "bank.example"} {
		stolen, err := tlscert.Forge(dir, host)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dial(t, &tls.Config{Certificates: []tls.Certificate{*stolen}}, rootOf(t, dir), host); err == nil {
			t.Errorf("the root vouches for %s", host)
		}
	}
}

func TestOwnCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-80 * 24 * time.Hour)
	c, err := tlscert.Own(dir, []string{"10.0.0.7"}, nil, long)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := dial(t, c, rootOf(t, dir), "10.0.0.7")
	if err != nil || cert.NotBefore.Before(time.Now().Add(-24*time.Hour)) {
		t.Errorf("%v, %v", cert, err)
	}
}

func TestChangedFilesAreReloaded(t *testing.T) {
	var certs [2]string
	for i, host := range []string{"10.0.0.1", "10.0.0.2"} {
		certs[i] = t.TempDir()
		if _, err := tlscert.Own(certs[i], []string{host}, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	use := func(from string) {
		t.Helper()
		for file, name := range map[string]string{cert: tlscert.RootFile, key: "api-root-key.pem"} {
			raw, err := os.ReadFile(filepath.Join(from, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	use(certs[0])
	shown := func(now time.Time, s tlscert.Source) string {
		t.Helper()
		c, err := s.Certificate(now)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.Subject.CommonName
	}
	s, err := tlscert.OpenFiles(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	use(certs[1])
	later := now.Add(time.Hour)
	if err := os.Chtimes(cert, later, later); err != nil {
		t.Fatal(err)
	}
	if got := shown(now, s); got != "souk API of 10.0.0.1" {
		t.Errorf("within a second: %s", got)
	}
	if got := shown(now.Add(2*time.Second), s); got != "souk API of 10.0.0.2" {
		t.Errorf("after a change: %s", got)
	}
	if err := os.WriteFile(cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := shown(now.Add(4*time.Second), s); got != "souk API of 10.0.0.2" {
		t.Errorf("of a file that cannot be used: %s", got)
	}
	if _, err := tlscert.Files(cert, key, slog.New(slog.DiscardHandler)); !fault.Is(err, fault.Invalid) {
		t.Errorf("at the start: %v", err)
	}
}

// TestRootKeyIsSealed: with an external key the root's key is sealed on disk, also one that was in clear, for the API
// and for an authority.
func TestRootKeyIsSealed(t *testing.T) {
	t.Setenv("SOUK_KEY_FILE", "")
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	dir := t.TempDir()
	open := func() error {
		_, err := tlscert.Own(dir, []string{"10.0.0.7"}, nil, time.Now())
		if err == nil {
			_, err = tlscert.OpenAuthority(dir, []string{"localhost"}, time.Now())
		}
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOUK_KEY_FILE", key)
	roots := [2][]byte{}
	for i, name := range []string{tlscert.RootFile, tlscert.AuthorityFile} {
		roots[i], _ = os.ReadFile(filepath.Join(dir, name))
	}
	for range 2 {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{tlscert.RootFile, tlscert.AuthorityFile} {
		root, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(root, roots[i]) {
			t.Errorf("%s is another root: %v", name, err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, strings.TrimSuffix(name, ".pem")+"-key.pem"))
		if err != nil || !bytes.HasPrefix(raw, []byte("souk sealed")) {
			t.Errorf("the key of %s is in clear: %v", name, err)
		}
	}
	t.Setenv("SOUK_KEY_FILE", "")
	if err := open(); !fault.Is(err, fault.Precondition) {
		t.Errorf("without the key: %v", err)
	}
}
