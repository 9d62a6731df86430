// Package find finds machines and volumes at the workers that have them, and lists them. It asks the workers that have
// the object according to the fleet, and all workers only if the fleet does not know.
package find

import (
	"context"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/store/catalog"
)

// Directory finds machines, volumes and workers. Its fields are set before its first use, and do not change.
type Directory struct {
	Fleet  *fleet.Fleet
	Worker func(cluster.WorkerID) (Worker, bool) // returns the worker with an id
	Apps   Apps
	// Contact knows which workers did not answer calls; gossip may not.
	Contact fleet.Contact
}

// Worker is one worker, of this process or another.
type Worker = wire.Served

// Apps knows the existing apps.
type Apps interface {
	App(name string) (catalog.App, error)
}

// Workers returns all known workers, by id.
func (d *Directory) Workers() []Worker {
	return d.Those(func(*fleet.Worker) bool { return true })
}

// Those returns the workers for which keep is true.
func (d *Directory) Those(keep func(*fleet.Worker) bool) (out []Worker) {
	for x := range d.Fleet.Snapshot().Workers() {
		if keep(x) {
			if w, ok := d.Worker(x.ID); ok {
				out = append(out, w)
			}
		}
	}
	return out
}

// Owner asks the worker that has a machine or volume. If no worker has it the error is that of Nowhere.
func Owner[T any](ctx context.Context, g *Directory, app, id string, missing fault.Code,
	ask func(Worker) (T, error)) (T, error) {
	out, silent, err := searchWorkers(ctx, g, app, id, missing, ask)
	if len(silent) > 0 {
		err = g.Nowhere(missing, silent)
	}
	return out, err
}

// Unanswered is a worker that could not be asked, and why.
type Unanswered struct {
	Worker cluster.WorkerID
	Err    error
}

// searchWorkers asks for a machine or volume: first the worker that has it according to the fleet, then all others; the
// first answer other than not found counts. If all reachable workers answer not found, it returns the unreachable ones.
func searchWorkers[T any](ctx context.Context, g *Directory, app, id string, missing fault.Code,
	ask func(Worker) (T, error)) (none T, silent []Unanswered, err error) {
	if _, err := g.Apps.App(app); err != nil && !g.hasMachine(app, id) {
		return none, nil, err
	}
	if missing == MachineMissing && !machine.ValidID(id) {
		return none, nil, NotFound(missing) // no machine can have such an id
	}
	home, known := g.homeOf(id, missing)
	if w, ok := g.Worker(home); known && ok {
		out, err := ask(w)
		g.Contact.Called(home, !NoAnswer(err))
		if fault.CodeOf(err) != missing {
			return out, nil, err
		}
		if err := ctx.Err(); err != nil {
			return none, nil, err
		}
	}
	workers := g.Those(func(x *fleet.Worker) bool { return x.ID != home || !known })
	answers, errs := AskAll(workers, ask)
	if err := ctx.Err(); err != nil {
		return none, nil, err
	}
	for i, err := range errs {
		g.Contact.Called(workers[i].ID(), !NoAnswer(err))
		switch {
		case fault.CodeOf(err) == missing:
		case NoAnswer(err):
			silent = append(silent, Unanswered{workers[i].ID(), err})
		default:
			return answers[i], nil, err
		}
	}
	return none, silent, NotFound(missing)
}

// hasMachine reports whether the fleet knows a machine as the app's. A newly started member may learn of machines
// before their apps.
func (d *Directory) hasMachine(app, machine string) bool {
	x, known := d.Fleet.Snapshot().Machine(machine)
	return known && x.App == app
}

// NoAnswer reports whether an error means that a worker did not answer.
func NoAnswer(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout)
}

// mayNotAsk reports whether an error means that a worker does not answer members of our role (worker only). Our lists
// then contain what the worker has reported, and do not fail.
func mayNotAsk(err error) bool {
	return fault.Is(err, fault.Denied) && fault.CodeOf(err) == fault.CodeRole
}

// How long "not found" is withheld because of a worker that could not be asked: one that gossips and has reported,
// whose latest machines are known here by then; one that gossips but has not reported yet; and one that is silent,
// which may have made machines on the other side of a network partition.
const (
	PatienceReported   = 10 * time.Second
	PatienceUnreported = time.Minute
	PatienceUnheard    = 5 * time.Minute
)

// MaxNamed bounds how many unreachable workers an error or list names.
const MaxNamed = 32

