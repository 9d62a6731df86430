package pki

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/fault"
)

// The files of a member's directory. Key, certificate, roots and gossip keys share one file, so that they are replaced
// atomically.
const (
	MemberFile  = "member.pem"  // key, certificate, roots, gossip keys
	pendingFile = "pending.pem" // the key of an unanswered request
)

// Request asks an issuer for a certificate. Its key never leaves the member.
type Request struct {
	CSR   []byte // DER
	key   ed25519.PrivateKey
	write func(file string, data []byte) error // writes a file with keys
}

// NewRequest makes a key in the member's directory dir, or reuses the key of an unanswered request: if an answer got
// lost, the same request is repeated.
func NewRequest(dir string) (*Request, error) { return newRequest(dir, writeKeys) }

func newRequest(dir string, write func(file string, data []byte) error) (*Request, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fileFault(err, dir)
	}
	file := filepath.Join(dir, pendingFile)
	raw, err := readKeys(file)
	var b blocks
	if err == nil {
		b, err = parseBlocks(raw, file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if b.key == nil {
		_, b.key, _ = ed25519.GenerateKey(rand.Reader) // never fails
		if err := write(file, keyPEM(b.key)); err != nil {
			return nil, err
		}
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, b.key)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeCSR, "a certificate request could not be made")
	}
	return &Request{csr, b.key, write}, nil
}

// Accept checks an issuer's answer and stores it as the member's own, atomically.
func (r *Request) Accept(dir string, c Credentials, now time.Time) error {
	h, err := r.checkCredentials(c, now)
	if err != nil {
		return err
	}
	if err := r.write(filepath.Join(dir, MemberFile), h.encodePEM(r.key)); err != nil {
		return err
	}
	os.Remove(filepath.Join(dir, pendingFile)) // if this fails, the next renewal reuses the key, which does no harm
	return nil
}

func (r *Request) checkCredentials(c Credentials, now time.Time) (*held, error) {
	b, err := parseBlocks(slices.Concat(c.Certificate, c.Roots), "the issuer's answer")
	if err != nil {
		return nil, err
	}
	h, err := newHeld(r.key, b.certs, c.gossipKeys())
	if err == nil {
		_, err = verifyCertificate(h.tls.Leaf, h.roots, now)
	}
	return h, err
}

// held is everything a member's file contains, immutable.
type held struct {
	name   Name
	tls    tls.Certificate
	roots  []*x509.Certificate
	gossip GossipKeys
}

// newHeld combines a key, its certificate and the roots; certs holds the certificate and the roots, in any order.
func newHeld(key ed25519.PrivateKey, certs []*x509.Certificate, gossip GossipKeys) (*held, error) {
	h := &held{gossip: gossip}
	for _, c := range certs {
		if c.IsCA {
			h.roots = append(h.roots, c)
		} else {
			h.tls.Leaf = c
		}
	}
	if key == nil || h.tls.Leaf == nil || len(h.roots) == 0 {
		return nil, fault.New(fault.Invalid, codeCredentials, "a key, a certificate or a root is missing; join again")
	}
	if pub, ok := h.tls.Leaf.PublicKey.(ed25519.PublicKey); !ok || !pub.Equal(key.Public()) {
		return nil, fault.New(fault.Invalid, codeCredentials, "the certificate is for another key; join again")
	}
	var err error
	h.name, err = nameOf(h.tls.Leaf)
	h.tls.PrivateKey = key
	h.tls.Certificate = [][]byte{h.tls.Leaf.Raw}
	for _, r := range h.roots { // sent in the handshake: a joining member knows a root only by its digest
		h.tls.Certificate = append(h.tls.Certificate, r.Raw)
	}
	return h, err
}

func (h *held) encodePEM(key ed25519.PrivateKey) []byte {
	return slices.Concat(keyPEM(key), certPEM(h.tls.Leaf), certPEM(h.roots...), h.gossip.encodePEM())
}

// Identity is a member's own certificate and the roots it trusts, as loaded from its directory. They may be replaced
// while in use: connections made afterwards use the new ones. It is safe for concurrent use.
type Identity struct {
	dir string
	mu  sync.Mutex // serializes changes
	now atomic.Pointer[held]

	authorsMu sync.Mutex
	authors   map[string]author // by certificate
}

// Load reads a member's directory; NotFound if the member has not joined.
func Load(dir string) (*Identity, error) {
	i := &Identity{dir: dir}
	return i, i.Reload()
}

// Reload reads the directory again, to pick up files that another process has changed.
func (i *Identity) Reload() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	file := filepath.Join(i.dir, MemberFile)
	raw, err := readKeys(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, codeNotJoined, "%s holds no certificate; `souk join` gets one", i.dir)
	}
	if err != nil {
		return err
	}
	b, err := parseBlocks(raw, file)
	if err != nil {
		return err
	}
	h, err := newHeld(b.key, b.certs, b.gossip)
	if err == nil {
		i.now.Store(h)
	}
	return err
}

// Name returns the member's name.
func (i *Identity) Name() Name { return i.now.Load().name }

// GossipKeys returns the gossip keys.
func (i *Identity) GossipKeys() GossipKeys { return i.now.Load().gossip }

// Ends returns when the member's certificate expires.
func (i *Identity) Ends() time.Time { return i.now.Load().tls.Leaf.NotAfter }

// Begins returns the start of the certificate's validity: an hour before it was made, as clocks differ.
func (i *Identity) Begins() time.Time { return i.now.Load().tls.Leaf.NotBefore }

// RenewalDue reports whether a third of the certificate's validity has passed.
func (i *Identity) RenewalDue(now time.Time) bool {
	leaf := i.now.Load().tls.Leaf
	return !now.Before(leaf.NotBefore.Add(skew + RenewAfter))
}

// Request starts a renewal.
func (i *Identity) Request() (*Request, error) { return NewRequest(i.dir) }

// Accept completes a renewal. The new certificate must have the member's current id and roles.
func (i *Identity) Accept(r *Request, c Credentials, now time.Time) error {
	h, err := r.checkCredentials(c, now)
	if err != nil {
		return err
	}
	i.keepNewerKeys(&c)
	if n := i.Name(); h.name.ID != n.ID || !slices.Equal(h.name.Roles, n.Roles) {
		return fault.New(fault.Denied, fault.CodeCertificate,
			"the issuer sent a certificate for %s %v, but this member is %s %v", h.name.ID, h.name.Roles, n.ID,
			n.Roles)
	}
	if err := r.Accept(i.dir, c, now); err != nil {
		return err
	}
	return i.Reload()
}

// Trust stores a new bundle, of roots and gossip keys, from an issuer. It refuses a bundle without the root of the
// member's own certificate: with it the member could verify no other.
func (i *Identity) Trust(c Credentials, now time.Time) error {
	i.keepNewerKeys(&c)
	h := i.now.Load()
	b, err := parseBlocks(c.Roots, "the issuer's bundle")
	if err != nil {
		return err
	}
	next, err := newHeld(h.tls.PrivateKey.(ed25519.PrivateKey), append([]*x509.Certificate{h.tls.Leaf}, b.certs...),
		c.gossipKeys())
	if err != nil {
		return err
	}
	if _, err := verifyCertificate(next.tls.Leaf, next.roots, now); err != nil {
		return err
	}
	if err := writeKeys(filepath.Join(i.dir, MemberFile),
		next.encodePEM(h.tls.PrivateKey.(ed25519.PrivateKey))); err != nil {
		return err
	}
	return i.Reload()
}
