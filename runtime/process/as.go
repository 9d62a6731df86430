package process

import (
	"context"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// checkAs refuses a user of the host that the reaper would not start the program as.
func (r *Runtime) checkAs(ctx context.Context, s runtime.Spec, in *frame.Container) error {
	if s.As == nil {
		return nil
	}
	if err := s.As.Check(s.User, in != nil); err != nil {
		return err
	}
	session, err := r.link.liveSession(ctx)
	if err != nil {
		return err
	}
	// Compatible until 0.3.0: an older reaper does not know Start.As, and would run the program as another user.
	if !session.welcome.As {
		return fault.New(fault.Precondition, runtime.CodeProtocol, "the reaper of this worker is of a build (%s) that "+
			"runs no program as user %d of the host: end the commands that run in its machines, and restart souk "+
			"there, which replaces the reaper", session.welcome.Build, s.As.UID)
	}
	return nil
}
