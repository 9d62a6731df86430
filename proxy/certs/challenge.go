package certs

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"github.com/soukhq/souk/fault"
)

const (
	acmeProtocol  = acmez.ACMETLS1Protocol
	challengePath = "/.well-known/acme-challenge/"
)

// HTTPChallenge returns a handler for the door at port 80: it answers the authority, and h all others.
func (c *Certs) HTTPChallenge(h http.Handler) http.Handler {
	if c.acme == nil || !c.acme.o.HTTP {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, is := strings.CutPrefix(r.URL.Path, challengePath)
		if is && r.Method == http.MethodGet && validToken(token) {
			if proof, known := c.acme.proof(r.Context(), hostOf(r.Host), token); known {
				w.Header().Set("Content-Type", "text/plain")
				_, _ = w.Write([]byte(proof)) // the authority asks again
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Challenge returns what an authority gave this process to prove that a name is its own: for ACME.Ask of the others.
func (c *Certs) Challenge(name, token string) (proof string, known bool) {
	if c.acme == nil {
		return "", false
	}
	return c.acme.challenges.proof(name, token)
}

// proof returns what proves that a name is this process's, or another member's.
func (a *acmeCerts) proof(ctx context.Context, name, token string) (string, bool) {
	if !validName(name) || !a.allowed(name) {
		return "", false
	}
	if proof, own := a.challenges.proof(name, token); own || a.o.Ask == nil {
		return proof, own
	}
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
		return a.o.Ask(ctx, name, token)
	default: // strangers ask for what is not there
		return "", false
	}
}

// hostOf returns the name in a Host header.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// validToken reports whether a token is one as authorities make them (RFC 8555, 8.3).
func validToken(token string) bool {
	if len(token) == 0 || len(token) > 128 {
		return false
	}
	for _, b := range []byte(token) {
		if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return true
}

// challenges are what the authority has been promised to find here.
type challenges struct {
	mu   sync.Mutex
	open map[string]acme.Challenge // by token
}

// Present has a challenge answered from now on.
func (c *challenges) Present(_ context.Context, x acme.Challenge) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]acme.Challenge{}
	}
	c.open[x.Token] = x
	return nil
}

// CleanUp has a challenge answered no more.
func (c *challenges) CleanUp(_ context.Context, x acme.Challenge) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, x.Token)
	return nil
}

// proof returns what is answered over HTTP.
func (c *challenges) proof(name, token string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, is := c.open[token]
	if !is || x.Type != acme.ChallengeTypeHTTP01 || x.Identifier.Value != name {
		return "", false
	}
	return x.KeyAuthorization, true
}

// certificate returns what is answered over TLS (RFC 8737).
func (c *challenges) certificate(name string) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.open {
		if x.Type == acme.ChallengeTypeTLSALPN01 && x.Identifier.Value == name {
			return acmez.TLSALPN01ChallengeCert(x)
		}
	}
	return nil, fault.New(fault.NotFound, "no_challenge", "no ACME authority was asked about %.80q here", name)
}
