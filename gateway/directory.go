package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/mesh/wire"
)

// directory finds machines, volumes and workers for requests.
type directory struct {
	*find.Directory
	// pageBytes bounds the bytes of a page's machines, whatever limit says: clients read no more than 64 MiB
	pageBytes int
}

// machineNamed finds a machine by its id, or else by its name: people use names on souk's own paths.
func (d *directory) machineNamed(r *http.Request) (find.Found, error) {
	ctx, app, id := r.Context(), r.PathValue("app"), r.PathValue("id")
	f, err := d.Find(ctx, app, id)
	if fault.CodeOf(err) != find.MachineMissing && !fault.Is(err, fault.Unavailable) {
		return f, err
	}
	if m, known := d.Fleet.Snapshot().Named(app, id); known {
		return d.Find(ctx, app, m.ID)
	}
	return find.Found{}, err
}

// doCommand sends a command to the machine's worker.
func (d *directory) doCommand(r *http.Request, c lifecycle.Command) (lifecycle.Outcome, error) {
	return find.Owner(r.Context(), d.Directory, c.App, c.Machine, find.MachineMissing,
		func(w Worker) (lifecycle.Outcome, error) { return w.Do(r.Context(), c) })
}

// nameMissing lists in a header the workers that a list may be incomplete for: those not asked, and those that have not
// reported yet.
func (d *directory) nameMissing(w http.ResponseWriter, silent []find.Unanswered) {
	setMissing(w, append(d.Fleet.Snapshot().MustAsk(), workersOf(silent)...))
}

func workersOf(silent []find.Unanswered) (ids []cluster.WorkerID) {
	for _, s := range silent {
		ids = append(ids, s.Worker)
	}
	return ids
}

// setMissing names workers in the header for those that an answer may lack.
func setMissing(w http.ResponseWriter, ids []cluster.WorkerID) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return
	}
	names := make([]string, 0, min(len(ids), find.MaxNamed))
	for _, id := range ids[:cap(names)] {
		names = append(names, string(id))
	}
	w.Header().Set(api.MissingHeader, strings.Join(names, ","))
}

// workerOf returns the worker that the path names.
func (d *directory) workerOf(r *http.Request) (Worker, error) {
	id := cluster.WorkerID(r.PathValue("worker"))
	if w, known := d.Worker(id); known {
		return w, nil
	}
	return nil, noWorker(string(id))
}

func noWorker(id string) error {
	return fault.New(fault.NotFound, fault.CodeWorkerNotFound, "there is no worker %s; see %s", clipText(id, 80),
		api.ListWorkers)
}

// Worker is one worker, of this process or another.
type Worker = wire.Served

// WorkerStats are a worker's own counters, for /metrics.
type WorkerStats = lifecycle.Stats
