package services

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fleet"
)

// cordonOwner is the owner of the cordon of a worker where machines of several services die.
const cordonOwner = "souk services"

// suspectWorkers cordons workers that seem to be at fault for what dies there. One member is responsible for each
// worker.
func (s *Services) suspectWorkers(ctx context.Context, now time.Time, snapshot *fleet.Snapshot) {
	services := map[string][]release.Standing{}
	for _, app := range s.watch.loops {
		services[app] = s.watch.standingOf(app)
	}
	cordoned := map[cluster.WorkerID]bool{}
	for w := range snapshot.Workers() {
		switch c := w.Record.Cordon; {
		case c == nil:
			delete(s.doubted, w.ID) // no longer suspect
		case c.Owner == cordonOwner:
			cordoned[w.ID] = true
		}
	}
	for _, x := range rollout.Suspects(now, services, snapshot.Ready(), cordoned) {
		first := cluster.Rendezvous(s.members, "suspect\x00"+string(x.Worker))[0]
		if w, known := snapshot.Worker(x.Worker); first != s.o.Self || s.doubted[x.Worker] || !known ||
			w.Record.Cordon != nil {
			continue
		}
		s.doubted[x.Worker] = true
		s.beginAside(ctx, func() func(time.Time) {
			err := s.o.Hands.Cordon(ctx, x.Worker, x.Why)
			s.o.Log.Warn("a worker seems to be at fault, so it is cordoned", "worker", x.Worker, "why", x.Why, "err",
				err)
			return func(time.Time) {
				if err != nil {
					delete(s.doubted, x.Worker)
				}
			}
		})
	}
}
