package wire

import (
	"context"
	"net/http"
	"time"

	"github.com/soukhq/souk/fault"
)

const (
	pathSteward = "/wire/steward"
	stewardTime = 2 * time.Second
)

// Stewards are the stewards of this member.
type Stewards interface {
	// Stuck returns for how long they have not completed a round; 0: they wait for work.
	Stuck() time.Duration
}

// stewardAnswer is the result of Stewards.Stuck.
type stewardAnswer struct {
	Stuck time.Duration `json:"stuck_ns"`
}

// steward returns Unimplemented if the member has no steward.
func (s *Server) steward(w http.ResponseWriter, _ *http.Request, _ Peer) error {
	if s.o.Stewards == nil {
		return fault.New(fault.Unimplemented, codeSteward, "%s has no steward, so it runs no services",
			s.o.Identity.Name().ID)
	}
	return s.answerJSON(w, stewardAnswer{s.o.Stewards.Stuck()})
}

// Stuck asks the member for how long its stewards have not completed a round.
func (l *Link) Stuck(ctx context.Context) (time.Duration, error) {
	var out stewardAnswer
	err := l.callMember(ctx, pathSteward, stewardTime, none{}, &out)
	return out.Stuck, err
}
