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

// A member can be alive while its services loop is stuck. So the next member in a service's order watches the steward
// while the service has work to do, and takes over if the steward is stuck.

const (
	stuckFor = 5 * time.Second        // a steward without progress for this long is replaced
	askEvery = stuckFor / 2           // how often the steward is asked for its progress
	askTime  = 500 * time.Millisecond // for an answer
)

// oversight is what the next member in order knows about a service's steward.
type oversight struct {
	of     cluster.WorkerID // the steward; "": no work, or another member watches
	since  time.Time        // when it last showed progress, or work appeared
	asking bool
	takes  bool // the steward is stuck, so this member takes the service
}

// overseeSteward watches the steward of a service, if this member is the next in order, and reports whether to take its
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

// hasWork reports whether a service has work to do, as far as this member sees it. Without work, again is when it may
// have some; zero: only after a change.
func (s *Services) hasWork(now time.Time, k *kept, wanted *catalog.Service) (work bool, again time.Time) {
	if wanted.Tenure.Busy {
		return true, again
	}
	n := rollout.NewSteward(wanted.Tenure.Term).Step(now, s.wantedOf(wanted), s.watch.standingOf(k.app))
	return n.Busy, n.Again
}

// askSteward asks a steward for its progress. It does not take one of the turns of orders, which may all be in use.
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
