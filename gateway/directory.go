package gateway

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/wire"
)

// directory finds machines and volumes among the workers, which it asks.
type directory struct {
	workers func() []Worker
	apps    appFinder
	where   func(id string) (cluster.WorkerID, bool) // nil: only the newest machines are known
	recent  recent                                   // machines made through this gateway
}

// appFinder tells which apps there are.
type appFinder interface {
	App(name string) (catalog.App, error)
}

// owner asks one worker after the other until one does not say that it has no such machine (or volume): that one is
// the owner, and its answer the answer. Only when every worker has said no is it NotFound; when one could not be
// asked it is not known, and said so. A machine's id does not tell where it is: machines may move.
//
// Where it is known whose id it is, that worker is asked first, and alone when it has it.
func owner[T any](ctx context.Context, g *directory, app, id, missing string, ask func(Worker) (T, error)) (T, error) {
	var none T
	if _, err := g.apps.App(app); err != nil {
		return none, err
	}
	if missing == machineMissing && !machine.ValidID(id) {
		return none, fault.New(fault.NotFound, machineMissing, "machine not found") // nobody need be asked
	}
	workers := g.workers()
	home, known := g.homeOf(id)
	if known {
		workers = homeFirst(workers, home)
	}
	var unsure error
	for _, w := range workers {
		out, err := ask(w)
		switch {
		case fault.CodeOf(err) == missing:
		case known && w.ID() == home:
			return out, err
		case fault.Is(err, fault.Unavailable) && len(workers) > 1:
			unsure = err
		default:
			return out, err
		}
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
	}
	if unsure != nil {
		return none, unsure
	}
	if missing == volumeMissing {
		return none, fault.New(fault.NotFound, volumeMissing, "volume not found")
	}
	return none, fault.New(fault.NotFound, machineMissing, "machine not found")
}

// The codes by which a worker says that what was asked for is not its own.
const (
	machineMissing = "machine_not_found"
	volumeMissing  = "volume_not_found"
)

type found struct {
	worker  Worker
	machine *machine.Machine
}

// Namer is a worker far away of which it is known here, from what it told all, how its machines are called.
type Namer interface {
	// Names gives the ids of an app's machines by their names.
	Names(app string) map[string]string
}

// names gives the ids of an app's machines by their names. Those of workers far away are as they last told.
func (d *directory) names(ctx context.Context, app string) (map[string]string, error) {
	lists, errs := fanOut(d.workers(), func(w Worker) (map[string]string, error) {
		if n, far := w.(Namer); far {
			return n.Names(app), nil
		}
		ms, err := w.Machines(ctx, app, false)
		names := make(map[string]string, len(ms))
		for _, m := range ms {
			names[m.Name] = m.ID
		}
		return names, err
	})
	all := map[string]string{}
	for i, l := range lists {
		if errs[i] != nil {
			return nil, errs[i]
		}
		maps.Copy(all, l)
	}
	return all, nil
}

// find gives a machine and its worker.
func (d *directory) find(ctx context.Context, app, id string) (found, error) {
	return owner(ctx, d, app, id, machineMissing, func(w Worker) (found, error) {
		m, err := w.Machine(ctx, app, id)
		return found{w, m}, err
	})
}

// homeFirst gives the workers with one of them in front.
func homeFirst(workers []Worker, home cluster.WorkerID) []Worker {
	i := slices.IndexFunc(workers, func(w Worker) bool { return w.ID() == home })
	if i <= 0 {
		return workers
	}
	out := append(make([]Worker, 0, len(workers)), workers[i])
	return append(append(out, workers[:i]...), workers[i+1:]...)
}

// fanOut asks all workers at once and gives the answers in the workers' order. One that errs has the error beside it.
func fanOut[T any](workers []Worker, ask func(Worker) (T, error)) ([]T, []error) {
	out, errs := make([]T, len(workers)), make([]error, len(workers))
	if len(workers) == 1 {
		out[0], errs[0] = ask(workers[0])
		return out, errs
	}
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() { out[i], errs[i] = ask(w) })
	}
	wg.Wait()
	return out, errs
}

// gather asks all workers for lists and joins them. One that errs fails it: a list that silently lacks some would let
// its reader believe that they are gone.
func gather[T any](workers []Worker, ask func(Worker) ([]T, error)) ([]T, error) {
	lists, errs := fanOut(workers, ask)
	all := []T{}
	for i, l := range lists {
		if errs[i] != nil {
			return nil, errs[i]
		}
		all = append(all, l...)
	}
	return all, nil
}

