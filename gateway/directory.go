package gateway

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/wire"
)

// directory finds machines, volumes and workers. It asks those workers that the fleet says have what is looked for; all
// of them only where the fleet does not know.
type directory struct {
	fleet  *fleet.Fleet
	worker func(cluster.WorkerID) (Worker, bool) // by which a worker is called
	apps   appFinder
}

// appFinder tells which apps there are.
type appFinder interface {
	App(name string) (catalog.App, error)
}

// askedAtOnce bounds how many workers a request asks side by side.
const askedAtOnce = 64

// workers returns all workers that are known, in the order of their ids.
func (d *directory) workers() []Worker {
	return d.those(func(*fleet.Worker) bool { return true })
}

// those returns the workers of which keep is true.
func (d *directory) those(keep func(*fleet.Worker) bool) (out []Worker) {
	for x := range d.fleet.Snapshot().Workers() {
		if keep(x) {
			if w, ok := d.worker(x.ID); ok {
				out = append(out, w)
			}
		}
	}
	return out
}

// owner has the worker answer that has a machine, or a volume: the one that the fleet says, and where that one says no
// or the fleet does not know, whichever of all does not say no. Only when every worker has said no is it NotFound; when
// one could not be asked it is not known, and said so.
func owner[T any](ctx context.Context, g *directory, app, id, missing string, ask func(Worker) (T, error)) (T, error) {
	var none T
	if _, err := g.apps.App(app); err != nil {
		return none, err
	}
	if missing == machineMissing && !machine.ValidID(id) {
		return none, notFound(missing) // nobody need be asked
	}
	home, known := g.homeOf(id, missing)
	if w, ok := g.worker(home); known && ok {
		out, err := ask(w)
		if fault.CodeOf(err) != missing {
			return out, err
		}
		if err := ctx.Err(); err != nil {
			return none, err
		}
	}
	workers := g.those(func(x *fleet.Worker) bool { return x.ID != home || !known })
	answers, errs := fanOut(workers, ask)
	unsure := notFound(missing)
	for i, err := range errs {
		switch {
		case fault.CodeOf(err) == missing:
		case fault.Is(err, fault.Unavailable):
			unsure = err
		default:
			return answers[i], err
		}
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	return none, unsure
}

// The codes by which a worker says that what was asked for is not its own.
const (
	machineMissing = "machine_not_found"
	volumeMissing  = "volume_not_found"
)

func notFound(missing string) error {
	if missing == volumeMissing {
		return fault.New(fault.NotFound, volumeMissing, "volume not found")
	}
	return fault.New(fault.NotFound, machineMissing, "machine not found")
}

// homeOf returns the worker that has a machine or a volume, as far as the fleet knows.
func (d *directory) homeOf(id, missing string) (cluster.WorkerID, bool) {
	s := d.fleet.Snapshot()
	if missing == machineMissing {
		return s.Home(id)
	}
	for w := range s.Workers() {
		if _, has := w.Record.Volumes[id]; has {
			return w.ID, true
		}
	}
	return "", false
}

type found struct {
	worker  Worker
	machine *machine.Machine
}

// find returns a machine and its worker.
func (d *directory) find(ctx context.Context, app, id string) (found, error) {
	return owner(ctx, d, app, id, machineMissing, func(w Worker) (found, error) {
		m, err := w.Machine(ctx, app, id)
		return found{w, m}, err
	})
}

// holder returns the id of the machine of an app that has a name, "" where none has. Of a machine that was just made,
// only its worker knows whether it is still there.
func (d *directory) holder(ctx context.Context, app, name string) string {
	m, taken := d.fleet.Snapshot().Named(app, name)
	if !taken {
		return ""
	}
	if !m.Granted.IsZero() {
		if x, err := d.find(ctx, app, m.ID); err != nil || x.machine.State == machine.Destroyed {
			return ""
		}
	}
	return m.ID
}

// named finds a machine by its id, or else by its name: people type souk's own paths.
func (d *directory) named(r *http.Request) (found, error) {
	ctx, app, id := r.Context(), r.PathValue("app"), r.PathValue("id")
	f, err := d.find(ctx, app, id)
	if fault.CodeOf(err) != machineMissing && !fault.Is(err, fault.Unavailable) {
		return f, err
	}
	if m, known := d.fleet.Snapshot().Named(app, id); known {
		return d.find(ctx, app, m.ID)
	}
	return found{}, err
}

// do has the machine's owner carry out a command.
func (d *directory) do(r *http.Request, c lifecycle.Command) (lifecycle.Outcome, error) {
	return owner(r.Context(), d, c.App, c.Machine, machineMissing,
		func(w Worker) (lifecycle.Outcome, error) { return w.Do(r.Context(), c) })
}

// having returns the workers that have machines of an app, "" for any, as far as the fleet knows, and those of this
// process. Of destroyed machines the fleet knows nothing, so for them it is all workers.
func (d *directory) having(app string, destroyed bool) []Worker {
	if app == "" || destroyed {
		return d.workers()
	}
	has := map[cluster.WorkerID]bool{}
	for _, id := range d.fleet.Snapshot().WorkersOf(app) {
		has[id] = true
	}
	return d.those(func(x *fleet.Worker) bool { return x.Own || has[x.ID] })
}

// machines lists an app's machines, "" for all, as their workers tell of them.
func (d *directory) machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	return gather(d.having(app, destroyed),
		func(w Worker) ([]*machine.Machine, error) { return w.Machines(ctx, app, destroyed) })
}

