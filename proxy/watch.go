package proxy

import (
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// watch notes which apps have something to be done that no request asks for. It walks over all machines of the fleet
// when there is a newer snapshot, and keeps little of those that sleep.
type watch struct {
	snapshot *fleet.Snapshot
	restless []string            // apps with a machine of this process that is up and may rest
	warm     map[string]*warmApp // apps with a service that keeps spares

	walks   uint64
	workers map[cluster.WorkerID]workerNow // of the walk
	run     []seen                         // machines of the app that the walk is at
}

// workerNow is what a walk needs of a worker.
type workerNow struct{ own, heard bool }

// seen is a machine as a snapshot has it: what changes is another one.
type seen struct {
	*fleet.Machine
	workerNow
}

func newWatch() *watch { return &watch{warm: map[string]*warmApp{}} }

// look brings the notes up to date.
func (w *watch) look(s *fleet.Snapshot) {
	if s == w.snapshot {
		return
	}
	w.snapshot, w.restless, w.workers = s, w.restless[:0], map[cluster.WorkerID]workerNow{}
	w.walks++
	app, resting, warm := "", false, false
	end := func() {
		if resting {
			w.restless = append(w.restless, app)
		}
		if warm {
			w.note(app)
		}
		clear(w.run) // and forget the machines
		w.run, resting, warm = w.run[:0], false, false
	}
	for m := range s.AllMachines() { // by app
		if m.App != app {
			end()
			app = m.App
		}
		if len(m.Services) == 0 {
			continue
		}
		if !resting && m.State == machine.Started && rests(m) {
			resting = w.worker(m.Worker).own
		}
		warm = warm || slices.ContainsFunc(m.Services, func(s machine.Service) bool { return s.Warm != nil })
		w.run = append(w.run, seen{Machine: m})
	}
	end()
	maps.DeleteFunc(w.warm, func(_ string, a *warmApp) bool { return a.walk != w.walks && !a.busy() })
}

// note notes the machines of an app that keeps spares.
func (w *watch) note(app string) {
	for i := range w.run {
		w.run[i].workerNow = w.worker(w.run[i].Worker)
	}
	a := w.warm[app]
	if a == nil {
		a = &warmApp{app: app}
		w.warm[app] = a
	}
	a.walk = w.walks
	if !slices.Equal(a.machines, w.run) {
		a.machines, a.changed = slices.Clone(w.run), true
	}
}

func (w *watch) worker(id cluster.WorkerID) workerNow {
	now, known := w.workers[id]
	if !known {
		if x, is := w.snapshot.Worker(id); is {
			now = workerNow{own: x.Own, heard: x.Reachable()}
		}
		w.workers[id] = now
	}
	return now
}

// rests reports whether some service of a machine has it rest.
func rests(m *fleet.Machine) bool {
	for i := range m.Services {
		if a := m.Services[i].Autostop; a != nil && *a != "off" {
			return true
		}
	}
	return false
}