// machines lists an app's machines, "" for all, of all workers.
func (d *directory) machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	return gather(d.workers(), func(w Worker) ([]*machine.Machine, error) { return w.Machines(ctx, app, destroyed) })
}

// volumes lists an app's volumes, "" for all, of all workers.
func (d *directory) volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	return gather(d.workers(), func(w Worker) ([]machine.Volume, error) { return w.Volumes(ctx, app) })
}

// homeOf says which worker has a machine, as far as it is known here.
func (d *directory) homeOf(id string) (cluster.WorkerID, bool) {
	if home, ok := d.recent.home(id); ok {
		return home, true
	}
	if d.where == nil {
		return "", false
	}
	return d.where(id)
}

// do has the machine's owner carry out a command.
func (d *directory) do(r *http.Request, c lifecycle.Command) (lifecycle.Outcome, error) {
	return owner(r.Context(), d, c.App, c.Machine, machineMissing, func(w Worker) (lifecycle.Outcome, error) { return w.Do(r.Context(), c) })
}

// named finds a machine by its id, or else by its name: people type souk's own paths.
func (d *directory) named(r *http.Request) (found, error) {
	ctx, app, id := r.Context(), r.PathValue("app"), r.PathValue("id")
	f, err := d.find(ctx, app, id)
	if fault.CodeOf(err) != machineMissing && !fault.Is(err, fault.Unavailable) {
		return f, err
	}
	for _, w := range d.workers() { // also where a worker cannot be asked for the id: it may be a name at another
		machines, listErr := w.Machines(ctx, app, false)
		if listErr != nil {
			return found{}, listErr
		}
		for _, m := range machines {
			if m.Name == id {
				return found{w, m}, nil
			}
		}
	}
	return found{}, err
}

func (d *directory) workerOf(r *http.Request) (Worker, error) {
	id := cluster.WorkerID(r.PathValue("worker"))
	for _, w := range d.workers() {
		if w.ID() == id {
			return w, nil
		}
	}
	return nil, fault.New(fault.NotFound, "worker_not_found",
		"there is no worker %s; see %s", clip(string(id), 80), api.ListWorkers)
}

// view is the fleet as it says of itself now. A worker that does not answer is not in it.
func (d *directory) view(ctx context.Context) cluster.View {
	workers := d.workers()
	records, errs := fanOut(workers, func(w Worker) (cluster.Record, error) { return w.Record(ctx) })
	view := cluster.View{At: time.Now()}
	for i := range workers {
		if errs[i] == nil {
			view.Workers = append(view.Workers, records[i])
		}
	}
	return view
}

// workerAt gives a worker and its region as the view has it; nil where it is gone.
func (d *directory) workerAt(view cluster.View, id cluster.WorkerID) (w Worker, region string) {
	for i := range view.Workers {
		if view.Workers[i].Worker == id {
			region = string(view.Workers[i].Region)
		}
	}
	for _, k := range d.workers() {
		if k.ID() == id {
			w = k
		}
	}
	return w, region
}

// Bounds of what a gateway remembers of the machines that were made through it.
const (
	maxRecent  = 8192
	keepRecent = time.Minute // far longer than a worker's word takes to get here
)

// recent remembers where the newest machines made through this gateway are: who made one finds it here at once, also
// while its worker's word of it is still on the way.
type recent struct {
	mu   sync.Mutex
	by   map[string]recentMachine
	ring [maxRecent]string // ids in the order they came
	next int
}

type recentMachine struct {
	app, name string
	worker    cluster.WorkerID
	at        time.Time
}

func (r *recent) add(m *machine.Machine) {
	if m == nil || m.Worker == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]recentMachine{}
	}
	if _, known := r.by[m.ID]; !known {
		delete(r.by, r.ring[r.next])
		r.ring[r.next] = m.ID
		r.next = (r.next + 1) % maxRecent
	}
	r.by[m.ID] = recentMachine{m.App, m.Name, m.Worker, time.Now()}
}

// home says which worker has a machine.
func (r *recent) home(id string) (cluster.WorkerID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.by[id]
	return m.worker, ok && time.Since(m.at) < keepRecent
}

// named gives the id of an app's machine by its name.
func (r *recent) named(app, name string) (id string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, m := range r.by {
		if m.app == app && m.name == name && time.Since(m.at) < keepRecent {
			return id, true
		}
	}
	return "", false
}

// Worker is one worker, near or far.
type Worker = wire.Served

// WorkerStats are a worker's own counters, for /metrics.
type WorkerStats = lifecycle.Stats

// SecretsOf gives a worker the secrets of an app at the moment of a start.
type SecretsOf func(app string) (map[string]string, error)
