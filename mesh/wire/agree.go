package wire

import (
	"context"
	"net/http"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

const (
	pathAgree = "/wire/agree"
	agreeTime = 5 * time.Second
)

// Learner makes this member learn from another member.
type Learner interface {
	// Learn fetches what the member from knows. With from "" it instead publishes what this member has not published
	// yet.
	Learn(ctx context.Context, from cluster.WorkerID) error
}

// agreeArgs say whether the member is to learn from the caller, or only to publish.
type agreeArgs struct {
	Learn bool `json:"learn,omitempty"`
}

// agree returns Unimplemented if the member shares no state.
func (s *Server) agree(w http.ResponseWriter, r *http.Request, by Peer) error {
	if s.o.Learner == nil {
		return fault.New(fault.Unimplemented, codeAgree, "%s takes over no state of other members",
			s.o.Identity.Name().ID)
	}
	var in agreeArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	from := cluster.WorkerID("")
	if in.Learn {
		from = cluster.WorkerID(by.ID)
	}
	ctx, cancel := context.WithTimeout(r.Context(), agreeTime)
	defer cancel()
	if err := s.o.Learner.Learn(ctx, from); err != nil {
		return err
	}
	return s.answerJSON(w, none{})
}

// Agree makes the member publish what it has not published yet; with learn, it makes the member learn what the caller
// knows.
func (l *Link) Agree(ctx context.Context, learn bool) error {
	return l.callMember(ctx, pathAgree, agreeTime, agreeArgs{learn}, &none{})
}
