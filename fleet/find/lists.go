package find

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// fewWorkers is the largest number of workers that are all asked for a list of machines, so that it contains what
// another member made a moment ago. In larger fleets only workers are asked that have machines according to the fleet.
const fewWorkers = 16

// workersHaving returns the workers that have machines of an app, "" for any, according to the fleet, those of this
// process, and in a small fleet all reachable ones. The fleet does not know destroyed machines, so for those it returns
// all workers.
func (d *Directory) workersHaving(app string, destroyed bool) []Worker {
	if app == "" || destroyed {
		return d.Workers()
	}
	now, has := d.Fleet.Snapshot(), map[cluster.WorkerID]bool{}
	for _, id := range now.WorkersOf(app) {
		has[id] = true
	}
	few := now.Len() <= fewWorkers
	return d.Those(func(x *fleet.Worker) bool { return x.Own || has[x.ID] || few && x.Reachable() })
}

// MayHave reports whether a worker is known to have machines of an app, or volumes of it.
func (d *Directory) MayHave(id cluster.WorkerID, app string) bool {
	s := d.Fleet.Snapshot()
	for range s.MachinesAt(id, app) {
		return true
	}
	x, known := s.Worker(id)
	return known && x.Record.VolumesOf[app] > 0
}

// Machines lists all machines as their workers report them, and the workers that could not be asked.
func (d *Directory) Machines(ctx context.Context) ([]*machine.Machine, []Unanswered, error) {
	return gatherLists(d, d.Workers(), func(w Worker) ([]*machine.Machine, error) { return w.Machines(ctx, "", false) },
		func(cluster.WorkerID) []*machine.Machine { return nil })
}

// Volumes lists an app's volumes, "" for all, from the workers that have any, and the workers that could not be asked.
func (d *Directory) Volumes(ctx context.Context, app string) ([]machine.Volume, []Unanswered, error) {
	return gatherLists(d, d.WithVolumes(app), func(w Worker) ([]machine.Volume, error) { return w.Volumes(ctx, app) },
		func(cluster.WorkerID) []machine.Volume { return nil }) // the fleet knows too little of volumes to list them
}

// WithVolumes returns the workers that have volumes of an app, "" for any, or may have. The fleet knows even volumes
// made a moment ago at another member: see broker.Options.Agree.
func (d *Directory) WithVolumes(app string) []Worker {
	return d.Those(func(x *fleet.Worker) bool {
		has := len(x.Record.Volumes)
		if app != "" {
			has = x.Record.VolumesOf[app]
		}
		return x.Own || !x.Reported || has > 0
	})
}

// lister is a worker that caches its machines' JSON: each machine is encoded once per change.
type lister interface {
	Listing(app string, destroyed bool) iter.Seq2[*machine.Machine, json.Marshaler]
}

// Listed is a machine of a list, with a function that returns its JSON.
type Listed struct {
	*machine.Machine
	Text json.Marshaler
}

// Plain is a machine without cached JSON, encoded when it is written.
type Plain machine.Machine

// MarshalJSON encodes the machine.
func (m *Plain) MarshalJSON() ([]byte, error) { return json.Marshal((*machine.Machine)(m)) }

// Listing lists an app's machines ("": all apps') for which keep is true, with their JSON. It also returns the workers
// that could not be asked; for them the list has their last reports.
func (d *Directory) Listing(
	ctx context.Context, app string, destroyed bool, keep func(*machine.Machine) bool,
) ([]Listed, []Unanswered, error) {
	ask := func(w Worker) ([]Listed, error) {
		var out []Listed
		if l, keeps := w.(lister); keeps {
			for m, text := range l.Listing(app, destroyed) {
				if keep(m) {
					out = append(out, Listed{m, text})
				}
			}
			return out, nil
		}
		ms, err := w.Machines(ctx, app, destroyed)
		return listPlainly(ms, keep), err
	}
	return gatherLists(d, d.workersHaving(app, destroyed), ask, func(id cluster.WorkerID) []Listed {
		var known []*machine.Machine
		for x := range d.Fleet.Snapshot().MachinesAt(id, app) {
			known = append(known, x.LastKnown(d.silentFor(id)))
		}
		return listPlainly(known, keep)
	})
}

// listPlainly lists the machines for which keep is true, without cached JSON.
func listPlainly(ms []*machine.Machine, keep func(*machine.Machine) bool) (out []Listed) {
	for _, m := range ms {
		if keep(m) {
			out = append(out, Listed{m, (*Plain)(m)})
		}
	}
	return out
}
