package fleet

import (
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
)

// Walk tracks selected machines of apps. It walks over all machines when there is a newer snapshot, and reports the
// apps whose selected machines have changed. It belongs to one goroutine.
type Walk struct {
	takes    func(*Machine) bool
	notes    func(app string, list []Seen) bool
	snapshot *Snapshot
	apps     map[string]*noted
	number   uint64 // number of the present walk
	changed  []string
	workers  map[cluster.WorkerID]WorkerNow // workers seen in the present walk
	run      []Seen                         // selected machines of the current app
}

// WorkerNow is the state of a machine's worker in a walk.
type WorkerNow struct {
	Own     bool // a worker of this process
	Heard   bool // reachable
	Drained bool // being drained
}

// Seen is a machine of a snapshot with its worker's state. It is immutable.
type Seen struct {
	*Machine
	WorkerNow
}

// noted is the machines of one app.
type noted struct {
	list []Seen
	walk uint64 // number of the walk that found list
}

// NewWalk returns a walk over the machines for which takes is true, of the apps for which notes is true. Each walk
// calls notes for each app with such a machine, before the machines have their WorkerNow: see Worker.
func NewWalk(takes func(*Machine) bool, notes func(app string, list []Seen) bool) *Walk {
	return &Walk{takes: takes, notes: notes, apps: map[string]*noted{}, workers: map[cluster.WorkerID]WorkerNow{}}
}

// Snapshot returns the snapshot that was walked last; nil: none.
func (w *Walk) Snapshot() *Snapshot { return w.snapshot }

// Of returns the tracked machines of an app, by name; nil: the app is not tracked. The slice is never changed.
func (w *Walk) Of(app string) []Seen {
	if x := w.apps[app]; x != nil {
		return x.list
	}
	return nil
}

// Look walks a newer snapshot, and returns the apps whose tracked machines have changed, or that are no longer tracked.
// The result is valid until the next call.
func (w *Walk) Look(s *Snapshot) (changed []string) {
	if s == w.snapshot {
		return nil
	}
	w.snapshot, w.changed = s, w.changed[:0]
	w.number++
	clear(w.workers)
	app := ""
	for m := range s.AllMachines() { // by app
		if !w.takes(m) {
			continue
		}
		if m.App != app {
			w.noteMachines(app)
			app = m.App
		}
		w.run = append(w.run, Seen{Machine: m})
	}
	w.noteMachines(app)
	maps.DeleteFunc(w.apps, func(app string, x *noted) bool {
		if x.walk == w.number {
			return false
		}
		w.changed = append(w.changed, app)
		return true
	})
	return w.changed
}

// noteMachines ends an app in the walk: it stores the app's machines if they have changed.
func (w *Walk) noteMachines(app string) {
	if len(w.run) == 0 {
		return
	}
	if w.notes(app, w.run) {
		for i := range w.run {
			w.run[i].WorkerNow = w.Worker(w.run[i].Machine.Worker)
		}
		x := w.apps[app]
		if x == nil {
			x = &noted{}
			w.apps[app] = x
		}
		x.walk = w.number
		if !slices.Equal(x.list, w.run) {
			x.list = slices.Clone(w.run)
			w.changed = append(w.changed, app)
		}
	}
	clear(w.run) // release the machines
	w.run = w.run[:0]
}

// Worker returns the state of a worker in the snapshot.
func (w *Walk) Worker(id cluster.WorkerID) WorkerNow {
	now, known := w.workers[id]
	if !known {
		if x, is := w.snapshot.Worker(id); is {
			now = WorkerNow{Own: x.Own, Heard: x.Reachable(), Drained: x.Drained()}
		}
		w.workers[id] = now
	}
	return now
}
