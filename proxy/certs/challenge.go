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

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

const (
	acmeProtocol  = acmez.ACMETLS1Protocol
	challengePath = "/.well-known/acme-challenge/"
)

// Others are the other members of a cluster, whose proxies answer for the same names.
type Others interface {
	// Challenge returns the proof for an authority's challenge of a name that one of the other members has ordered.
	Challenge(ctx context.Context, name, token string) (proof string, known bool)
	// Ranked lists the reachable members in the order in which they care for a name's certificate: those before this
	// one, and those after it. All members order any two members alike.
	Ranked(name string) (before, after []cluster.WorkerID)
	// Certificate calls Shared at one of the members.
	Certificate(ctx context.Context, id cluster.WorkerID, name string, kept bool) (chain, key []byte, err error)
}

// maxAsking bounds the concurrent questions to other members, since strangers can cause them.
const maxAsking = 8

// HTTPChallenge returns a handler for port 80: it answers the authority's challenges, and passes all other requests to
// h.
func (c *Certs) HTTPChallenge(h http.Handler) http.Handler {
	if c.acme == nil || !c.acme.o.HTTP {
		return Respond(h, c.o.Allowed, c.o.Others)
	}
	return newResponder(h, c.acme.challenges.proofOf, c.o.Allowed, c.o.Others)
}

// Respond returns HTTPChallenge's handler for a process that orders no certificates itself: the authority may look here
// for the proof of another member's order.
func Respond(h http.Handler, allowed func(name string) bool, others Others) http.Handler {
	if others == nil {
		return h
	}
	return newResponder(h, func(string, string) (string, bool) { return "", false }, allowed, others)
}

// responder answers authorities for all members, and passes all other requests to next.
type responder struct {
	next    http.Handler
	own     func(name, token string) (proof string, known bool)
	allowed func(name string) bool
	others  Others
	asking  chan struct{} // semaphore of questions to other members
}

func newResponder(h http.Handler, own func(string, string) (string, bool), allowed func(string) bool,
	others Others) *responder {
	return &responder{next: h, own: own, allowed: allowed, others: others, asking: make(chan struct{}, maxAsking)}
}

// ServeHTTP answers an authority at once: no redirect, and no machine is woken.
func (s *responder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, is := strings.CutPrefix(r.URL.Path, challengePath)
	if is && r.Method == http.MethodGet && validToken(token) {
		if proof, known := s.proofOf(r.Context(), hostOf(r.Host), token); known {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte(proof)) // after an error the authority asks again
			return
		}
	}
	s.next.ServeHTTP(w, r)
}

// proofOf returns the proof that a name belongs to this process, or to another member.
func (s *responder) proofOf(ctx context.Context, name, token string) (string, bool) {
	if !validName(name) {
		return "", false
	}
	if proof, own := s.own(name, token); own || s.others == nil || !s.allowed(name) {
		return proof, own
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
		return s.others.Challenge(ctx, name, token)
	default: // too many at once: probably strangers
		return "", false
	}
}

// Challenge returns the proof of this process's own challenge for a name; Others.Challenge calls it from other members.
func (c *Certs) Challenge(name, token string) (proof string, known bool) {
	if c.acme == nil {
		return "", false
	}
	return c.acme.challenges.proofOf(name, token)
}

// hostOf returns the name in a Host header.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// validToken reports whether a token has the form that RFC 8555, 8.3 prescribes.
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

// challenges are the open challenges of this process's orders.
type challenges struct {
	mu   sync.Mutex
	open map[string]acme.Challenge // by token
}

// Present makes the proxy answer a challenge from now on.
func (c *challenges) Present(_ context.Context, x acme.Challenge) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]acme.Challenge{}
	}
	c.open[x.Token] = x
	return nil
}

// CleanUp makes the proxy stop answering a challenge.
func (c *challenges) CleanUp(_ context.Context, x acme.Challenge) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, x.Token)
	return nil
}

// proofOf returns the answer to a challenge over HTTP.
func (c *challenges) proofOf(name, token string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, is := c.open[token]
	if !is || x.Type != acme.ChallengeTypeHTTP01 || x.Identifier.Value != name {
		return "", false
	}
	return x.KeyAuthorization, true
}

// challengeCert returns the certificate that answers a challenge over TLS (RFC 8737).
func (c *challenges) challengeCert(name string) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.open {
		if x.Type == acme.ChallengeTypeTLSALPN01 && x.Identifier.Value == name {
			return acmez.TLSALPN01ChallengeCert(x)
		}
	}
	return nil, fault.New(fault.NotFound, codeNoChallenge, "no ACME authority was asked about %.80q here", name)
}
