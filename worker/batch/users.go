package batch

import (
	"context"
	"math"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices"
)

// findUsers looks up Unix users in the background, since a directory server may take seconds: a slot is offered for
// their tasks once they are found. The runner's mu is held.
func (r *Runner) findUsers(users []cluster.UnixUser) {
	for _, u := range users {
		if r.finding[u] || r.ctx == nil {
			continue
		}
		r.finding[u] = true
		r.wg.Go(func() { r.findUser(u) })
	}
}

func (r *Runner) findUser(u cluster.UnixUser) {
	a := jobs.UserAnswer{User: u}
	if _, err := r.o.Users.Find(r.ctx, u); err != nil {
		a.Why = err.Error()
	}
	if r.ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.finding, u)
	before, known := r.slots.UserAnswer(u)
	r.slots.SetUser(a)
	if known && before == a || !known && a.Why == "" {
		wakeUp(r.poke)
		return // the buyers know it, or assume it
	}
	for _, b := range r.buyers {
		b.out.Users = append(slices.DeleteFunc(b.out.Users, func(o jobs.UserAnswer) bool { return o.User == u }), a)
	}
	wakeUp(r.poke)
}

// findUsersAgain looks up again the users in bids: they may have been created or removed meanwhile.
func (r *Runner) findUsersAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findUsers(r.slots.KeepUsers())
}

// giveUser has a task run as the Unix user of its job.
func (r *Runner) giveUser(ctx context.Context, t *jobs.Terms, s *runtime.Spec) error {
	if t.User.IsZero() {
		return nil
	}
	a, err := r.o.Users.Find(ctx, t.User)
	if err != nil {
		return err
	}
	s.As, s.Home = asAccount(&a, &t.Propagated), false
	s.Env = devices.SetEnv(a.LoginEnv(), s.Env)
	return nil
}

// asAccount returns what the runtime needs to run a program as a user.
func asAccount(a *unixuser.Account, h *jobs.Propagated) *runtime.As {
	as := &runtime.As{UID: a.UID, GID: a.GID, Groups: a.Groups, Umask: h.Umask}
	for _, name := range jobs.LimitNames() {
		n, given := h.Limits[name]
		if !given {
			continue
		}
		soft := uint64(math.MaxUint64)
		if n != jobs.Unlimited {
			soft = uint64(n) //nolint:gosec // not negative: see Propagated.check
		}
		as.Limits = append(as.Limits, runtime.SoftLimit{Resource: name, Soft: soft})
	}
	return as
}
