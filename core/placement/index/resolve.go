package index

import (
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Resolve fills in the request's Fleet, as placement.Resolve does from a view, without looking at every worker. Of the
// values without a machine of the app, one represents all. The given request is not changed.
func (x *Index) Resolve(r placement.Request, where func(machine string) cluster.WorkerID) placement.Request {
	if len(r.Scheduling.Affinity) == 0 && len(r.Scheduling.Spread) == 0 {
		return r
	}
	r.Fleet = placement.Fleet{Affinity: make([][]cluster.Value, len(r.Scheduling.Affinity)),
		Spread: make([]map[string]int, len(r.Scheduling.Spread))}
	for i, a := range r.Scheduling.Affinity {
		name := a.Within
		if name == "" {
			name = "worker"
		}
		seen := map[cluster.Value]bool{}
		note := func(s int32) {
			if v, there := x.rows[s].rec.Attribute(name); there && !seen[v] {
				seen[v] = true
				r.Fleet.Affinity[i] = append(r.Fleet.Affinity[i], v)
			}
		}
		if a.App != "" {
			for _, s := range x.rowsRunning(a.App) {
				note(s.row)
			}
		}
		if a.Machine != "" && where != nil {
			if s, ok := x.byID[where(a.Machine)]; ok {
				note(s)
			}
		}
		slices.SortFunc(r.Fleet.Affinity[i], compareValues)
	}
	for i, sp := range r.Scheduling.Spread {
		if sp.MaxSkew == 0 {
			r.Fleet.Spread[i] = x.machinesPerValue(r.App, sp.Attribute, nil)
		} else {
			r.Fleet.Spread[i] = x.machinesPerValue(r.App, sp.Attribute, x.openValues(&r, sp.Attribute))
		}
	}
	return r
}
