package pki

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/atrest"
)

// Validity times.
const (
	CertificateLife = 90 * 24 * time.Hour
	RenewAfter      = CertificateLife / 3
	RootLife        = 10 * 365 * 24 * time.Hour
	skew            = time.Hour // a certificate begins this much before it is made, as clocks differ
)

// CA is the certificate authority in a directory of this host. It caches nothing, so a command line and a running
// member may use one directory at once, and a copy of the directory is a second issuer. The directory:
//
//	root-N.pem    root number N and its key
//	active        which root signs, and since when
//	gossip.keys   the keys that gossip is encrypted with, see GossipKeys
//	tokens/       join tokens by the hash of their secret, until they expire
//	issued/       the id of each certificate, so that no id is given out twice
type CA struct{ dir string }

type root struct {
	number int
	cert   *x509.Certificate
	key    ed25519.PrivateKey
}

type active struct {
	Root  int       `json:"root"`
	Since time.Time `json:"since"`
}

// Credentials are an issuer's answer to a member: its certificate, the bundle of roots (both PEM) and the gossip keys,
// the one in use first.
type Credentials struct {
	Certificate []byte   `json:"certificate,omitempty"`
	Roots       []byte   `json:"roots"`
	GossipKeys  [][]byte `json:"gossip_keys"`

	GossipGeneration int      `json:"gossip_generation,omitempty"`
	GossipRetired    [][]byte `json:"gossip_retired,omitempty"`
}

// Init makes a CA in dir; Conflict if dir holds one already.
func Init(dir string, now time.Time) (*CA, error) {
	c := &CA{dir}
	for _, d := range []string{dir, c.path("tokens"), c.path("issued")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fileFault(err, d)
		}
	}
	if _, err := os.Stat(c.path("active")); err == nil {
		return nil, fault.New(fault.Conflict, codeCAExists,
			"%s holds a CA already; use it, or choose another directory",
			dir)
	}
	if err := c.makeRoot(1, now); err != nil {
		return nil, err
	}
	key := make([]byte, gossipKeySize)
	rand.Read(key)
	if err := writeKeys(c.path(gossipFile), GossipKeys{Keys: [][]byte{key}}.encodePEM()); err != nil {
		return nil, err
	}
	// Last: a CA without this file was never finished, and Init makes it again.
	if err := writeNew(c.path("active"), mustJSON(active{1, now})); err != nil {
		return nil, fault.As(err)
	}
	return c, nil
}

// OpenCA opens the CA in dir; NotFound when there is none.
func OpenCA(dir string) (*CA, error) {
	c := &CA{dir}
	if _, err := c.readActive(); err != nil {
		return nil, err
	}
	return c, nil
}

// Guard reads all keys of the directory, so that those stored in clear are sealed if an external key is now configured.
// An issuer calls it when it starts.
func (c *CA) Guard() error {
	_, err := c.Bundle()
	return err
}

func (c *CA) path(names ...string) string { return filepath.Join(append([]string{c.dir}, names...)...) }

func (c *CA) rootFile(n int) string { return c.path("root-" + strconv.Itoa(n) + ".pem") }

func (c *CA) readActive() (a active, err error) {
	err = readJSON(c.path("active"), &a)
	if errors.Is(err, fs.ErrNotExist) {
		err = fault.New(fault.NotFound, codeCA,
			"%s holds no CA; name the directory that `souk init` made, or a copy of it", c.dir)
	}
	return a, err
}

func (c *CA) makeRoot(n int, now time.Time) error {
	pub, key, _ := ed25519.GenerateKey(rand.Reader) // never fails: a broken random source ends the program
	t := &x509.Certificate{
		SerialNumber: randomSerial(), Subject: pkix.Name{CommonName: fmt.Sprintf("souk CA %d", n)},
		NotBefore: now.Add(-skew), NotAfter: now.Add(RootLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, pub, key)
	if err != nil {
		return fault.Wrap(err, fault.Internal, codeCA, "a root could not be signed")
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fault.Wrap(err, fault.Internal, codeCA, "a root just signed cannot be read")
	}
	return writeKeys(c.rootFile(n), slices.Concat(keyPEM(key), certPEM(cert)))
}

// allRoots returns all roots, oldest first. It skips other files.
func (c *CA) allRoots() ([]root, error) {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fileFault(err, c.dir)
	}
	var out []root
	for _, f := range files {
		text, ok := strings.CutPrefix(strings.TrimSuffix(f.Name(), ".pem"), "root-")
		n, err := strconv.Atoi(text)
		if !ok || err != nil || n < 1 {
			continue
		}
		r, err := c.readRoot(n)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b root) int { return a.number - b.number })
	return out, nil
}

func (c *CA) readRoot(n int) (root, error) {
	file := c.rootFile(n)
	raw, err := readKeys(file)
	if fault.CodeOf(err) == atrest.Fault {
		return root{}, err
	}
	if err != nil {
		return root{}, fault.Wrap(err, fault.Unavailable, codeCA, "root %d of the CA cannot be read", n)
	}
	b, err := parseBlocks(raw, file)
	if err == nil && (b.key == nil || len(b.certs) != 1) {
		err = fault.New(fault.Invalid, fault.CodeFile, "%s is damaged: it must hold one key and one certificate", file)
	}
	if err != nil {
		return root{}, err
	}
	return root{n, b.certs[0], b.key}, nil
}

