package tlscert

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/atrest"
	"github.com/soukhq/souk/store/journal"
)

// The codes of this package's errors.
const (
	CodeTLS      fault.Code = "tls"       // a TLS certificate or key cannot be made or read
	codeTLSHosts fault.Code = "tls_hosts" // the root cannot sign for the host
)

// Times of souk's own certificates.
const (
	rootLife  = 10 * 365 * 24 * time.Hour
	leafLife  = 90 * 24 * time.Hour
	leafRenew = 30 * 24 * time.Hour // this long before it expires
	skew      = time.Hour           // how much the clocks of two hosts may differ
)

// Files below the directory of a souk.
const (
	RootFile = "api-root.pem"     // clients trust it
	keyFile  = "api-root-key.pem" // 0600
)

// kind is the file names and the purpose of a root.
type kind struct{ cert, key, of string }

var apiRoot = kind{RootFile, keyFile, "API"} //nolint:gochecknoglobals // a constant

// Own serves a certificate for hosts (names or addresses), signed by a root that is made once and kept below dir. The
// root can sign only for the hosts it was made for (RFC 5280, section 4.2.1.10), so a client that trusts it risks
// nothing else. others come and go with the host's networks: the certificate names those that the root can sign for. If
// the root cannot sign for one of hosts, Own fails with Precondition.
func Own(dir string, hosts, others []string, now time.Time) (*tls.Config, error) {
	r, err := openRoot(apiRoot, dir, slices.Concat(hosts, others), now)
	if err != nil {
		return nil, err
	}
	if wrong := slices.DeleteFunc(slices.Clone(hosts), r.canVouchFor); len(wrong) > 0 {
		return nil, fault.New(fault.Precondition, codeTLSHosts,
			"the API's root in %s can vouch for %s, and not for %s: listen there, or remove it and %s and give the "+
				"new root to the clients", filepath.Join(dir, RootFile), strings.Join(r.vouchedHosts(), ", "),
			strings.Join(wrong, ", "), filepath.Join(dir, keyFile))
	}
	others = slices.DeleteFunc(slices.Clone(others), func(h string) bool { return !r.canVouchFor(h) })
	o := &own{root: r, hosts: slices.Concat(hosts, others)}
	if len(o.hosts) == 0 {
		return nil, fault.New(fault.Precondition, codeTLSHosts, "the API's root in %s can vouch for %s, and for "+
			"nothing that this host has; remove it and %s and give the new root to the clients",
			filepath.Join(dir, RootFile), strings.Join(r.vouchedHosts(), ", "), filepath.Join(dir, keyFile))
	}
	if _, err := o.currentCertificate(now); err != nil {
		return nil, err
	}
	return serverConfig(o), nil
}

// root is a certificate authority for a few hosts.
type root struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// own is a certificate signed by a root of souk's own. Its key is never written to disk.
type own struct {
	root  *root
	hosts []string

	mu    sync.Mutex
	shown *tls.Certificate
}

func (o *own) currentCertificate(now time.Time) (*tls.Certificate, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shown != nil && now.Before(o.shown.Leaf.NotAfter.Add(-leafRenew)) {
		return o.shown, nil
	}
	c, err := o.root.issueFor(o.hosts, now)
	if err != nil {
		return o.shown, fault.Wrap(err, fault.Internal, CodeTLS, "no certificate for the API could be made")
	}
	o.shown = c
	return c, nil
}

// openRoot reads the root of a kind below dir, and makes it if there is none. Its key is sealed if there is an external
// key.
func openRoot(k kind, dir string, hosts []string, now time.Time) (*root, error) {
	certFile, key := filepath.Join(dir, k.cert), filepath.Join(dir, k.key)
	pair, err := readPair(certFile, key)
	if errors.Is(err, fs.ErrNotExist) {
		return makeRoot(k, dir, hosts, now)
	}
	if fault.CodeOf(err) == atrest.Fault {
		return nil, err // the error says what to do
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeTLS,
			"the %s's root in %s cannot be read; remove it and %s, and give the new root to the clients",
			k.of, certFile, key)
	}
	signer, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fault.New(fault.Invalid, CodeTLS, "%s is not the private key of a souk root certificate", key)
	}
	return &root{pair.Leaf, signer}, nil
}

