package attack

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
)

// calls reports whether a member answers who calls with an identity.
func calls(x *thief, id *pki.Identity, at *agent) func() string {
	l := wire.NewClient(id, nil).Worker(cluster.WorkerID(at.name), func() string { return at.said.Wire })
	defer l.Close()
	_, err := l.Record(x.t.Context())
	return said("it is answered", err)
}

// certificateAttacks are what else there is to try with the certificate, its key and the token it was got with.
func (x *thief) certificateAttacks() []attack {
	own := func(x *thief, name pki.Name) *pki.Identity {
		ca, err := pki.Init(filepath.Join(x.copyDisk(), "ca-of-the-thief"), time.Now())
		must(x.t, err)
		dir := filepath.Join(x.copyDisk(), "identity-of-the-thief")
		must(x.t, ca.IssueTo(dir, name, time.Now()))
		id, err := pki.Load(dir)
		must(x.t, err)
		return id
	}
	all := []attack{
		{name: "a certificate of a CA of its own", try: func(x *thief) func() string {
			return calls(x, own(x, pki.Name{ID: "b", Roles: []pki.Role{pki.Gateway, pki.Issuer, pki.Worker}}), x.a)
		}},
		{name: "a session of TLS is resumed", works: true, try: (*thief).resume},
		{name: "the certificate as a CA for another", try: (*thief).leafAsCA},
		{name: "it is renewed by souk itself", works: true, try: func(x *thief) func() string {
			id, err := pki.Load(filepath.Join(x.copyDisk(), "identity"))
			must(x.t, err)
			return said("it has another certificate", wire.NewClient(id, nil).Renew(x.t.Context(), x.a.said.Wire))
		}},
	}
	for what, id := range map[string]string{"the id": "c", "another's id": "b", "a new id": "zed"} {
		all = append(all, attack{name: "it joins with the token that it joined with, under " + what,
			try: func(x *thief) func() string {
				_, err := x.w.try(nil, "join", x.a.said.Wire, "--dir", filepath.Join(x.w.dir, fmt.Sprint("j",
					x.phase, id)),
					"--id", id, "--token", x.joins)
				return said("it joined", err)
			}})
	}
	all = append(all, attack{name: "it joins with the token and the key that it joined with",
		try: (*thief).rejoin})
	for _, route := range []string{"hello", "bundle", "renew", "grant", "exec", "tokens", "record"} {
		all = append(all, attack{name: "the door for joins leads to " + route, try: func(x *thief) func() string {
			return x.byTheDoor("/wire/" + route)
		}})
	}
	return all
}

// rejoin asks again as a member does whose answer got lost: with the key that the token was used with.
func (x *thief) rejoin() func() string {
	raw, err := os.ReadFile(filepath.Join(x.disk, "identity", pki.MemberFile))
	must(x.t, err)
	dir := filepath.Join(x.copyDisk(), "again")
	for b, rest := pem.Decode(raw); b != nil; b, rest = pem.Decode(rest) {
		if strings.Contains(b.Type, "PRIVATE KEY") {
			must(x.t, os.MkdirAll(filepath.Join(dir, "identity"), 0o700))
			must(x.t, os.WriteFile(filepath.Join(dir, "identity", "pending.pem"), pem.EncodeToMemory(b), 0o600))
		}
	}
	_, err = x.w.try(nil, "join", x.a.said.Wire, "--dir", dir, "--id", "c", "--token", x.joins)
	return said("it joined", err)
}

// conf is the TLS of who calls with the certificate of the disk, and asks whoever is there.
func (x *thief) conf() *tls.Config {
	c := x.id.ClientTLS(time.Now, "", "", "h2")
	c.SessionTicketsDisabled = false
	c.ClientSessionCache = x.sessions
	return c
}

// post asks the member that holds the CA for something over TLS.
func (x *thief) post(conf *tls.Config, path string) func() string {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	via := &http.Transport{Protocols: protocols, DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&tls.Dialer{Config: conf}).DialContext(ctx, network, x.a.said.Wire)
		}}
	client := http.Client{Transport: via, Timeout: soon}
	r, err := http.NewRequest(http.MethodPost, "https://souk"+path, strings.NewReader("{}"))
	must(x.t, err)
	r.Header.Set("Souk-Capability", fmt.Sprintf("%d %d", wire.Capability, wire.Oldest))
	res, err := client.Do(r)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return atOnce("it was answered")
	}
	return nil
}

// resume goes on with the TLS session of before the removal.
func (x *thief) resume() func() string { return x.post(x.conf(), "/wire/record") }

// byTheDoor asks for a route by the door that needs no certificate.
func (x *thief) byTheDoor(path string) func() string {
	token, err := pki.ParseToken(x.joins)
	must(x.t, err)
	return x.post(pki.JoinTLS(token, time.Now, "h2"), path)
}

// leafAsCA signs a certificate for b with the key of the disk, and shows both.
func (x *thief) leafAsCA() func() string {
	chain, err := x.conf().GetClientCertificate(nil)
	must(x.t, err)
	leaf, err := x509.ParseCertificate(chain.Certificate[0])
	must(x.t, err)
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	must(x.t, err)
	made := *leaf
	made.Subject.CommonName = "b"
	for _, u := range made.URIs {
		*u = url.URL{Scheme: u.Scheme, Opaque: strings.ReplaceAll(u.Opaque, "c", "b"), Host: u.Host,
			Path: strings.ReplaceAll(u.Path, "/c", "/b")}
	}
	der, err := x509.CreateCertificate(rand.Reader, &made, leaf, pub, chain.PrivateKey)
	must(x.t, err)
	forged := tls.Certificate{Certificate: append([][]byte{der}, chain.Certificate...), PrivateKey: key}
	conf := x.conf()
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &forged, nil }
	return x.post(conf, "/wire/record")
}
