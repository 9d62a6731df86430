package wire

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

const (
	pathChallenge = "/wire/challenge"
	challengeTime = 3 * time.Second // an ACME authority waits for about ten
	maxToken      = 128             // bytes of an authority's token
	maxProof      = 4096            // bytes

	pathCertificate = "/wire/certificate"
	certTime        = 3 * time.Minute // to order a certificate from an ACME authority
	keptTime        = 3 * time.Second // to return an existing certificate
	maxCert         = 256 << 10       // bytes
)

// Certs gives other members' proxies access to the certificates of this member's proxy.
type Certs interface {
	// Challenge returns the proof that an ACME authority expects from the owner of a name.
	Challenge(name, token string) (proof string, known bool)
	// Shared returns the certificate for a name with its chain, and its key, as PEM. It orders one if there is none,
	// unless kept is set.
	Shared(ctx context.Context, name string, kept bool) (chain, key []byte, err error)
}

type challengeArgs struct {
	Name  string `json:"name"`
	Token string `json:"token"`
}

func (a *challengeArgs) check() error {
	if len(a.Token) > maxToken {
		return fault.New(fault.Invalid, fault.CodeToken,
			"the token of a challenge has %d bytes; at most %d", len(a.Token),
			maxToken)
	}
	return checkLengths(a.Name)
}

type challengeProof struct {
	Proof string `json:"proof,omitempty"`
	Known bool   `json:"known,omitempty"`
}

type certArgs struct {
	Name string `json:"name"`
	Kept bool   `json:"kept,omitempty"`
}

func (a *certArgs) check() error { return checkLengths(a.Name) }

type certPair struct {
	Chain []byte `json:"chain"`
	Key   []byte `json:"key"`
}

// certificate sends the caller a private key, so the route is for gateways alone: they may change more than that
// anyway.
func (s *Server) certificate(w http.ResponseWriter, r *http.Request, _ Peer) error {
	var in certArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	if s.o.Certs == nil {
		return fault.New(fault.Unimplemented, fault.CodeCertificate,
			"%s gets no certificates from an ACME authority", s.o.Identity.Name().ID)
	}
	chain, key, err := s.o.Certs.Shared(r.Context(), in.Name, in.Kept)
	if err != nil {
		return err
	}
	return s.answerJSON(w, certPair{chain, key})
}

// Certificate asks the member for the certificate for a name with its chain, and its key, as PEM. The member orders one
// if it has none, unless kept is set.
func (l *Link) Certificate(ctx context.Context, name string, kept bool) (chain, key []byte, err error) {
	within := certTime
	if kept {
		within = keptTime
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errSlow(within))
	defer cancel()
	var out certPair
	err = l.askGateway(ctx, l.currentWires().streams, pathCertificate, maxCert, certArgs{name, kept}, &out)
	return out.Chain, out.Key, err
}

func (s *Server) challenge(w http.ResponseWriter, r *http.Request, _ Peer) error {
	var in challengeArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	var out challengeProof
	if s.o.Certs != nil {
		out.Proof, out.Known = s.o.Certs.Challenge(in.Name, in.Token)
	}
	return s.answerJSON(w, out)
}

// Challenge asks the member for the proof that an ACME authority expects from the owner of a name.
func (l *Link) Challenge(ctx context.Context, name, token string) (proof string, known bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, challengeTime, errSlow(challengeTime))
	defer cancel()
	var out challengeProof
	err = l.askGateway(ctx, l.currentWires().calls, pathChallenge, maxProof, challengeArgs{name, token}, &out)
	return out.Proof, out.Known, err
}

// askGateway asks one question and accepts an answer only from a gateway: another member could make all proxies serve
// forged data.
func (l *Link) askGateway(ctx context.Context, via *http.Transport, path string, most int64, in, out any) error {
	raw, err := marshal(in)
	if err != nil {
		return err
	}
	res, err := l.sendRequest(ctx, via, l.newRequest(ctx, path, raw))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	by, err := l.client.identity.NameOf(res.TLS, l.client.now())
	if err == nil && !by.Has(pki.Gateway) {
		err = fault.New(fault.Denied, fault.CodeRole,
			"%s answered as a proxy, but has the roles %v; it needs the role %s",
			by.ID, by.Roles, pki.Gateway)
	}
	if err != nil {
		return err
	}
	if raw, err = io.ReadAll(io.LimitReader(res.Body, most)); err != nil {
		return l.lostError(ctx, err)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeLost, "the answer of %s cannot be read as JSON",
			l.memberName())
	}
	return nil
}
