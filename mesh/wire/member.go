package wire

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// Greeting is a member's description of itself.
type Greeting struct {
	pki.Name
	Speaks int       `json:"speaks"`         // its Capability
	Now    time.Time `json:"now"`            // by its own clock
	Ends   time.Time `json:"ends"`           // when its certificate expires
	Boot   string    `json:"boot,omitempty"` // see Client.Boot
	Keys   int       `json:"keys,omitempty"` // generation of its gossip keys
}

// WhoIs asks the member at an address for its greeting. The member must have the id, and a certificate that is valid
// and not denied.
func (c *Client) WhoIs(ctx context.Context, addr, id string) (Greeting, error) {
	l := c.Link(id, "", func() string { return addr })
	defer l.Close()
	return l.Hello(ctx)
}

// meetsItself reports whether the caller is another process with this member's id, and returns its address.
func (s *Server) meetsItself(r *http.Request, by Peer) (addr string, another bool) {
	if by.ID != s.o.Identity.Name().ID || s.o.Boot == "" || r.Header.Get(bootHeader) == s.o.Boot {
		return "", false
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return host, true
}

func (s *Server) hello(w http.ResponseWriter, r *http.Request, _ Peer) error {
	if err := s.readArgs(w, r, &none{}); err != nil {
		return err
	}
	return s.answerJSON(w, Greeting{s.o.Identity.Name(), s.speaks.speaks, s.o.Now(), s.o.Identity.Ends(),
		s.o.Boot, s.o.Keys()})
}

// maxDigests bounds the tokens in one request.
const maxDigests = 10_000

type tokenArgs struct {
	Digests []string `json:"digests"`
}

func (a *tokenArgs) check() error {
	if len(a.Digests) > maxDigests {
		return fault.New(fault.Invalid, pki.CodeTokens,
			"%d tokens are asked about; at most %d", len(a.Digests), maxDigests)
	}
	return checkLengths(a.Digests...)
}

// LetsIn returns which of some API tokens the member accepts, as digests.
func (l *Link) LetsIn(ctx context.Context, digests []string) (in []string, err error) {
	err = l.callMember(ctx, pathTokens, readTime, tokenArgs{digests}, &in)
	return in, err
}

func (s *Server) tokens(w http.ResponseWriter, r *http.Request, _ Peer) error {
	var in tokenArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	out := []string{}
	if s.o.LetsIn != nil {
		out = append(out, s.o.LetsIn(in.Digests)...)
	}
	return s.answerJSON(w, out)
}

type keysArgs struct {
	Generation int    `json:"generation"`
	At         string `json:"at"` // API address of the issuer
}

func (a *keysArgs) check() error {
	if _, _, err := net.SplitHostPort(a.At); err != nil || a.Generation < 1 {
		return fault.New(fault.Invalid, codeKeys, "keys have a generation from 1 up, and an issuer has an address")
	}
	return checkLengths(a.At)
}

// NewerKeys informs the member that an issuer, called at addr, has gossip keys of a generation. The member cannot learn
// this from gossip, which it cannot read without the keys.
func (l *Link) NewerKeys(ctx context.Context, generation int, addr string) error {
	return l.callMember(ctx, pathKeys, readTime, keysArgs{generation, addr}, &none{})
}

func (s *Server) keys(w http.ResponseWriter, r *http.Request, by Peer) error {
	var in keysArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	if s.o.NewerKeys != nil {
		s.o.NewerKeys(by, in.Generation, in.At)
	}
	return s.answerJSON(w, none{})
}

func (s *Server) pull(w http.ResponseWriter, r *http.Request, by Peer) error {
	if s.o.Pull == nil {
		return fault.New(fault.Unimplemented, fault.CodePull, "%s does not exchange records", s.o.Identity.Name().ID)
	}
	body, err := s.readBody(w, r, MaxPull)
	if err != nil {
		return err
	}
	out, err := s.o.Pull(r.Context(), by, body)
	if err != nil {
		return err
	}
	s.sendBody(w, out, "application/octet-stream")
	return nil
}

// joinArgs is the request of a joining member; joined is the answer.
type joinArgs struct {
	pki.Name
	Secret string `json:"secret"`
	CSR    []byte `json:"csr"`
}

type joined struct {
	pki.Credentials
	Members []string `json:"members"`
}

func (s *Server) signerOrError() (Signer, error) {
	if s.o.Signer == nil {
		return nil, fault.New(fault.NotFound, pki.CodeIssuer, "%s is no issuer; ask a member that holds the CA",
			s.o.Identity.Name().ID)
	}
	return s.o.Signer, nil
}

// join is the only call open to callers without a certificate; the token's secret authenticates them.
func (s *Server) join(w http.ResponseWriter, r *http.Request, _ Peer) error {
	if !s.joins.enterCaller("") {
		return busyError(fault.Unavailable, s.o.Identity.Name().ID)
	}
	defer s.joins.leaveCaller("")
	signer, err := s.signerOrError()
	if err != nil {
		return err
	}
	var in joinArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	if s.o.Known != nil && s.o.Known(in.ID) {
		return fault.New(fault.Conflict, fault.CodeIDInUse,
			"a member with the id %s is known; join with another id, or remove that one first", clipText(in.ID, 80))
	}
	out := joined{}
	if out.Credentials, err = signer.Redeem(s.o.Now(), in.Secret, in.Name, in.CSR); err != nil {
		return err
	}
	if s.o.Members != nil {
		out.Members = s.o.Members()
	}
	s.o.Log.InfoContext(r.Context(), "a member joined", "id", in.ID, "roles", in.Roles)
	return s.answerJSON(w, out)
}

type renewArgs struct {
	CSR []byte `json:"csr"`
}

// renew issues the caller a new certificate of its current name. It cannot ask for another name.
func (s *Server) renew(w http.ResponseWriter, r *http.Request, by Peer) error {
	signer, err := s.signerOrError()
	if err != nil {
		return err
	}
	var in renewArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	out, err := signer.Renew(s.o.Now(), by.Name, in.CSR)
	if err != nil {
		return err
	}
	return s.answerJSON(w, out)
}

// bundle returns the current roots and gossip keys.
func (s *Server) bundle(w http.ResponseWriter, _ *http.Request, _ Peer) error {
	signer, err := s.signerOrError()
	if err != nil {
		return err
	}
	out, err := signer.Bundle()
	if err != nil {
		return err
	}
	return s.answerJSON(w, out)
}
