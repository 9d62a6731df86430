package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/store/catalog"
)

// directory finds machines, volumes and workers. It asks those workers that the fleet says have what is looked for; all
// of them only where the fleet does not know.
type directory struct {
	fleet  *fleet.Fleet
	worker func(cluster.WorkerID) (Worker, bool) // by which a worker is called
	apps   appFinder
	// contact has whom calls did not reach, which gossip need not know
	contact fleet.Contact
	// pageBytes bounds the machines of a page that are written, whatever limit says: clients read no more than 64 MiB
	pageBytes int
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

// owner has the worker answer that has a machine, or a volume. Where nobody has it, that is NotFound; see nowhere.
func owner[T any](ctx context.Context, g *directory, app, id, missing string, ask func(Worker) (T, error)) (T, error) {
	out, silent, err := search(ctx, g, app, id, missing, ask)
	if len(silent) > 0 {
		err = g.nowhere(missing, silent)
	}
	return out, err
}

// unanswered is a worker that could not be asked, and why.
type unanswered struct {
	id  cluster.WorkerID
	err error
}

// search has the worker answer that has a machine, or a volume: the one that the fleet says, and where that one says no
// or the fleet does not know, whichever of all does not say no. Where all that could be asked said no, it returns those
// that could not.
func search[T any](ctx context.Context, g *directory, app, id, missing string,
	ask func(Worker) (T, error)) (none T, silent []unanswered, err error) {
	if _, err := g.apps.App(app); err != nil && !g.has(app, id) {
		return none, nil, err
	}
	if missing == machineMissing && !machine.ValidID(id) {
		return none, nil, notFound(missing) // nobody need be asked
	}
	home, known := g.homeOf(id, missing)
	if w, ok := g.worker(home); known && ok {
		out, err := ask(w)
		g.contact.Called(home, !couldNotAsk(err))
		if fault.CodeOf(err) != missing {
			return out, nil, err
		}
		if err := ctx.Err(); err != nil {
			return none, nil, err
		}
	}
	workers := g.those(func(x *fleet.Worker) bool { return x.ID != home || !known })
	answers, errs := fanOut(workers, ask)
	if err := ctx.Err(); err != nil {
		return none, nil, err
	}
	for i, err := range errs {
		g.contact.Called(workers[i].ID(), !couldNotAsk(err))
		switch {
		case fault.CodeOf(err) == missing:
		case couldNotAsk(err):
			silent = append(silent, unanswered{workers[i].ID(), err})
		default:
			return answers[i], nil, err
		}
	}
	return none, silent, notFound(missing)
}

// has reports whether the fleet knows a machine as the app's. A member that has just begun may hear of machines before
// it hears of their apps.
func (d *directory) has(app, machine string) bool {
	x, known := d.fleet.Snapshot().Machine(machine)
	return known && x.App == app
}

// couldNotAsk reports whether an error is that a worker gave no answer.
func couldNotAsk(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout)
}

// mayNotAsk reports whether an error is that a worker answers no member of our role: one that is a worker only. Its own lists
// then have what others have told, and do not fail.
func mayNotAsk(err error) bool { return fault.Is(err, fault.Denied) && fault.CodeOf(err) == "role" }

// How long "not found" is held back for a worker that could not be asked: one that is heard of and has told what it
// has, whose word of what it made last is here by then; one that is heard of and has told nothing, which may yet come;
// and one that is not heard of, which may have made anything on the other side of a cut.
const (
	patienceReported   = 10 * time.Second
	patienceUnreported = time.Minute
	patienceUnheard    = 5 * time.Minute
)

// nowhere is the error of what none of those has that could be asked. While a worker could not be asked for a short
// time only, it may have it, so it is Unavailable; afterwards it is NotFound, and says who was not asked: an answer
// that never comes helps nobody.
func (d *directory) nowhere(missing string, silent []unanswered) error {
	names := make([]string, 0, maxMissing)
	known := d.fleet.Snapshot()
	for _, s := range silent {
		since, lost := d.contact.Lost(s.id)
		patience := patienceUnreported
		if x, there := known.Worker(s.id); there {
			if x.Reported {
				patience = patienceReported
			}
			switch {
			case x.Since.IsZero():
			case x.Reachable():
				if x.Since.After(since) {
					since = x.Since // it is back, and what it made meanwhile is yet to be heard of
				}
			default:
				patience = patienceUnheard
				if !lost || x.Since.Before(since) {
					since, lost = x.Since, true
				}
			}
		}
		if !lost || time.Since(since) < patience {
			return s.err
		}
		if len(names) < maxMissing {
			names = append(names, string(s.id))
		}
	}
	e := fault.As(notFound(missing))
	e.Text += "; of " + strings.Join(names, ", ") + ", which cannot be asked, no such one is known here"
	return e
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

// find returns a machine and its worker. Of a worker that cannot be asked the machine is as it was last told, with
// host_status "unreachable".
func (d *directory) find(ctx context.Context, app, id string) (found, error) {
	f, silent, err := d.findSurely(ctx, app, id)
	if len(silent) > 0 {
		return f, d.nowhere(machineMissing, silent)
	}
	if x, known := d.fleet.Snapshot().Machine(id); known && x.App == app && couldNotAsk(err) && ctx.Err() == nil {
		if w, there := d.worker(x.Worker); there {
			return found{w, x.LastKnown(d.silence(x.Worker))}, nil
		}
	}
	return f, err
}

// silence returns for how long a worker that cannot be asked has not been heard; 0 where nobody knows.
func (d *directory) silence(id cluster.WorkerID) time.Duration {
	since, _ := d.contact.Lost(id)
	if x, known := d.fleet.Snapshot().Worker(id); known && !x.Reachable() && !x.Since.IsZero() &&
		(since.IsZero() || x.Since.Before(since)) {
		since = x.Since
	}
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since), time.Millisecond)
}

