package services

import (
	"context"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/store/catalog"
)

// A member can live and its services not come round any more. So of the members that would carry a service after its
// steward the first looks on while there is something to do, and takes over from one that is stuck.

const (
	stuckFor = 5 * time.Second        // that a steward makes no way, so that another takes its place
	askEvery = stuckFor / 2           // whether it does
	askTime  = 500 * time.Millisecond // for an answer
)

// oversight is what a member knows of the steward of a service that it would carry next.
type oversight struct {
	of     cluster.WorkerID // the steward; "": there is nothing to do, or another member looks on
	since  time.Time        // when it was heard to go on, or there was something to do
	asking bool
	takes  bool // it is stuck, so this member carries the service
}

// overseeSteward looks on at the steward of a service, if this member is the next, and reports whether to take its
// place.
func (s *Services) overseeSteward(ctx context.Context, now time.Time, k *kept, wanted *catalog.Service,
	steward cluster.WorkerID) bool {
	others := slices.DeleteFunc(slices.Clone(s.members), func(id cluster.WorkerID) bool { return id == steward })
	if release.StewardOf(wanted.App.ID, others, release.Tenure{}) != s.o.Self {
		k.over = oversight{asking: k.over.asking}
		return false
	}
	if work, again := s.hasWork(now, k, wanted); !work {
		k.over = oversight{asking: k.over.asking}
		k.due = again // a job may be due then
		return false
	}
	x := &k.over
	if x.of != steward {
		*x = oversight{of: steward, since: now, asking: x.asking}
	}
	if x.takes {
		return true
	}
	if !x.asking && !now.Before(x.since.Add(askEvery)) {
		x.asking = true
		s.askSteward(ctx, k, steward)
	}
	k.due = now.Add(askEvery)
	return false
}

// hasWork reports whether something is to be done for a service, as far as this member sees it; again is when there may
// be where there is not, zero: it is told.
func (s *Services) hasWork(now time.Time, k *kept, wanted *catalog.Service) (work bool, again time.Time) {
	if wanted.Tenure.Busy {
		return true, again
	}
	n := rollout.NewSteward(wanted.Tenure.Term).Step(now, s.wantedOf(wanted), s.watch.standingOf(k.app))
	return n.Busy, n.Again
}

// askSteward asks a steward whether it goes on. It does not go through the turns of orders, which may all be waited for.
func (s *Services) askSteward(ctx context.Context, k *kept, steward cluster.WorkerID) {
	go func() {
		asked, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		stuck, err := s.o.Members.Stuck(asked, steward)
		s.endAside(ctx, func(now time.Time) {
			x := &k.over
			x.asking = false
			switch {
			case x.of != steward:
			case err == nil && stuck < askEvery:
				x.since = now
			case now.Sub(x.since) >= stuckFor:
				s.o.Log.Warn("the steward of a service makes no way, and this member goes on in its place", "app",
					k.app, "steward", steward, "stuck", stuck, "err", err)
				x.takes = true
				s.markChanged(k.app)
			}
		})
	}()
}