// volumes lists an app's volumes, "" for all, of the workers that have any.
func (d *directory) volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	return gather(d.withVolumes(), func(w Worker) ([]machine.Volume, error) { return w.Volumes(ctx, app) })
}

// withVolumes returns the workers that have volumes, or may have.
func (d *directory) withVolumes() []Worker {
	return d.those(func(x *fleet.Worker) bool { return x.Own || !x.Reported || len(x.Record.Volumes) > 0 })
}

// missingHeader names the workers of which nothing is known, so that a list may lack what they have.
const missingHeader = "Souk-Missing"

// maxMissing bounds how many of them are named.
const maxMissing = 32

// nameMissing tells in an answer's header which workers a list says nothing of.
func (d *directory) nameMissing(w http.ResponseWriter) {
	ids := d.fleet.Snapshot().MustAsk()
	if len(ids) == 0 {
		return
	}
	names := make([]string, 0, min(len(ids), maxMissing))
	for _, id := range ids[:cap(names)] {
		names = append(names, string(id))
	}
	w.Header().Set(missingHeader, strings.Join(names, ","))
}

// fanOut asks workers side by side and returns the answers in the workers' order. One that errs has the error beside
// it.
func fanOut[T any](workers []Worker, ask func(Worker) (T, error)) ([]T, []error) {
	return fanOutTo(askedAtOnce, workers, ask)
}

// fanOutTo is fanOut with another bound of how many are asked at once.
func fanOutTo[T any](most int, workers []Worker, ask func(Worker) (T, error)) ([]T, []error) {
	out, errs := make([]T, len(workers)), make([]error, len(workers))
	if len(workers) == 1 {
		out[0], errs[0] = ask(workers[0])
		return out, errs
	}
	var all sync.WaitGroup
	free := make(chan struct{}, max(1, most))
	for i, w := range workers {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			out[i], errs[i] = ask(w)
		})
	}
	all.Wait()
	return out, errs
}

// gather asks workers for lists and joins them. One that errs fails it: a list that silently lacks some would let its
// reader believe that they are gone. (A worker that cannot be heard does not err: it gives what it last told.)
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

// workerOf returns the worker of the path.
func (d *directory) workerOf(r *http.Request) (Worker, error) {
	id := cluster.WorkerID(r.PathValue("worker"))
	if w, known := d.worker(id); known {
		return w, nil
	}
	return nil, fault.New(fault.NotFound, "worker_not_found", "there is no worker %s; see %s", clip(string(id), 80),
		api.ListWorkers)
}

// view returns the records of the workers that can be asked, as they are known here.
func (d *directory) view() cluster.View { return d.fleet.Snapshot().View() }

// workerAt returns a worker and its region; nil where it is gone.
func (d *directory) workerAt(id cluster.WorkerID) (w Worker, region string) {
	if x, known := d.fleet.Snapshot().Worker(id); known {
		region = string(x.Record.Region)
	}
	w, _ = d.worker(id)
	return w, region
}

// Worker is one worker, near or far.
type Worker = wire.Served

// WorkerStats are a worker's own counters, for /metrics.
type WorkerStats = lifecycle.Stats

// SecretsOf gives a worker the secrets of an app at the moment of a start.
type SecretsOf func(app string) (map[string]string, error)