// Nowhere is the error if no reachable worker has the object. While some worker has been unreachable only for a short
// time it may have the object, so the error is Unavailable; after that it is NotFound and names the workers that were
// not asked, so that clients do not wait for ever.
func (d *Directory) Nowhere(missing fault.Code, silent []Unanswered) error {
	names := make([]string, 0, MaxNamed)
	known := d.Fleet.Snapshot()
	for _, s := range silent {
		since, lost := d.Contact.Lost(s.Worker)
		patience := PatienceUnreported
		if x, there := known.Worker(s.Worker); there {
			if x.Reported {
				patience = PatienceReported
			}
			switch {
			case x.Since.IsZero():
			case x.Reachable():
				if x.Since.After(since) {
					since = x.Since // it is back, but its new machines are not known yet
				}
			default:
				patience = PatienceUnheard
				if !lost || x.Since.Before(since) {
					since, lost = x.Since, true
				}
			}
		}
		if !lost || time.Since(since) < patience {
			return s.Err
		}
		if len(names) < MaxNamed {
			names = append(names, string(s.Worker))
		}
	}
	e := fault.As(NotFound(missing))
	e.Text += "; of " + strings.Join(names, ", ") + ", which cannot be asked, no such one is known here"
	return e
}

// The codes by which a worker says that it does not have the object.
const (
	MachineMissing = fault.CodeMachineNotFound
	VolumeMissing  = fault.CodeVolumeNotFound
)

// NotFound is the error that a machine or volume does not exist.
func NotFound(missing fault.Code) error {
	if missing == VolumeMissing {
		return fault.New(fault.NotFound, VolumeMissing, "volume not found")
	}
	return fault.New(fault.NotFound, MachineMissing, "machine not found")
}

// homeOf returns the worker that has a machine or a volume, according to the fleet.
func (d *Directory) homeOf(id string, missing fault.Code) (cluster.WorkerID, bool) {
	s := d.Fleet.Snapshot()
	if missing == MachineMissing {
		return s.Home(id)
	}
	for w := range s.Workers() {
		if _, has := w.Record.Volumes[id]; has {
			return w.ID, true
		}
	}
	return "", false
}

// Found is a machine and its worker.
type Found struct {
	Worker  Worker
	Machine *machine.Machine
}

// Find returns a machine and its worker. If the worker is unreachable, the machine is as last reported, with
// host_status "unreachable".
func (d *Directory) Find(ctx context.Context, app, id string) (Found, error) {
	f, silent, err := d.FindSurely(ctx, app, id)
	if len(silent) > 0 {
		return f, d.Nowhere(MachineMissing, silent)
	}
	if x, known := d.Fleet.Snapshot().Machine(id); known && x.App == app && NoAnswer(err) && ctx.Err() == nil {
		if w, there := d.Worker(x.Worker); there {
			return Found{w, x.LastKnown(d.silentFor(x.Worker))}, nil
		}
	}
	return f, err
}

// silentFor returns how long an unreachable worker has been silent; 0: unknown.
func (d *Directory) silentFor(id cluster.WorkerID) time.Duration {
	since, _ := d.Contact.Lost(id)
	if x, known := d.Fleet.Snapshot().Worker(id); known && !x.Reachable() && !x.Since.IsZero() &&
		(since.IsZero() || x.Since.Before(since)) {
		since = x.Since
	}
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since), time.Millisecond)
}

// FindSurely is Find for callers that act on NotFound: it returns every worker that could not be asked, even if the
// fleet knows what that one has.
func (d *Directory) FindSurely(ctx context.Context, app, id string) (Found, []Unanswered, error) {
	return searchWorkers(ctx, d, app, id, MachineMissing, func(w Worker) (Found, error) {
		m, err := w.Machine(ctx, app, id)
		return Found{w, m}, err
	})
}

// Holder returns the id of the machine of an app that has a name; "": none. For a machine that was just made it asks
// the worker whether it still exists.
func (d *Directory) Holder(ctx context.Context, app, name string) string {
	m, taken := d.Fleet.Snapshot().Named(app, name)
	if !taken {
		return ""
	}
	if !m.Granted.IsZero() {
		if x, err := d.Find(ctx, app, m.ID); err != nil || x.Machine.State == machine.Destroyed {
			return ""
		}
	}
	return m.ID
}

// Outlived reports whether a machine was destroyed before its app was made: it belonged to an earlier app of that name,
// perhaps of another owner.
func (d *Directory) Outlived(app string, m *machine.Machine) bool {
	a, err := d.Apps.App(app)
	at, bad := time.Parse(time.RFC3339, m.UpdatedAt)
	return err == nil && (bad != nil || at.Before(a.CreatedAt))
}

// View returns the records of the reachable workers, as known here.
func (d *Directory) View() cluster.View { return d.Fleet.Snapshot().View() }

// WorkerAt returns a worker and its region; nil if it is gone.
func (d *Directory) WorkerAt(id cluster.WorkerID) (w Worker, region string) {
	if x, known := d.Fleet.Snapshot().Worker(id); known {
		region = string(x.Record.Region)
	}
	w, _ = d.Worker(id)
	return w, region
}
