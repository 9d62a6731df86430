package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/soukhq/souk/fault"
)

// ACME says which authority issues certificates (RFC 8555). Directory and Agreed are needed.
type ACME struct {
	Directory string // URL of the authority's directory object
	Email     string // where the authority sends notices about the account; "": none
	Agreed    bool   // the user has agreed to the authority's terms
	KeyID     string // key id for external account binding; "": none
	MACKey    string // MAC key that belongs to KeyID, base64url
	Roots     *x509.CertPool
	// HTTP and TLS say how the authority reaches this proxy by its names: at port 80, where HTTPChallenge's handler
	// serves, and at port 443, where the proxy serves TLS. At least one is needed. TLS is not used if there are Others:
	// the authority may reach any member, and a TLS challenge names no token by which that member could find the right
	// one.
	HTTP, TLS bool
	// RenewEvery is how often certificates are checked for renewal; 0: 10 minutes.
	RenewEvery time.Duration
}

func (a *acmeCerts) overTLS() bool { return a.o.TLS && a.others == nil }

func (o *ACME) check(others bool) error {
	switch {
	case !o.Agreed:
		return fault.New(fault.Precondition, codeACMETerms,
			"nobody agreed to the terms of the ACME authority at %s; read them, then agree with --acme", o.Directory)
	case !strings.HasPrefix(o.Directory, "https://"):
		return fault.New(fault.Invalid, codeACMEDirectory,
			"%q is no ACME directory; it is a URL that begins with https://", o.Directory)
	case !o.HTTP && (!o.TLS || others):
		return fault.New(fault.Invalid, codeACMEDoor,
			"the ACME authority could not reach this proxy: it needs port 80, or port 443 where no other member "+
				"answers for the same names")
	case (o.KeyID == "") != (o.MACKey == ""):
		return fault.New(fault.Invalid, codeACMEAccount,
			"an account of the ACME authority's needs both its key id and its MAC key")
	}
	return nil
}

// Bounds of the orders sent to an authority. Let's Encrypt allows 300 orders in 3 hours.
const (
	orders      = 100 // in a burst
	orderEvery  = 36 * time.Second
	orderTime   = 3 * time.Minute // for one order
	againAfter  = time.Minute     // after a failure; twice as long after each
	againAtMost = time.Hour
	maxFailed   = 1024 // names
	cleanEvery  = 24 * time.Hour
)

// acmeCerts are the certificates of an authority. Package certmagic loads and renews those on disk.
type acmeCerts struct {
	o          *ACME
	allowed    func(name string) bool
	others     Others // nil: there are none
	log        *slog.Logger
	ctx        context.Context //nolint:containedctx // of what is got, which outlasts the handshake that wanted it
	store      *storage
	cache      *certmagic.Cache
	conf       *certmagic.Config
	issuer     *issuer
	challenges challenges
	getting    singleflight.Group
	work       sync.WaitGroup
	failures   atomic.Uint64 // orders of this process, with renewals, that gave no certificate

	mu     sync.Mutex
	ended  bool // no more certificates are fetched
	failed map[string]failure
	copies map[string]shared // of certificates that other members have, by name
	left   float64           // orders that may still be made
	since  time.Time         // when left was counted
}

// failure says why a name has no certificate, or no newer one.
type failure struct {
	err   error
	until time.Time // not tried again before
	wait  time.Duration
}

func openACME(ctx context.Context, o *Options) (*acmeCerts, error) {
	if err := o.ACME.check(o.Others != nil); err != nil {
		return nil, err
	}
	a := &acmeCerts{o: o.ACME, allowed: o.Allowed, others: o.Others, log: o.Log, ctx: ctx, failed: map[string]failure{},
		copies: map[string]shared{}, left: orders, since: time.Now(), store: newStorage(filepath.Join(o.Dir, "acme"))}
	if err := a.store.openKeys(); err != nil {
		return nil, err
	}
	a.issuer = newIssuer(a)
	a.cache = certmagic.NewCache(certmagic.CacheOptions{Capacity: maxKept, RenewCheckInterval: o.ACME.RenewEvery,
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.conf, nil },
		Logger:           zap.NewNop()}) // souk logs each outcome itself
	a.conf = certmagic.New(a.cache, certmagic.Config{Storage: a.store, Issuers: []certmagic.Issuer{a.issuer},
		KeySource: certmagic.StandardKeyGenerator{KeyType: certmagic.P256}, Logger: zap.NewNop(),
		OCSP: certmagic.OCSPConfig{DisableStapling: true}})
	return a, nil
}

// dropEnded deletes expired certificates from disk, until ctx ends; then it closes the rest.
func (a *acmeCerts) dropEnded(ctx context.Context) {
	defer func() {
		a.mu.Lock()
		a.ended = true
		a.mu.Unlock()
		a.work.Wait()
		a.cache.Stop()
		a.issuer.closeIdle()
	}()
	if a.others != nil {
		a.work.Go(func() { a.renewCopies(ctx) })
	}
	every := time.NewTicker(cleanEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		err := certmagic.CleanStorage(ctx, a.store, certmagic.CleanStorageOptions{Logger: zap.NewNop(),
			ExpiredCerts: true, ExpiredCertGracePeriod: cleanEvery})
		if err != nil && ctx.Err() == nil {
			a.log.Warn("certificates that have ended were not removed", "err", err)
		}
	}
}

// mayAskFor reports whether the authority may be asked for a name's certificate.
func (a *acmeCerts) mayAskFor(name string) bool {
	return strings.Contains(name, ".") && certmagic.SubjectQualifiesForPublicCert(name)
}

