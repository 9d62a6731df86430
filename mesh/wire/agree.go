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

// Learner is a member that another has learn what it knows.
type Learner interface {
	// Learn has the member know what another knows; with "" it tells what it has to tell.
	Learn(ctx context.Context, from cluster.WorkerID) error
}

// agreeArgs say from whom the member is to learn: from who asks, or from nobody.
type agreeArgs struct {
	Learn bool `json:"learn,omitempty"`
}

// agree is Unimplemented where the member shares nothing.
func (s *Server) agree(w http.ResponseWriter, r *http.Request, by Peer) error {
	if s.o.Learner == nil {
		return fault.New(fault.Unimplemented, codeAgree, "%s learns from no other member", s.o.Identity.Name().ID)
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

// Agree has the member tell what it has not told yet and, with learn, learn what the one that asks knows.
func (l *Link) Agree(ctx context.Context, learn bool) error {
	return l.callMember(ctx, pathAgree, agreeTime, agreeArgs{learn}, &none{})
}
