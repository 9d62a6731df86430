package services

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fleet"
)

// watch tracks the machines of each service, and the state of workers.
type watch struct {
	walk     *fleet.Walk
	reported bool     // every reachable worker has reported its machines
	awaited  bool     // an unreachable worker has not reported yet
	loops    []string // apps with a machine in a crash loop

	silent  map[cluster.WorkerID]time.Time // workers that are not alive, and since when
	workers []rollout.Peer                 // all workers of the cluster; replaced, never changed
	moved   bool                           // workers has changed
}

func newWatch() *watch {
	w := &watch{}
	w.walk = fleet.NewWalk(func(m *fleet.Machine) bool { return m.Replica != nil }, w.noteMachines)
	return w
}

// lookAtFleet updates the watch, and returns the apps whose machines have changed.
func (w *watch) lookAtFleet(s *fleet.Snapshot) []string {
	if s == w.walk.Snapshot() {
		return nil
	}
	w.loops = w.loops[:0]
	w.noteReachable(s)
	return w.walk.Look(s)
}

// noteReachable records which workers are reachable.
func (w *watch) noteReachable(s *fleet.Snapshot) {
	w.reported, w.awaited = true, false
	silent := map[cluster.WorkerID]time.Time{}
	workers := make([]rollout.Peer, 0, s.Len())
	for x := range s.Workers() {
		if x.State != cluster.MemberAlive {
			silent[x.ID] = x.Since
			if before, known := w.silent[x.ID]; known { // count from when it was first suspected
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

// noteMachines keeps the machines of each service, and records those in a crash loop.
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
