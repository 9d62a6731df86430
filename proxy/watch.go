package proxy

import (
	"slices"

	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// watch tracks the apps that need background work (rest, spares), and the machines of those that keep spares.
type watch struct {
	walk     *fleet.Walk
	restless []string // apps with a machine of this process that is up and may rest
}

func newWatch() *watch {
	w := &watch{}
	w.walk = fleet.NewWalk(func(m *fleet.Machine) bool { return len(m.Services) > 0 }, w.noteApp)
	return w
}

// findChanged updates the watch, and returns the apps that keep or kept spares and whose machines have changed.
func (w *watch) findChanged(s *fleet.Snapshot) (changed []string) {
	if s != w.walk.Snapshot() {
		w.restless = w.restless[:0]
	}
	return w.walk.Look(s)
}

// noteApp records whether an app has a machine that may rest, and reports whether it keeps spares.
func (w *watch) noteApp(app string, list []fleet.Seen) bool {
	if slices.ContainsFunc(list, func(m fleet.Seen) bool {
		return m.State == machine.Started && mayRest(m.Machine) && w.walk.Worker(m.Worker).Own
	}) {
		w.restless = append(w.restless, app)
	}
	return slices.ContainsFunc(list, func(m fleet.Seen) bool {
		return slices.ContainsFunc(m.Services, func(s machine.Service) bool { return s.Warm != nil })
	})
}

// mayRest reports whether a service of the machine lets it rest when idle.
func mayRest(m *fleet.Machine) bool {
	for i := range m.Services {
		if a := m.Services[i].Autostop; a != nil && *a != "off" {
			return true
		}
	}
	return false
}
