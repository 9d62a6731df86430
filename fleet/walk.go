package fleet

import (
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
)

// Walk notes which machines apps have that something may be to be done for. It walks over all machines when there is a
// newer snapshot, and tells of which apps they are others than before. It belongs to one goroutine.
type Walk struct {
	takes    func(*Machine) bool
	notes    func(app string, list []Seen) bool
	snapshot *Snapshot
	apps     map[string]*noted
	number   uint64 // of walks
	changed  []string
	workers  map[cluster.WorkerID]WorkerNow // of this walk
	run      []Seen                         // machines of the app that it is at
}

// WorkerNow is what a walk notes of a machine's worker.
type WorkerNow struct {
	Own     bool // it is of this process
	Heard   bool // it can be asked
	Drained bool // it is being emptied
}

// Seen is a machine as a snapshot has it, which never changes: what changes is another one.
type Seen struct {
	*Machine
	WorkerNow
}

// noted is the machines of one app.
type noted struct {
	list []Seen
	walk uint64 // that found them
}

// NewWalk returns a walk that notes the machines that takes reports, of the apps that notes reports. notes is called
// for each app that has such a machine in each walk, and knows nothing yet of their workers: see Worker.
func NewWalk(takes func(*Machine) bool, notes func(app string, list []Seen) bool) *Walk {
	return &Walk{takes: takes, notes: notes, apps: map[string]*noted{}, workers: map[cluster.WorkerID]WorkerNow{}}
}

// Snapshot returns what was walked over last; nil: nothing.
func (w *Walk) Snapshot() *Snapshot { return w.snapshot }

// Of returns the machines of an app that is noted, by name; nil: it is not. They are never changed.
func (w *Walk) Of(app string) []Seen {
	if x := w.apps[app]; x != nil {
		return x.list
	}
	return nil
}

// Look brings the notes up to date, and returns the apps that have other machines than before, or are noted no more. It
// is valid until the next call.
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

// noteMachines notes the machines of the app that the walk was at.
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
	clear(w.run) // and forget the machines
	w.run = w.run[:0]
}

// Worker returns what the snapshot says of a worker.
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
