package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/tlscert"
)

// Options say where certificates come from. Dir and Allowed are needed.
type Options struct {
	Dir   string // holds ACME's certificates and the local root; this process's alone
	Files string // a directory of the user's own certificates; "": none
	ACME  *ACME  // nil: none are fetched
	// Local are domains for whose names souk's own root issues certificates. The root is made once and constrained to
	// them.
	Local []string
	// Allowed reports whether some app answers to a name. Each handshake calls it, so it must not wait. Certificates
	// are fetched and made for such names only.
	Allowed func(name string) bool
	Others  Others       // nil: this process is alone
	Log     *slog.Logger // nil: nothing is logged
}

// Certs are the certificates of one proxy. Its methods may be called from many goroutines.
type Certs struct {
	o     Options
	files *files
	acme  *acmeCerts // nil: none
	local *localCerts
	done  sync.WaitGroup
	stop  context.CancelFunc
}

// New opens the certificates, and keeps them up to date until ctx ends or Close is called.
func New(ctx context.Context, o Options) (*Certs, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Certs{o: o}
	ctx, c.stop = context.WithCancel(ctx)
	if err := c.openSources(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Certs) openSources(ctx context.Context) (err error) {
	if len(c.o.Local) > 0 {
		a, err := tlscert.OpenAuthority(c.o.Dir, c.o.Local, time.Now())
		if err != nil {
			return err
		}
		c.local = &localCerts{authority: a, byName: map[string]*tls.Certificate{}}
	}
	if c.o.Files != "" {
		c.files = &files{dir: c.o.Files, log: c.o.Log}
		if err := c.files.reloadChanged(time.Now()); err != nil {
			return err
		}
		c.done.Go(func() { c.files.followDir(ctx) })
	}
	if c.o.ACME != nil {
		if c.acme, err = openACME(ctx, &c.o); err != nil {
			return err
		}
		c.done.Go(func() { c.acme.dropEnded(ctx) })
	}
	return nil
}

// Close stops the goroutines that keep the certificates up to date.
func (c *Certs) Close() {
	c.stop()
	c.done.Wait()
}

// TLS returns the TLS config of the proxy's doors.
func (c *Certs) TLS() *tls.Config {
	protocols := []string{"h2", "http/1.1"}
	if c.acme != nil && c.acme.overTLS() {
		protocols = append(protocols, acmeProtocol)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetCertificate: c.orNone}
}

// orNone returns the certificate to show to a client. If there is none it returns neither a certificate nor an error:
// crypto/tls then sends the alert unrecognized_name, where for an error it would send only internal_error.
func (c *Certs) orNone(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	got, err := c.certificateFor(hello)
	if fault.Is(err, fault.NotFound) {
		c.o.Log.Debug("a client was shown no certificate", "err", err)
		return nil, nil
	}
	return got, err
}

// handshakeWait is how long a handshake waits for a certificate that is being fetched. The fetch goes on after it.
const handshakeWait = 20 * time.Second

// certificateFor returns the certificate to show to a client.
func (c *Certs) certificateFor(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acmeProtocol && c.acme != nil {
		return c.acme.challenges.challengeCert(strings.ToLower(hello.ServerName))
	}
	name, isName := nameOf(hello)
	now := time.Now()
	own := c.files.findCert(name, hello, now)
	if own == nil && !isName {
		own = c.files.standardCert(hello, now)
	}
	if own != nil && now.Before(own.Leaf.NotAfter) {
		return own, nil
	}
	if !isName || !c.o.Allowed(name) {
		if own != nil {
			return own, nil // it has expired, and there is no other
		}
		return nil, fault.New(fault.NotFound, codeNoCertificate, "there is no certificate for %.80q here", name)
	}
	var got *tls.Certificate
	err := errNone(name)
	if c.acme != nil && c.acme.mayAskFor(name) {
		ctx, cancel := context.WithTimeout(hello.Context(), handshakeWait)
		got, err = c.acme.getOrIssue(ctx, name)
		cancel()
	}
	if got == nil && c.local != nil && c.local.authority.Covers(name) {
		got, err = c.local.getCert(name, now)
	}
	if got == nil {
		got = own
	}
	if got != nil {
		return got, nil
	}
	return nil, err
}

func errNone(name string) error {
	return fault.New(fault.NotFound, codeNoCertificate,
		"there is no certificate for %.80q: it has no file here, ACME is not used for it, and the local root does not "+
			"vouch for it", name)
}

const maxName = 253 // bytes

// nameOf returns the name that a client asks for, if it is valid, or else the address that the client connected to.
func nameOf(hello *tls.ClientHelloInfo) (name string, isName bool) {
	name = strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if name == "" && hello.Conn != nil {
		host, _, _ := net.SplitHostPort(hello.Conn.LocalAddr().String())
		return host, false
	}
	return name, validName(name)
}

// validName reports whether a name, in lower case, is a valid host name.
func validName(name string) bool {
	if len(name) > maxName || net.ParseIP(name) != nil {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, b := range []byte(label) {
			if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
				return false
			}
		}
	}
	return true
}

