package services

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fleet"
)

// watch notes which machines each service has, and how workers are.
type watch struct {
	walk     *fleet.Walk
	reported bool     // each worker that can be asked has told what it has
	awaited  bool     // some other worker has told nothing yet: it is expected, or what it had is not known here
	loops    []string // apps with a machine that dies again and again

	silent  map[cluster.WorkerID]time.Time // workers that are not surely there, and since when
	workers []rollout.Peer                 // all of the cluster; never changed
	moved   bool                           // workers are others than before
}

func newWatch() *watch {
	w := &watch{}
	w.walk = fleet.NewWalk(func(m *fleet.Machine) bool { return m.Replica != nil }, w.noteMachines)
	return w
}

// lookAtFleet brings the notes up to date, and returns the apps that have other machines than before.
func (w *watch) lookAtFleet(s *fleet.Snapshot) []string {
	if s == w.walk.Snapshot() {
		return nil
	}
	w.loops = w.loops[:0]
	w.noteReachable(s)
	return w.walk.Look(s)
}

// noteReachable notes which workers can be asked.
func (w *watch) noteReachable(s *fleet.Snapshot) {
	w.reported, w.awaited = true, false
	silent := map[cluster.WorkerID]time.Time{}
	workers := make([]rollout.Peer, 0, s.Len())
	for x := range s.Workers() {
		if x.State != cluster.MemberAlive {
			silent[x.ID] = x.Since
			if before, known := w.silent[x.ID]; known { // that it is suspected counts, too
				silent[x.ID] = before
			}
		}
		workers = append(workers, rollout.Peer{ID: x.ID, Heard: x.Reachable()})
		switch {
		case x.Reported || x.State == cluster.MemberLeft:
		case x.Reachable():
			w.reported = false
		default:
			w.awaited = true
		}
	}
	w.silent = silent
	if !slices.Equal(w.workers, workers) {
		w.workers, w.moved = workers, true
	}
}

// noteMachines has the machines of each service noted, and notes which of them die again and again.
func (w *watch) noteMachines(app string, list []fleet.Seen) bool {
	if slices.ContainsFunc(list, func(x fleet.Seen) bool { return x.Loops }) {
		w.loops = append(w.loops, app)
	}
	return true
}

// standingOf returns a service's machines as its steward sees them.
func (w *watch) standingOf(app string) []release.Standing {
	list := w.walk.Of(app)
	if list == nil {
		return nil
	}
	out := make([]release.Standing, len(list))
	for i, x := range list {
		out[i] = x.Standing(x.Heard, x.Drained, w.silent[x.Worker])
	}
	return out
}
