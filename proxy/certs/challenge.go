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
	// Challenge returns what one of them was given to prove to an authority that a name is its own.
	Challenge(ctx context.Context, name, token string) (proof string, known bool)
	// Ranked lists those that can be heard in the order in which they care for a name's certificate: those that do so
	// before this one, and those after it. Of two members the same goes first at all of them.
	Ranked(name string) (before, after []cluster.WorkerID)
	// Certificate returns what Shared of one of them does.
	Certificate(ctx context.Context, id cluster.WorkerID, name string, kept bool) (chain, key []byte, err error)
}

// maxAsking bounds the questions to other members that are under way: strangers cause them.
const maxAsking = 8

// HTTPChallenge returns a handler for the door at port 80: it answers the authority, and h all others.
func (c *Certs) HTTPChallenge(h http.Handler) http.Handler {
	if c.acme == nil || !c.acme.o.HTTP {
		return Respond(h, c.o.Allowed, c.o.Others)
	}
	return newResponder(h, c.acme.challenges.proofOf, c.o.Allowed, c.o.Others)
}

// Respond returns HTTPChallenge's handler for a process that asks no authority itself: the authority may look at it for
// what another member has asked.
func Respond(h http.Handler, allowed func(name string) bool, others Others) http.Handler {
	if others == nil {
		return h
	}
	return newResponder(h, func(string, string) (string, bool) { return "", false }, allowed, others)
}

// responder answers authorities for all members, and has next answer all else.
type responder struct {
	next    http.Handler
	own     func(name, token string) (proof string, known bool)
	allowed func(name string) bool
	others  Others
	asking  chan struct{} // has a place for each question to other members
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
			_, _ = w.Write([]byte(proof)) // the authority asks again
			return
		}
	}
	s.next.ServeHTTP(w, r)
}

// proofOf returns what proves that a name is this process's, or another member's.
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
	default: // strangers ask for what is not there
		return "", false
	}
}

// Challenge returns what an authority gave this process to prove that a name is its own, for Others of the others.
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

// proofOf returns what is answered over HTTP.
func (c *challenges) proofOf(name, token string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, is := c.open[token]
	if !is || x.Type != acme.ChallengeTypeHTTP01 || x.Identifier.Value != name {
		return "", false
	}
	return x.KeyAuthorization, true
}

// challengeCert returns what is answered over TLS (RFC 8737).
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
