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

// A cluster orders one certificate for a name. The members care for names in an order that all of them find
// (Others.Ranked): each asks those before it, and orders only where none of them can be asked. So questions climb, and
// never go in a circle. The member that ordered has the key on its disk, and renews; the others have copies in memory.
const (
	askAgain    = 10 * time.Second // after a refusal of the authority's at another member
	appWait     = 3 * time.Second  // for another member to hear of an app
	appEvery    = 200 * time.Millisecond
	lookAgain   = 6 * time.Hour // the member that has it may have had to renew it early
	renewEvery  = 10 * time.Minute
	keptAtOnce  = 16
	lastPart    = 6 // a certificate of which no more than this part of its life is left should have been renewed
	renewedPart = 3 // and with this part left it is renewed
)

// shared is a copy of a certificate that another member has.
type shared struct {
	*tls.Certificate
	looked time.Time
}

// errFar is why the authority gave another member no certificate.
type errFar struct{ error }

// stillLasts reports whether more than a part of a certificate's life is left.
func stillLasts(c *tls.Certificate, part time.Duration, now time.Time) bool {
	return c.Leaf.NotAfter.Sub(now) > c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)/part
}

// Shared returns the certificate for a name with its chain, and its key, as PEM, for Others of another member. It is got
// where there is none that lasts, unless kept is set.
func (c *Certs) Shared(ctx context.Context, name string, kept bool) (chain, key []byte, err error) {
	if c.acme == nil {
		return nil, nil, fault.New(fault.Unimplemented, fault.CodeCertificate, "this member orders no certificates")
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
		if _, err := c.acme.conf.CacheManagedCertificate(ctx, name); err == nil { // on disk since an earlier life
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

// fromOthers has the members that care for a name before this one get its certificate, and takes a copy. Where it
// settles nothing, this process is to order. Before that the other members are asked for one that was got while others
// cared for the name.
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

// copyFrom takes a copy of another member's certificate, which it gets where it has none. It may not have heard of the
// app yet.
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

// copyThatHasLasted takes a copy of what one of some members has, if that lasts.
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
	_ = g.Wait() // they return none
	if best == nil {
		return false
	}
	a.keepCopy(name, best)
	return true
}

// askMember returns another member's certificate for a name, which it has checked.
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
			"what %s gave is no certificate for %s; the next member is asked", id, name)
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

// recordFar keeps why another member got no certificate, for a moment: that one knows when it tries again.
func (a *acmeCerts) recordFar(name string, err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, has := a.failed[name]; has || len(a.failed) < maxFailed {
		a.failed[name] = failure{err: err, until: now.Add(askAgain), wait: againAfter / 2}
	}
}

// renewCopies takes newer copies of what other members have renewed, until ctx ends. What none of them has renewed this
// process orders.
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

// dueCopies lists the names of copies that should be looked after. One that has ended is dropped: it is got again when
// somebody asks for it.
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