// findSurely is find for who acts on NotFound: where a worker could not be asked, it is returned, whatever is known.
func (d *directory) findSurely(ctx context.Context, app, id string) (found, []unanswered, error) {
	return search(ctx, d, app, id, machineMissing, func(w Worker) (found, error) {
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

// outlived reports whether a machine was destroyed before its app was made: it was of another app of that name, which
// somebody else may have had.
func (d *directory) outlived(app string, m *machine.Machine) bool {
	a, err := d.apps.App(app)
	at, bad := time.Parse(time.RFC3339, m.UpdatedAt)
	return err == nil && (bad != nil || at.Before(a.CreatedAt))
}

// do has the machine's owner carry out a command.
func (d *directory) do(r *http.Request, c lifecycle.Command) (lifecycle.Outcome, error) {
	return owner(r.Context(), d, c.App, c.Machine, machineMissing,
		func(w Worker) (lifecycle.Outcome, error) { return w.Do(r.Context(), c) })
}

// fewWorkers is how many workers are all asked for a list of machines, so that it has what another member made a moment ago, for
// which no answer waits. Of more only those are asked that the fleet says have something.
const fewWorkers = 16

// having returns the workers that have machines of an app, "" for any, as far as the fleet knows, those of this process, and
// where there are few all that can be heard. Of destroyed machines the fleet knows nothing, so for them it is all workers.
func (d *directory) having(app string, destroyed bool) []Worker {
	if app == "" || destroyed {
		return d.workers()
	}
	now, has := d.fleet.Snapshot(), map[cluster.WorkerID]bool{}
	for _, id := range now.WorkersOf(app) {
		has[id] = true
	}
	few := now.Len() <= fewWorkers
	return d.those(func(x *fleet.Worker) bool { return x.Own || has[x.ID] || few && x.Reachable() })
}

// mayHave reports whether a worker is known to have machines of an app, or volumes of it.
func (d *directory) mayHave(id cluster.WorkerID, app string) bool {
	s := d.fleet.Snapshot()
	for range s.MachinesAt(id, app) {
		return true
	}
	x, known := s.Worker(id)
	return known && x.Record.VolumesOf[app] > 0
}

// machines lists all machines as their workers tell of them, and the workers that could not be asked.
func (d *directory) machines(ctx context.Context) ([]*machine.Machine, []unanswered, error) {
	return gather(d, d.workers(), func(w Worker) ([]*machine.Machine, error) { return w.Machines(ctx, "", false) },
		func(cluster.WorkerID) []*machine.Machine { return nil })
}

// volumes lists an app's volumes, "" for all, of the workers that have any, and those that could not be asked.
func (d *directory) volumes(ctx context.Context, app string) ([]machine.Volume, []unanswered, error) {
	return gather(d, d.withVolumes(app), func(w Worker) ([]machine.Volume, error) { return w.Volumes(ctx, app) },
		func(cluster.WorkerID) []machine.Volume { return nil }) // of volumes too little is told to list them
}

// withVolumes returns the workers that have volumes of an app, "" for any, or may have. Of a volume that was made a moment ago
// the fleet knows, also at another member: see agreed.
func (d *directory) withVolumes(app string) []Worker {
	return d.those(func(x *fleet.Worker) bool {
		has := len(x.Record.Volumes)
		if app != "" {
			has = x.Record.VolumesOf[app]
		}
		return x.Own || !x.Reported || has > 0
	})
}

// maxMissing bounds how many workers are named.
const maxMissing = 32

// nameMissing tells in an answer's header which workers a list lacks something of: those that were not asked, and those
// that have told nothing yet.
func (d *directory) nameMissing(w http.ResponseWriter, silent []unanswered) {
	ids := d.fleet.Snapshot().MustAsk()
	for _, s := range silent {
		ids = append(ids, s.id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return
	}
	names := make([]string, 0, min(len(ids), maxMissing))
	for _, id := range ids[:cap(names)] {
		names = append(names, string(id))
	}
	w.Header().Set(api.MissingHeader, strings.Join(names, ","))
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

// gather asks workers for lists and joins them. Of one that gives no answer, or none to us, what is known stands in, and it is
// returned: a list that silently lacks some would let its reader believe that they are gone. Another error fails all.
func gather[T any](d *directory, workers []Worker, ask func(Worker) ([]T, error),
	known func(cluster.WorkerID) []T) (all []T, silent []unanswered, err error) {
	lists, errs := fanOut(workers, ask)
	all = []T{}
	for i, l := range lists {
		id := workers[i].ID()
		d.contact.Called(id, !couldNotAsk(errs[i]))
		switch {
		case couldNotAsk(errs[i]), mayNotAsk(errs[i]):
			silent = append(silent, unanswered{id, errs[i]})
			l = known(id)
		case errs[i] != nil:
			return nil, nil, errs[i]
		}
		all = append(all, l...)
	}
	return all, silent, nil
}

// workerOf returns the worker of the path.
func (d *directory) workerOf(r *http.Request) (Worker, error) {
	id := cluster.WorkerID(r.PathValue("worker"))
	if w, known := d.worker(id); known {
		return w, nil
	}
	return nil, noWorker(string(id))
}

func noWorker(id string) error {
	return fault.New(fault.NotFound, "worker_not_found", "there is no worker %s; see %s", clip(id, 80),
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
