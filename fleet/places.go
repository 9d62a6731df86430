package fleet

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
)

// places are the workers of a snapshot, as a rollout sees them.
type places struct{ *Snapshot }

// Places returns the workers at which a rollout may make machines.
func (s *Snapshot) Places() rollout.Places { return places{s} }

// Workers lists the workers that are reachable and not cordoned.
func (p places) Workers() (out []cluster.WorkerID) {
	for w := range p.Snapshot.Workers() {
		if w.Reachable() && w.Record.State == cluster.Ready {
			out = append(out, w.ID)
		}
	}
	return out
}

// Value returns the value of an attribute of a worker.
func (p places) Value(id cluster.WorkerID, attribute string) string {
	w, known := p.Worker(id)
	if !known {
		return ""
	}
	v, has := w.Record.Attribute(attribute)
	if !has {
		return ""
	}
	return v.String()
}

// Takes judges a machine of a group for a worker, as the worker would. Only the broker knows region aliases: here a
// worker counts only if its region has the same name.
func (p places) Takes(id cluster.WorkerID, g *release.Group) bool {
	w, known := p.Worker(id)
	if !known || g.Region != "" && g.Region != string(w.Record.Region) {
		return false
	}
	var r placement.Request
	r.AskFor(g.Config)
	if r.Start = true; g.Scheduling != nil {
		r.Scheduling = *g.Scheduling
	}
	r.Scheduling.Spread, r.Scheduling.Affinity = nil, nil // only room and the worker's attributes matter here
	r.AskForRuntime(g.Config)
	return placement.FitsAt(&r, w.Record)
}
