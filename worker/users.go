package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// UnixUsers looks up the Unix users that programs may run as. *unixuser.Users is one, nil too.
type UnixUsers interface {
	// Find returns the user that another host knows by a name and number; an error if he is not admitted here.
	Find(ctx context.Context, who cluster.UnixUser) (unixuser.Account, error)
}

// ownerClauses returns why the program of a launch cannot run as the Unix user whose machine it is: no record says
// which users a host has.
func (w *Worker) ownerClauses(ctx context.Context, l *machine.Launch) []machine.Clause {
	if l.UnixUser == nil || !machine.IsHostImage(l.Config.Image) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, findUserTime)
	defer cancel()
	if _, err := w.o.Users.Find(ctx, *l.UnixUser); err != nil {
		return []machine.Clause{{Code: placement.CodeUnixUser, Wanted: l.UnixUser.Name, Had: err.Error()}}
	}
	return nil
}

// findUserTime bounds the lookup of a user.
const findUserTime = 10 * time.Second

// runAsOwner has a machine that is a program of the host run as the Unix user whose it is, whatever user its config
// names, and returns the variables that a login sets.
func (e *effects) runAsOwner(m *machine.Machine, s *runtime.Spec) (login []string, err error) {
	if m.UnixUser == nil || !machine.IsHostImage(m.Config.Image) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), findUserTime)
	defer cancel()
	a, err := e.users.Find(ctx, *m.UnixUser)
	if err != nil {
		return nil, fault.Wrap(err, fault.KindOf(err), fault.CodeUnixUser, "machine %s cannot run as its owner here",
			m.ID)
	}
	s.User, s.Home = "", false
	s.As = &runtime.As{UID: a.UID, GID: a.GID, Groups: a.Groups}
	return a.LoginEnv(), nil
}