// readPair reads a root and its key, and seals the key again if that is due.
func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	raw, err := os.ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, due, err := atrest.Open(keyFile, raw)
	if err == nil && due {
		err = writeKey(keyFile, key)
	}
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func writeKey(file string, key []byte) error {
	sealed, err := atrest.Seal(file, key)
	if err != nil {
		return err
	}
	if err := journal.WriteWhole(file, sealed, 0o600); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeWrite, "%s cannot be written", file)
	}
	return nil
}

// makeRoot makes the root for some hosts. It writes the key first: a certificate without its key would be useless.
func makeRoot(k kind, dir string, hosts []string, now time.Time) (*root, error) {
	certFile, keyFile := filepath.Join(dir, k.cert), filepath.Join(dir, k.key)
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, CodeTLS, "no key can be made")
	}
	names, addrs := splitHosts(hosts)
	t := &x509.Certificate{SerialNumber: randomSerial(), Subject: pkix.Name{CommonName: "souk " + k.of + " of " +
		hosts[0]},
		NotBefore: now.Add(-skew), NotAfter: now.Add(rootLife), IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign, PermittedDNSDomainsCritical: true,
		PermittedDNSDomains: names, PermittedIPRanges: singleAddressNets(addrs)}
	if len(names) == 0 {
		// permits no name: without a constraint, every name would be permitted
		t.PermittedDNSDomains = []string{"invalid"}
	}
	if len(addrs) == 0 {
		t.PermittedIPRanges = singleAddressNets([]net.IP{net.IPv4zero})
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, priv.Public(), priv)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeTLS, "no root for %s can be made", strings.Join(hosts, ", "))
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, CodeTLS, "the root that was just made cannot be read")
	}
	raw, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, CodeTLS, "the key that was made does not encode")
	}
	if err := writeKey(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})); err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := journal.WriteWhole(certFile, text, 0o644); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeWrite, "%s cannot be written", certFile)
	}
	return &root{cert, priv}, nil
}

const maxCommonName = 64 // RFC 5280, appendix A.1

// issueFor makes a certificate for hosts, with a new key.
func (r *root) issueFor(hosts []string, now time.Time) (*tls.Certificate, error) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	names, addrs := splitHosts(hosts)
	var subject pkix.Name
	if len(hosts[0]) <= maxCommonName {
		subject.CommonName = hosts[0]
	}
	t := &x509.Certificate{SerialNumber: randomSerial(), Subject: subject, NotBefore: now.Add(-skew),
		NotAfter: now.Add(leafLife), KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: names, IPAddresses: addrs,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, t, r.cert, priv.Public(), r.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der, r.cert.Raw}, PrivateKey: priv, Leaf: leaf}, err
}

// vouchedHosts lists the hosts that a root can sign for.
func (r *root) vouchedHosts() (hosts []string) {
	for _, n := range r.cert.PermittedDNSDomains {
		if n != "invalid" {
			hosts = append(hosts, n)
		}
	}
	for _, n := range r.cert.PermittedIPRanges {
		if !n.IP.IsUnspecified() {
			hosts = append(hosts, n.IP.String())
		}
	}
	return hosts
}

// canVouchFor reports whether a root can sign for a host.
func (r *root) canVouchFor(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return slices.ContainsFunc(r.cert.PermittedIPRanges, func(n *net.IPNet) bool { return n.IP.Equal(ip) })
	}
	return slices.Contains(r.cert.PermittedDNSDomains, strings.ToLower(host))
}

// splitHosts separates names and addresses, each sorted and without duplicates.
func splitHosts(hosts []string) (names []string, addrs []net.IP) {
	for _, h := range hosts {
		switch ip := net.ParseIP(h); {
		case ip == nil:
			names = append(names, strings.ToLower(h))
		case ip.To4() != nil:
			addrs = append(addrs, ip.To4())
		default:
			addrs = append(addrs, ip)
		}
	}
	slices.Sort(names)
	slices.SortFunc(addrs, func(a, b net.IP) int { return cmp.Or(cmp.Compare(len(a), len(b)), bytes.Compare(a, b)) })
	return slices.Compact(names), slices.CompactFunc(addrs, net.IP.Equal)
}

// singleAddressNets returns a network of one address for each address.
func singleAddressNets(addrs []net.IP) (out []*net.IPNet) {
	for _, ip := range addrs {
		out = append(out, &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
	}
	return out
}

func randomSerial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b) // never fails: it ends the program instead
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}
