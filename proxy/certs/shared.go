package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// A cluster orders one certificate for a name. The members care for names in an order on which all of them agree
// (Others.Ranked): each asks those before it, and orders only if none of them can be reached. So requests go in one
// direction and never in a circle. The member that ordered keeps the key on its disk and renews the certificate; the
// others have copies in memory.
const (
	askAgain    = 10 * time.Second // after the authority refused another member
	appWait     = 3 * time.Second  // for another member to learn of a new app
	appEvery    = 200 * time.Millisecond
	lookAgain   = 6 * time.Hour // the member that has the certificate may have renewed it early
	renewEvery  = 10 * time.Minute
	keptAtOnce  = 16
	lastPart    = 6 // with less than 1/6 of its validity left a certificate should have been renewed
	renewedPart = 3 // with 1/3 left it is renewed
)

// shared is a copy of a certificate that another member has.
type shared struct {
	*tls.Certificate
	looked time.Time
}

// errFar is the authority's refusal of another member's order.
type errFar struct{ error }

// stillLasts reports whether more than 1/part of a certificate's validity is left.
func stillLasts(c *tls.Certificate, part time.Duration, now time.Time) bool {
	return c.Leaf.NotAfter.Sub(now) > c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)/part
}

// Shared returns the certificate for a name with its chain, and its key, as PEM; Others.Certificate calls it from other
// members. It fetches one if none lasts, unless kept is set.
func (c *Certs) Shared(ctx context.Context, name string, kept bool) (chain, key []byte, err error) {
	if c.acme == nil {
		return nil, nil, fault.New(fault.Unimplemented, fault.CodeCertificate, "this member gets no certificates "+
			"from an ACME authority")
	}
	if !validName(name) || !c.acme.mayAskFor(name) {
		return nil, nil, fault.New(fault.Invalid, fault.CodeName,
			"%.80q is no name that an ACME authority vouches for", name)
	}
	got := c.acme.keptCert(name, time.Now())
	switch {
	case got != nil && stillLasts(got, lastPart, time.Now()):
	case !kept:
		got, err = c.acme.getOrRenew(ctx, name)
	case got == nil:
		if _, err := c.acme.conf.CacheManagedCertificate(ctx, name); err == nil { // on disk from an earlier run
			got = c.acme.keptCert(name, time.Now())
		}
	}
	if err == nil && got == nil {
		err = errNone(name)
	}
	if err != nil {
		return nil, nil, err
	}
	return pemOf(got)
}

func pemOf(c *tls.Certificate) (chain, key []byte, err error) {
	for _, der := range c.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	return chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}

// fromOthers asks the members that care for a name before this one for its certificate, and keeps a copy. If they have
// none, it asks the members after this one, which may have ordered one earlier. settled is false if this process must
// order.
func (a *acmeCerts) fromOthers(ctx context.Context, name string) (settled bool, err error) {
	if a.others == nil {
		return false, nil
	}
	before, after := a.others.Ranked(name)
	for _, id := range before {
		err := a.copyFrom(ctx, id, name)
		switch code := fault.CodeOf(err); {
		case err == nil:
			return true, nil
		case ctx.Err() != nil, code == codeACME, code == codeOrders:
			return true, errFar{err}
		}
		a.log.Debug("a member was asked for a certificate in vain", "name", name, "member", id, "err", err)
	}
	if a.copyThatHasLasted(ctx, after, name) {
		return true, nil
	}
	c := a.copyOf(name)
	return c != nil && stillLasts(c, lastPart, time.Now()), nil
}

// copyFrom copies another member's certificate; that member orders one if it has none. It retries for a moment, since
// that member may not know the app yet.
func (a *acmeCerts) copyFrom(ctx context.Context, id cluster.WorkerID, name string) error {
	until := time.Now().Add(appWait)
	for {
		c, err := a.askMember(ctx, id, name, false)
		if err == nil {
			a.keepCopy(name, c)
			return nil
		}
		if fault.CodeOf(err) != codeNoApp || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(appEvery):
		case <-ctx.Done():
			return err
		}
	}
}

// copyThatHasLasted copies the certificate that expires last among those that some members have, if it still lasts.
func (a *acmeCerts) copyThatHasLasted(ctx context.Context, ids []cluster.WorkerID, name string) bool {
	var g errgroup.Group
	g.SetLimit(keptAtOnce)
	var mu sync.Mutex
	var best *tls.Certificate
	for _, id := range ids {
		g.Go(func() error {
			c, err := a.askMember(ctx, id, name, true)
			if err != nil || !stillLasts(c, lastPart, time.Now()) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if best == nil || c.Leaf.NotAfter.After(best.Leaf.NotAfter) {
				best = c
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	if best == nil {
		return false
	}
	a.keepCopy(name, best)
	return true
}

// askMember returns another member's certificate for a name, which it verifies.
func (a *acmeCerts) askMember(ctx context.Context, id cluster.WorkerID, name string, kept bool) (*tls.Certificate,
	error) {
	chain, key, err := a.others.Certificate(ctx, id, name, kept)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(bytes.TrimSpace(chain), bytes.TrimSpace(key))
	if err == nil {
		err = c.Leaf.VerifyHostname(name)
	}
	if err == nil && !time.Now().Before(c.Leaf.NotAfter) {
		err = x509.CertificateInvalidError{Cert: c.Leaf, Reason: x509.Expired}
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeCertificate,
			"member %s sent no valid certificate for %s; the next member is asked", id, name)
	}
	return &c, nil
}

func (a *acmeCerts) copyOf(name string) *tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.copies[name].Certificate
}

// keepCopy keeps a copy, unless the one that is kept lasts longer.
func (a *acmeCerts) keepCopy(name string, c *tls.Certificate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failed, name)
	if old, has := a.copies[name]; has && old.Leaf.NotAfter.After(c.Leaf.NotAfter) {
		c = old.Certificate
	}
	for other := range a.copies {
		if _, has := a.copies[name]; has || len(a.copies) < maxKept {
			break
		}
		delete(a.copies, other)
	}
	a.copies[name] = shared{Certificate: c, looked: time.Now()}
}

// recordFar keeps another member's failure for a moment only: that member decides when to try again.
func (a *acmeCerts) recordFar(name string, err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, has := a.failed[name]; has || len(a.failed) < maxFailed {
		a.failed[name] = failure{err: err, until: now.Add(askAgain), wait: againAfter / 2}
	}
}

// renewCopies replaces copies that other members have renewed, until ctx ends. If no member has renewed one, this
// process orders it.
func (a *acmeCerts) renewCopies(ctx context.Context) {
	wait := a.o.RenewEvery
	if wait == 0 {
		wait = renewEvery
	}
	every := time.NewTicker(wait)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		for _, name := range a.dueCopies(time.Now()) {
			if _, err := a.getOrRenew(ctx, name); err != nil && ctx.Err() == nil {
				a.log.Debug("no newer certificate was got of another member", "name", name, "err", err)
			}
		}
	}
}

// dueCopies lists the names whose copies should be renewed. It drops expired copies: a client that asks causes a new
// fetch.
func (a *acmeCerts) dueCopies(now time.Time) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, c := range a.copies {
		switch {
		case now.After(c.Leaf.NotAfter) || !a.allowed(name):
			delete(a.copies, name)
		case !stillLasts(c.Certificate, renewedPart, now), now.Sub(c.looked) > lookAgain:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
