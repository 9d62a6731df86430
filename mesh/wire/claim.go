package wire

import (
	"context"
	"net/http"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

const (
	pathClaim = "/wire/claim"
	claimTime = 10 * time.Second // then the next member is asked; a member known to be dead is skipped earlier
)

// Decider decides claims for all members.
type Decider interface {
	Decide(ctx context.Context, c cluster.Claim) (cluster.Claimed, error)
}

// claim returns Unimplemented if the member decides no claims.
func (s *Server) claim(w http.ResponseWriter, r *http.Request, _ Peer) error {
	if s.o.Claims == nil {
		return fault.New(fault.Unimplemented, cluster.CodeClaim, "%s does not decide claims", s.o.Identity.Name().ID)
	}
	var in cluster.Claim
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	if err := in.Check(); err != nil {
		return err
	}
	out, err := s.o.Claims.Decide(r.Context(), in)
	if err != nil {
		return err
	}
	return s.answerJSON(w, out)
}

// Claim asks the member to reserve a value that must be unique in an app.
func (l *Link) Claim(ctx context.Context, c cluster.Claim) (out cluster.Claimed, err error) {
	err = l.callMember(ctx, pathClaim, claimTime, c, &out)
	return out, err
}
