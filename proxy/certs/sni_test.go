package certs_test

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/proxy/certs"
)

// handshake is one over TCP, with the name as it is given: none where it is empty.
func handshake(t *testing.T, c *certs.Certs, name string) (*tls.ConnectionState, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		far, err := ln.Accept()
		if err != nil {
			return
		}
		defer far.Close()
		_ = tls.Server(far, c.TLS()).HandshakeContext(t.Context()) // the client says what came of it
	}()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	x := tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err := x.HandshakeContext(t.Context()); err != nil {
		return nil, err
	}
	s := x.ConnectionState()
	return &s, nil
}

// TestClientWithoutSNIGetsTheAddressCertificate: a client without SNI, or with an unknown host, gets the certificate
// of the address, else default.crt, else an error.
func TestClientWithoutSNIGetsTheAddressCertificate(t *testing.T) {
	t.Parallel()
	with := func(files ...string) *certs.Certs {
		dir := t.TempDir()
		for _, f := range files {
			key := strings.NewReplacer(".crt", ".key", "fullchain", "privkey").Replace(f)
			write(t, filepath.Join(dir, f), filepath.Join(dir, key), time.Now().Add(day),
				"of."+filepath.Base(filepath.Dir("x/"+f))+".example")
		}
		c, _ := open(t, certs.Options{Files: dir, Local: []string{"localhost"}})
		return c
	}
	for what, x := range map[string]struct {
		c    *certs.Certs
		want string
	}{
		"a file":      {with("default.crt", "a.crt"), "of.x.example"},
		"a directory": {with("default/fullchain.pem", "a.crt"), "of.default.example"},
		"none":        {with("a.crt"), ""},
	} {
		s, err := handshake(t, x.c, "")
		switch {
		case x.want == "" && (err == nil || !strings.Contains(err.Error(), "unrecognized name")):
			t.Errorf("%s: %v", what, err)
		case x.want != "" && (err != nil || s.PeerCertificates[0].DNSNames[0] != x.want):
			t.Errorf("%s: %v", what, err)
		}
		if _, err := handshake(t, x.c, "nobody.example"); err == nil ||
			!strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s, and a name that has none: %v", what, err)
		}
		s, err = handshake(t, x.c, "SHOP.LocalHost")
		if err != nil || s.PeerCertificates[0].DNSNames[0] != "shop.localhost" {
			t.Errorf("%s, and a name in capitals: %v", what, err)
		}
	}
}