// Info describes one certificate.
type Info struct {
	Names    []string  `json:"names"`
	Source   string    `json:"source"`         // file, acme or local
	File     string    `json:"file,omitempty"` // the user's file
	NotAfter time.Time `json:"not_after"`
	Error    string    `json:"error,omitempty"` // why it is not used, or why no newer one could be fetched
	Again    time.Time `json:"again,omitzero"`  // no newer one is fetched before
}

// Problems lists the names that some app answers to and that have no certificate, or no newer one, and why.
func (c *Certs) Problems() (list []api.CertificateProblem) {
	for _, i := range c.Certificates() {
		if i.Error == "" || i.Source == "acme" && !slices.ContainsFunc(i.Names, c.o.Allowed) {
			continue
		}
		p := api.CertificateProblem{Names: append([]string{}, i.Names...), Source: i.Source, File: i.File, Why: i.Error}
		if !i.Again.IsZero() {
			p.Again = &i.Again
		}
		if !i.NotAfter.IsZero() {
			p.Ends = &i.NotAfter
		}
		list = append(list, p)
	}
	return list
}

// Failures returns how many times this process failed to get or renew a certificate.
func (c *Certs) Failures() uint64 {
	if c.acme == nil {
		return 0
	}
	return c.acme.failures.Load()
}

// Certificates lists all certificates, by source and name.
func (c *Certs) Certificates() []Info {
	list := c.files.listCerts()
	if c.acme != nil {
		list = append(list, c.acme.listCerts()...)
	}
	if c.local != nil {
		list = append(list, c.local.listCerts()...)
	}
	order := []string{"file", "acme", "local"}
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Source), slices.Index(order, b.Source)),
			slices.Compare(a.Names, b.Names), cmp.Compare(a.File, b.File))
	})
	return list
}

// infoOf describes a certificate.
func infoOf(source string, c *tls.Certificate) Info {
	names := slices.Clone(c.Leaf.DNSNames)
	for _, ip := range c.Leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return Info{Names: names, Source: source, NotAfter: c.Leaf.NotAfter}
}

// maxKept bounds how many certificates of each source are kept in memory.
const maxKept = 4096

// localCerts are the certificates issued by souk's own root, made when a client asks for a name and kept in memory
// only.
type localCerts struct {
	authority *tlscert.Authority

	mu     sync.Mutex
	byName map[string]*tls.Certificate
}

func (l *localCerts) getCert(name string, now time.Time) (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.byName[name]; c != nil && !l.authority.Due(c, now) {
		return c, nil
	}
	c, err := l.authority.Issue(name, now)
	if err != nil {
		return nil, err
	}
	for other := range l.byName {
		if len(l.byName) < maxKept {
			break
		}
		delete(l.byName, other)
	}
	l.byName[name] = c
	return c, nil
}

func (l *localCerts) listCerts() (list []Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.byName {
		list = append(list, infoOf("local", c))
	}
	return list
}

// LocalRoot returns the file of the root that clients are to trust for names of Local.
func (c *Certs) LocalRoot() string { return filepath.Join(c.o.Dir, tlscert.AuthorityFile) }

var errEnded = fault.New(fault.Unavailable, fault.CodeEnded, //nolint:gochecknoglobals // a constant
	"the proxy is ending, so it gets no more certificates")
