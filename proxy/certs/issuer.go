package certs

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"github.com/soukhq/souk/fault"
)

// issuer orders certificates from the authority. It replaces certmagic's own issuer, which opens ports, prompts at the
// terminal and keeps challenges for the whole process.
type issuer struct {
	a   *acmeCerts
	key string // the authority's prefix in the storage

	mu      sync.Mutex
	client  *acmez.Client // nil: not made yet
	account acme.Account  // the account that client uses
}

func newIssuer(a *acmeCerts) *issuer {
	u, err := url.Parse(a.o.Directory)
	if err != nil {
		u = &url.URL{Path: a.o.Directory}
	}
	return &issuer{a: a, key: certmagic.StorageKeys.Safe(u.Host + path.Clean("/"+u.Path))}
}

// IssuerKey returns the storage prefix of the authority's files.
func (i *issuer) IssuerKey() string { return i.key }

// Issue orders a certificate. certmagic does not retry the errors that it returns.
func (i *issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	name := ""
	if len(csr.DNSNames) > 0 {
		name = csr.DNSNames[0]
	}
	began := time.Now()
	c, err := i.issueCert(ctx, name, csr)
	if err != nil {
		err = errGetting(name, err)
		i.a.recordOutcome(name, err, time.Now())
		return nil, certmagic.ErrNoRetry{Err: err}
	}
	i.a.log.Info("the ACME authority gave a certificate", "name", name, "after", time.Since(began))
	i.a.recordOutcome(name, nil, time.Now())
	return c, nil
}

func (i *issuer) issueCert(ctx context.Context, name string, csr *x509.CertificateRequest) (
	*certmagic.IssuedCertificate, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(i.a.ctx, func() { cancel(errEnded) })()
	if !i.a.allowed(name) {
		return nil, fault.New(fault.NotFound, codeNoApp, "no app answers to %s any more; it gets no certificate", name)
	}
	// a renewal must not wait for orders of new names, which strangers can cause
	renewal := i.a.store.Exists(ctx, certmagic.StorageKeys.SiteCert(i.key, name))
	if !renewal && !i.a.mayOrder(time.Now()) {
		return nil, fault.New(fault.Unavailable, codeOrders,
			"the ACME authority was asked for %d certificates in a short time, so %s has to wait", orders, name)
	}
	for again := false; ; again = true {
		client, account, err := i.registeredClient(ctx, again)
		if err != nil {
			return nil, err
		}
		params, err := acmez.OrderParametersFromCSR(account, csr)
		if err != nil {
			return nil, err
		}
		chains, err := client.ObtainCertificate(ctx, params)
		if p, is := errors.AsType[acme.Problem](err); is && p.Type == acme.ProblemTypeAccountDoesNotExist && !again {
			continue // the authority has forgotten the account: register it again
		}
		if err == nil && len(chains) == 0 {
			err = errors.New("it answered with none")
		}
		if err != nil {
			return nil, err
		}
		return &certmagic.IssuedCertificate{Certificate: chains[0].ChainPEM, Metadata: chains[0]}, nil
	}
}

// GetRenewalInfo returns when the authority suggests to renew a certificate (RFC 9773).
func (i *issuer) GetRenewalInfo(ctx context.Context, c certmagic.Certificate) (acme.RenewalInfo, error) {
	client, _, err := i.registeredClient(ctx, false)
	if err != nil {
		return acme.RenewalInfo{}, err
	}
	return client.GetRenewalInfo(ctx, c.Leaf)
}

// registeredClient returns a client and the account with the authority. Registering the same key again yields the same
// account.
func (i *issuer) registeredClient(ctx context.Context, anew bool) (*acmez.Client, acme.Account, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.client != nil && !anew {
		return i.client, i.account, nil
	}
	o := i.a.o
	key, err := i.accountKey(ctx)
	if err != nil {
		return nil, acme.Account{}, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12}
	client := &acmez.Client{Client: &acme.Client{Directory: o.Directory, UserAgent: "souk", PollTimeout: orderTime,
		HTTPClient: &http.Client{Transport: t, Timeout: 30 * time.Second}}, ChallengeSolvers: map[string]acmez.Solver{}}
	if o.HTTP {
		client.ChallengeSolvers[acme.ChallengeTypeHTTP01] = &i.a.challenges
	}
	if i.a.overTLS() {
		client.ChallengeSolvers[acme.ChallengeTypeTLSALPN01] = &i.a.challenges
	}
	account := acme.Account{TermsOfServiceAgreed: o.Agreed, PrivateKey: key}
	if o.Email != "" {
		account.Contact = []string{"mailto:" + o.Email}
	}
	if o.KeyID != "" {
		err = account.SetExternalAccountBinding(ctx, client.Client, acme.EAB{KeyID: o.KeyID, MACKey: o.MACKey})
	}
	if err == nil {
		account, err = client.NewAccount(ctx, account)
	}
	if err != nil {
		t.CloseIdleConnections()
		return nil, acme.Account{}, fault.Wrap(err, fault.Unavailable, codeACME,
			"the ACME authority at %s has no account for this proxy", o.Directory)
	}
	if i.client != nil {
		i.client.HTTPClient.CloseIdleConnections()
	}
	i.client, i.account = client, account
	return client, account, nil
}

// closeIdle closes the connections to the authority.
func (i *issuer) closeIdle() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.client != nil {
		i.client.HTTPClient.CloseIdleConnections()
	}
}

// accountKey returns the key of the account, and makes one if there is none.
func (i *issuer) accountKey(ctx context.Context) (crypto.Signer, error) {
	file := path.Join("accounts", i.key, "account.key")
	raw, err := i.a.store.Load(ctx, file)
	if err == nil {
		return certmagic.PEMDecodePrivateKey(raw)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := certmagic.StandardKeyGenerator{KeyType: certmagic.P256}.GenerateKey()
	if err == nil {
		raw, err = certmagic.PEMEncodePrivateKey(key)
	}
	if err == nil {
		err = i.a.store.Store(ctx, file, raw)
	}
	if err != nil {
		return nil, err
	}
	return key.(crypto.Signer), nil //nolint:forcetypeassert // all keys of the generator's are
}