// getOrIssue returns the certificate for a name, and fetches one if there is none.
func (a *acmeCerts) getOrIssue(ctx context.Context, name string) (*tls.Certificate, error) {
	if c := a.keptCert(name, time.Now()); c != nil {
		return c, nil
	}
	return a.getOrRenew(ctx, name)
}

// getOrRenew returns the certificate for a name, and fetches one if there is none or it is due for renewal.
func (a *acmeCerts) getOrRenew(ctx context.Context, name string) (*tls.Certificate, error) {
	if err := a.beginWait(name, time.Now()); err != nil {
		return nil, err
	}
	got := a.getting.DoChan(name, func() (any, error) { return a.fetchCert(name) })
	select {
	case r := <-got:
		a.work.Done()
		return r.Val.(*tls.Certificate), r.Err //nolint:forcetypeassert // fetch returns no other
	case <-ctx.Done():
		go func() { defer a.work.Done(); <-got }()
		return nil, fault.New(fault.Timeout, codeNoCertificate,
			"the certificate for %s is being got from the ACME authority; try again in a moment", name)
	}
}

// beginWait registers a caller that waits for a name, until work.Done. Its error says why the name is not tried now.
func (a *acmeCerts) beginWait(name string, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return errEnded
	}
	if f, is := a.failed[name]; is && now.Before(f.until) {
		return f.err
	}
	a.work.Add(1)
	return nil
}

// fetchCert gets the certificate for a name. The issuer has recorded a failure of the authority already.
func (a *acmeCerts) fetchCert(name string) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(a.ctx, orderTime)
	defer cancel()
	err := a.loadCert(ctx, name)
	_, issued := errors.AsType[certmagic.ErrNoRetry](err)
	if refused, far := errors.AsType[errFar](err); far {
		err = refused.error
		a.recordFar(name, err, time.Now())
	} else if !issued {
		err = errGetting(name, err)
		a.recordOutcome(name, err, time.Now())
	}
	c := a.keptCert(name, time.Now())
	switch {
	case c != nil:
		return c, nil
	case a.ctx.Err() != nil: // the authority refused nothing: another member may order
		return nil, errEnded
	case err == nil: // the new certificate has expired already
		err = errGetting(name, errors.New("the certificate that it gave has ended"))
	}
	return nil, err
}

// keptCert returns the certificate for a name if it is in memory and has not expired.
func (a *acmeCerts) keptCert(name string, now time.Time) *tls.Certificate {
	var best *tls.Certificate
	for _, c := range a.cache.AllMatchingCertificates(name) {
		if now.Before(c.Leaf.NotAfter) && (best == nil || c.Leaf.NotAfter.After(best.Leaf.NotAfter)) {
			best = &c.Certificate
		}
	}
	if c := a.copyOf(name); c != nil && now.Before(c.Leaf.NotAfter) &&
		(best == nil || c.Leaf.NotAfter.After(best.Leaf.NotAfter)) {
		best = c
	}
	return best
}

// loadCert loads the certificate for a name into memory: from disk, from the member that cares for the name, or from
// the authority. certmagic renews those on this process's disk from then on.
func (a *acmeCerts) loadCert(ctx context.Context, name string) error {
	c, err := a.conf.CacheManagedCertificate(ctx, name)
	if err == nil && !c.Expired() {
		return nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		if settled, far := a.fromOthers(ctx, name); settled {
			return far
		}
	}
	switch {
	case err == nil:
		err = a.conf.RenewCertSync(ctx, name, false)
	case errors.Is(err, fs.ErrNotExist):
		err = a.conf.ObtainCertSync(ctx, name)
	}
	if err == nil {
		_, err = a.conf.CacheManagedCertificate(ctx, name)
	}
	return err
}

func errGetting(name string, err error) error {
	if err == nil || fault.CodeOf(err) != "" {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, codeACME,
		"the ACME authority gave no certificate for %s; check that the name leads here, and what the authority says",
		name)
}

// recordOutcome keeps the outcome of fetching a name's certificate, and logs a failure.
func (a *acmeCerts) recordOutcome(name string, err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		delete(a.failed, name)
		return
	}
	if a.ctx.Err() != nil {
		return
	}
	wait := againAfter
	if f, again := a.failed[name]; again {
		wait = min(2*f.wait, againAtMost)
	}
	for other := range a.failed {
		if len(a.failed) < maxFailed {
			break
		}
		delete(a.failed, other)
	}
	a.failed[name] = failure{err: err, until: now.Add(wait), wait: wait}
	a.failures.Add(1)
	a.log.Warn("no certificate was got", "name", name, "again_in", wait, "err", err)
}

// mayOrder reports whether one more order may be made now.
func (a *acmeCerts) mayOrder(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = min(orders, a.left+float64(now.Sub(a.since))/float64(orderEvery))
	a.since = now
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}

// listCerts lists the certificates on disk, and the copies of those that other members have.
func (a *acmeCerts) listCerts() (list []Info) {
	certs, failed := a.store.certsOnDisk(a.ctx), map[string]failure{}
	a.mu.Lock()
	for _, c := range a.copies {
		certs = append(certs, c.Leaf)
	}
	for name, f := range a.failed {
		failed[name] = f
	}
	a.mu.Unlock()
	for _, leaf := range certs {
		i := infoOf("acme", &tls.Certificate{Leaf: leaf})
		for _, name := range i.Names {
			if f, is := failed[name]; is {
				i.Error, i.Again = textOf(f.err), f.until
				delete(failed, name)
			}
		}
		list = append(list, i)
	}
	for name, f := range failed {
		list = append(list, Info{Names: []string{name}, Source: "acme", Error: textOf(f.err), Again: f.until})
	}
	return list
}
