package pki

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// joinServer is the TLS server name that a caller without a certificate uses to join.
const joinServer = "join.souk"

// verifyCertificate returns the name in c, if one of the roots signed c and c is valid at now; else Denied with the
// reason.
func verifyCertificate(c *x509.Certificate, roots []*x509.Certificate, now time.Time) (Name, error) {
	pool := x509.NewCertPool()
	for _, r := range roots {
		pool.AddCert(r)
	}
	_, err := c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok && bad.Reason == x509.Expired {
		if now.Before(c.NotBefore) {
			return Name{}, fault.Wrap(err, fault.Denied, codeCertificateEarly,
				"the certificate of %s begins on %s and it is %s here; set the clocks right",
				clip(c.Subject.CommonName), formatMinute(c.NotBefore), formatMinute(now))
		}
		return Name{}, fault.Wrap(err, fault.Denied, CodeCertificateExpired,
			"the certificate of %s, or its root, has ended (%s); see docs/break-glass.md", clip(c.Subject.CommonName),
			formatMinute(c.NotAfter))
	}
	if err != nil {
		return Name{}, fault.Wrap(err, fault.Denied, fault.CodeCertificate,
			"the certificate is not of this cluster's CA")
	}
	return nameOf(c)
}

// NameOf returns the name of the peer of a connection made with ServerTLS or ClientTLS. It checks the certificate's
// validity at now again: a connection may outlive its certificate.
func (i *Identity) NameOf(cs *tls.ConnectionState, now time.Time) (Name, error) {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return Name{}, fault.New(fault.Denied, fault.CodeCertificate,
			"the caller showed no certificate; only members may ask this")
	}
	c := cs.PeerCertificates[0]
	if now.After(c.NotAfter) {
		return Name{}, fault.New(fault.Denied, CodeCertificateExpired,
			"the certificate of %s expired on %s; connect again with a newer one", clip(c.Subject.CommonName),
			formatMinute(c.NotAfter))
	}
	return nameOf(c)
}

// baseConfig is the part common to servers and clients. Only VerifyConnection verifies certificates: it uses the
// current roots, and ids instead of host names. Session resumption is off, because a session would keep an old
// certificate in use.
func baseConfig(alpn []string, check func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: alpn, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, VerifyConnection: check, //nolint:gosec // VerifyConnection does it
	}
}

// ServerTLS is the configuration of a listener: callers must present a certificate of this cluster. On an issuer with
// join set, callers of JoinTLS need no certificate; the listener must limit what they can use up.
func (i *Identity) ServerTLS(now func() time.Time, join bool, alpn ...string) *tls.Config {
	mine := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &i.now.Load().tls, nil }
	members := baseConfig(alpn, func(cs tls.ConnectionState) error {
		_, err := i.verifyPeer(cs, now())
		return err
	})
	members.ClientAuth, members.GetCertificate = tls.RequireAnyClientCert, mine
	if !join {
		return members
	}
	strangers := baseConfig(alpn, nil)
	strangers.ClientAuth, strangers.GetCertificate = tls.NoClientCert, mine
	out := members.Clone()
	out.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName == joinServer && i.Name().Has(Issuer) {
			return strangers, nil
		}
		return members, nil
	}
	return out
}

func (i *Identity) verifyPeer(cs tls.ConnectionState, now time.Time) (Name, error) {
	if len(cs.PeerCertificates) == 0 {
		return Name{}, fault.New(fault.Denied, fault.CodeCertificate, "the other end showed no certificate")
	}
	return verifyCertificate(cs.PeerCertificates[0], i.now.Load().roots, now)
}

// ClientTLS is the configuration to call a member: the peer must be id and have the role; "" allows any.
func (i *Identity) ClientTLS(now func() time.Time, id string, role Role, alpn ...string) *tls.Config {
	c := baseConfig(alpn, func(cs tls.ConnectionState) error {
		n, err := i.verifyPeer(cs, now())
		if err == nil && (id != "" && n.ID != id || role != "" && !n.Has(role)) {
			err = fault.New(fault.Denied, fault.CodePeer,
				"the connection was meant for %s (%s), but %s with the roles %v answers at its address", id,
				role, n.ID, n.Roles)
		}
		return err
	})
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &i.now.Load().tls,
			nil
	}
	return c
}