// signingRoot returns the root that signs now.
func (c *CA) signingRoot() (root, error) {
	a, err := c.readActive()
	if err != nil {
		return root{}, err
	}
	return c.readRoot(a.Root)
}

// Bundle returns the roots to trust now and the gossip keys, without a certificate.
func (c *CA) Bundle() (Credentials, error) {
	roots, err := c.allRoots()
	if err != nil {
		return Credentials{}, err
	}
	var out Credentials
	for _, r := range roots {
		out.Roots = append(out.Roots, certPEM(r.cert)...)
	}
	k, err := c.Gossip()
	out.GossipKeys, out.GossipGeneration, out.GossipRetired = k.Keys, k.Generation, k.Retired
	return out, err
}

// issueCertificate signs a certificate of n for the key pub.
func (c *CA) issueCertificate(now time.Time, pub ed25519.PublicKey, n Name) (Credentials, error) {
	by, err := c.signingRoot()
	if err != nil {
		return Credentials{}, err
	}
	if now.After(by.cert.NotAfter) {
		return Credentials{}, fault.New(fault.Unavailable, codeCAExpired,
			"the CA's root ended on %s; see docs/break-glass.md", formatMinute(by.cert.NotAfter))
	}
	t := &x509.Certificate{
		SerialNumber: randomSerial(), Subject: pkix.Name{CommonName: n.ID}, URIs: n.nameURIs(),
		NotBefore: now.Add(-skew), NotAfter: earlierOf(now.Add(CertificateLife), by.cert.NotAfter),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth,
			x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, by.cert, pub, by.key)
	if err != nil {
		return Credentials{}, fault.Wrap(err, fault.Internal, codeCA, "the certificate of %s could not be signed", n.ID)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return Credentials{}, fault.Wrap(err, fault.Internal, codeCA, "a certificate just signed cannot be read")
	}
	out, err := c.Bundle()
	out.Certificate = certPEM(leaf)
	return out, err
}

// Renew issues the member peer, whose certificate the caller has verified, a new certificate of the same name for the
// key of csr (DER).
func (c *CA) Renew(now time.Time, peer Name, csr []byte) (Credentials, error) {
	pub, err := requestKey(csr)
	if err != nil {
		return Credentials{}, err
	}
	out, err := c.issueCertificate(now, pub, peer)
	if err == nil {
		err = c.noteIssued(peer, pub, now)
	}
	return out, err
}

// IssueTo gives a member a new key and certificate in its directory dir, offline: for the first issuer, and for
// break-glass. It requires no token: a process that can read the CA's key may issue anyway. The files are in clear,
// because dir may be meant for another host with another external key; the member seals them when it reads them.
func (c *CA) IssueTo(dir string, n Name, now time.Time) error {
	n, err := n.check()
	if err != nil {
		return err
	}
	req, err := newRequest(dir, writeWhole)
	if err != nil {
		return err
	}
	pub, err := requestKey(req.CSR)
	if err != nil {
		return err
	}
	cred, err := c.issueCertificate(now, pub, n)
	if err == nil {
		err = c.noteIssued(n, pub, now)
	}
	if err != nil {
		return err
	}
	return req.Accept(dir, cred, now)
}

// Imitate returns an identity that a thief of the member's disk could have: with a certificate that begins at now, and
// its own key, only in memory. It serves to test whether the other members refuse the thief.
func (c *CA) Imitate(n Name, now time.Time) (*Identity, error) {
	n, err := n.check()
	if err != nil {
		return nil, err
	}
	pub, key, _ := ed25519.GenerateKey(rand.Reader) // never fails: a broken random source ends the program
	cred, err := c.issueCertificate(now, pub, n)
	if err != nil {
		return nil, err
	}
	b, err := parseBlocks(slices.Concat(cred.Certificate, cred.Roots), "an imitated certificate")
	if err != nil {
		return nil, err
	}
	h, err := newHeld(key, b.certs, cred.gossipKeys())
	if err != nil {
		return nil, err
	}
	i := &Identity{}
	i.now.Store(h)
	return i, nil
}

// requestKey returns the key of a certificate request, after it has verified the request's signature.
func requestKey(csr []byte) (ed25519.PublicKey, error) {
	r, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeCSR,
			"the certificate request cannot be read or is not signed by its key")
	}
	pub, ok := r.PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, fault.New(fault.Invalid, codeCSR,
			"the certificate request holds a key that is not Ed25519; let souk make it")
	}
	return pub, nil
}

func randomSerial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f // positive
	return new(big.Int).SetBytes(b[:])
}

func fingerprint(pub ed25519.PublicKey) string {
	h := sha256.Sum256(pub)
	return hex.EncodeToString(h[:])
}

func earlierOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func formatMinute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
