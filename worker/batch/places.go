package batch

import (
	"context"
	"math"
	"slices"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices"
)

// findPlaces looks up places in the background, since a directory server and a file system of the network may take
// seconds: a slot is offered for tasks there once they are found. The runner's mu is held.
func (r *Runner) findPlaces(places []jobs.Place) {
	for _, p := range places {
		if r.finding[p] || r.ctx == nil {
			continue
		}
		r.finding[p] = true
		r.wg.Go(func() { r.findPlace(p) })
	}
}

func (r *Runner) findPlace(p jobs.Place) {
	a := jobs.PlaceAnswer{Place: p}
	if err := r.lookUpPlace(p); err != nil {
		a.Why = err.Error()
	}
	if r.ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.finding, p)
	before, known := r.slots.PlaceAnswer(p)
	r.slots.SetPlace(a)
	if known && before == a || !known && a.Why == "" {
		wakeUp(r.poke)
		return // the buyers know it, or assume it
	}
	for _, b := range r.buyers {
		b.out.Places = append(slices.DeleteFunc(b.out.Places, func(o jobs.PlaceAnswer) bool { return o.Place == p }), a)
	}
	wakeUp(r.poke)
}

// lookUpPlace returns why tasks cannot run at a place; nil: they can.
func (r *Runner) lookUpPlace(p jobs.Place) error {
	var as *runtime.As
	if !p.User.IsZero() {
		a, err := r.o.Users.Find(r.ctx, p.User)
		if err != nil {
			return err
		}
		as = asAccount(&a, &jobs.Propagated{})
	}
	if p.Dir == "" {
		return nil
	}
	finder, is := r.o.Runtime.(runtime.DirFinder)
	if !is {
		return fault.New(fault.Unimplemented, runtime.CodeNoDirectory, "this worker starts tasks in a directory of "+
			"their own only")
	}
	ctx, cancel := context.WithTimeout(r.ctx, effectTime)
	defer cancel()
	return finder.FindDir(ctx, as, p.Dir)
}

// findPlacesAgain looks up again the places in bids: a user may have been created, or a directory mounted meanwhile.
func (r *Runner) findPlacesAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findPlaces(r.slots.KeepPlaces())
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
