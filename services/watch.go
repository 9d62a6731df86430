package services

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fleet"
)

// watch notes which machines each service has. It walks over all machines of the fleet when there is a newer snapshot.
type watch struct {
	snapshot *fleet.Snapshot
	reported bool // each worker that can be asked has told what it has
	awaited  bool // some other worker has told nothing yet: it is expected, or what it had is not known here
	apps     map[string]*machines
	walks    uint64
	loops    []string // apps with a machine that dies again and again

	silent  map[cluster.WorkerID]time.Time // workers that are not surely there, and since when
	workers []rollout.Peer                 // all of the cluster; never changed
	moved   bool                           // workers are others than before
	hears   map[cluster.WorkerID]bool      // of the walk
	drained map[cluster.WorkerID]bool      // workers that are being emptied
	run     []seen                         // machines of the app that the walk is at
	changed []string                       // apps that have other machines than before
}

// seen is a machine as a snapshot has it: what changes is another one.
type seen struct {
	*fleet.Machine
	heard   bool
	drained bool // its worker is being emptied
}

// machines are those of one service.
type machines struct {
	list []seen
	walk uint64 // that found them
}

// look brings the notes up to date, and returns the apps that have other machines than before.
func (w *watch) look(s *fleet.Snapshot) []string {
	if s == w.snapshot {
		return nil
	}
	w.snapshot, w.changed, w.loops = s, w.changed[:0], w.loops[:0]
	w.walks++
	w.ask()
	app := ""
	for m := range s.AllMachines() { // by app
		if m.Replica == nil {
			continue
		}
		if m.App != app {
			w.note(app)
			app = m.App
		}
		w.run = append(w.run, seen{m, w.hears[m.Worker], w.drained[m.Worker]})
	}
	w.note(app)
	maps.DeleteFunc(w.apps, func(app string, m *machines) bool {
		if m.walk == w.walks {
			return false
		}
		w.changed = append(w.changed, app)
		return true
	})
	return w.changed
}

// ask notes which workers can be asked.
func (w *watch) ask() {
	w.hears, w.drained = map[cluster.WorkerID]bool{}, map[cluster.WorkerID]bool{}
	w.reported, w.awaited = true, false
	silent := map[cluster.WorkerID]time.Time{}
	workers := make([]rollout.Peer, 0, w.snapshot.Len())
	for x := range w.snapshot.Workers() {
		if x.State != cluster.MemberAlive {
			silent[x.ID] = x.Since
			if before, known := w.silent[x.ID]; known { // that it is suspected counts, too
				silent[x.ID] = before
			}
		}
		w.hears[x.ID] = x.Reachable()
		w.drained[x.ID] = x.Drained()
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

// note notes the machines of the app that the walk was at.
func (w *watch) note(app string) {
	if len(w.run) == 0 {
		return
	}
	m := w.apps[app]
	if m == nil {
		m = &machines{}
		w.apps[app] = m
	}
	m.walk = w.walks
	if slices.ContainsFunc(w.run, func(x seen) bool { return x.Loops }) {
		w.loops = append(w.loops, app)
	}
	if !slices.Equal(m.list, w.run) {
		m.list = slices.Clone(w.run)
		w.changed = append(w.changed, app)
	}
	clear(w.run) // and forget the machines
	w.run = w.run[:0]
}

// standing returns a service's machines as its steward sees them.
func (w *watch) standing(app string) []rollout.Standing {
	m := w.apps[app]
	if m == nil {
		return nil
	}
	out := make([]rollout.Standing, len(m.list))
	for i, x := range m.list {
		out[i] = x.Standing(x.heard, x.drained, w.silent[x.Worker])
	}
	return out
}