// JoinTLS is the configuration to call an issuer with a token: the peer must be an issuer under the root that the token
// names. No request is sent before that is verified.
func JoinTLS(t Token, now func() time.Time, alpn ...string) *tls.Config {
	c := baseConfig(alpn, func(cs tls.ConnectionState) error {
		at := slices.IndexFunc(cs.PeerCertificates, func(c *x509.Certificate) bool {
			return c.IsCA &&
				certificateDigest(c) == t.Root
		})
		if at < 0 {
			return fault.New(fault.Denied, codeCA,
				"the server at that address does not belong to the cluster that the token is for; nothing was sent "+
					"to it: check the address and the token")
		}
		n, err := verifyCertificate(cs.PeerCertificates[0], cs.PeerCertificates[at:at+1], now())
		if err == nil && !n.Has(Issuer) {
			err = fault.New(fault.Denied, CodeIssuer,
				"%s is a member but not an issuer; join at the member that holds the CA, or, if that one is lost, "+
					"put a copy of the CA back at %s, run there: souk ca issue %s --role gateway,issuer,worker "+
					"--out DIR/identity, and start its agent again", n.ID, n.ID, n.ID)
		}
		return err
	})
	c.ServerName = joinServer
	return c
}

// Signature is a member's signature, verifiable also by members that received the message from others.
type Signature struct {
	Certificate []byte `json:"certificate"` // DER
	Signature   []byte `json:"signature"`
}

// Sign signs a message under a context, a short fixed text that names the kind of message (ed25519ctx, RFC 8032
func (i *Identity) Sign(context string, message []byte) (Signature, error) {
	h := i.now.Load()
	sig, err := h.tls.PrivateKey.(ed25519.PrivateKey).Sign(nil, message, &ed25519.Options{Context: context})
	if err != nil {
		return Signature{}, fault.Wrap(err, fault.Internal, codeSign, "a message of the kind %q could not be signed",
			clip(context))
	}
	return Signature{h.tls.Leaf.Raw, sig}, nil
}

// Authored returns the signer of a message under a context. A signature stays valid after its certificate has expired.
// Certificates are cached and verified again once an hour.
func (i *Identity) Authored(context string, message []byte, s Signature, now time.Time) (Name, error) {
	a, err := i.verifyAuthor(s.Certificate, now)
	if err != nil {
		return Name{}, err
	}
	if ed25519.VerifyWithOptions(a.key, message, s.Signature, &ed25519.Options{Context: context}) != nil {
		return Name{}, fault.New(fault.Denied, CodeSignature, "the signature of %s does not match the message",
			a.name.ID)
	}
	return a.name, nil
}

// author is a verified certificate.
type author struct {
	name  Name
	key   ed25519.PublicKey
	roots *held     // the roots it was verified with
	until time.Time // when it must be verified again
}

const (
	maxAuthors  = 4096 // certificates in the cache
	authorsLast = time.Hour
)

func (i *Identity) verifyAuthor(der []byte, now time.Time) (author, error) {
	h := i.now.Load()
	i.authorsMu.Lock()
	a, known := i.authors[string(der)]
	i.authorsMu.Unlock()
	if known && a.roots == h && now.Before(a.until) {
		return a, nil
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return a, fault.Wrap(err, fault.Denied, CodeSignature, "the signer's certificate cannot be read")
	}
	at := now
	if at.After(c.NotAfter) {
		at = c.NotAfter
	}
	n, err := verifyCertificate(c, h.roots, at)
	if err != nil {
		return a, err
	}
	key, ok := c.PublicKey.(ed25519.PublicKey)
	if !ok {
		return a, fault.New(fault.Denied, CodeSignature, "the certificate of %s has a key of another kind", n.ID)
	}
	a = author{name: n, key: key, roots: h, until: now.Add(authorsLast)}
	i.authorsMu.Lock()
	defer i.authorsMu.Unlock()
	if i.authors == nil || len(i.authors) >= maxAuthors {
		i.authors = make(map[string]author)
	}
	i.authors[string(der)] = a
	return a, nil
}
