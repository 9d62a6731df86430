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

// Stewards are the services that this member carries.
type Stewards interface {
	// Stuck returns for how long they have not come round; 0: they wait for something to do.
	Stuck() time.Duration
}

// stewardAnswer says for how long a member's services have not come round.
type stewardAnswer struct {
	Stuck time.Duration `json:"stuck_ns"`
}

// steward is Unimplemented where the member carries no services.
func (s *Server) steward(w http.ResponseWriter, _ *http.Request, _ Peer) error {
	if s.o.Stewards == nil {
		return fault.New(fault.Unimplemented, codeSteward, "%s carries no services", s.o.Identity.Name().ID)
	}
	return s.answerJSON(w, stewardAnswer{s.o.Stewards.Stuck()})
}

// Stuck asks the member for how long the services that it carries have not come round.
func (l *Link) Stuck(ctx context.Context) (time.Duration, error) {
	var out stewardAnswer
	err := l.callMember(ctx, pathSteward, stewardTime, none{}, &out)
	return out.Stuck, err
}
