package known

import (
	"context"
	"time"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// Fleet is the fleet as a broker.Broker sees it: the directory's picture, and the workers themselves for questions that
// only they can answer.
type Fleet struct{ *find.Directory }

// View returns the workers' last reports.
func (f Fleet) View(context.Context) cluster.View { return f.Directory.View() }

// Worker returns a worker.
func (f Fleet) Worker(id cluster.WorkerID) broker.Worker {
	if w, there := f.Directory.Worker(id); there {
		return w
	}
	return nil
}

// Workers returns how many workers there are.
func (f Fleet) Workers() int { return f.Directory.Fleet.Snapshot().Len() }

// Pick asks the fleet's index.
func (f Fleet) Pick(
	_ context.Context, r *placement.Request, p *placement.Policy, n int, bind func() (placement.Policy, error),
) (cluster.View, int) {
	return f.Directory.Fleet.Pick(r, p, n, bind)
}

// Resolve fills in the request's neighbours from the fleet.
func (f Fleet) Resolve(_ context.Context, r placement.Request) placement.Request {
	return f.Directory.Fleet.Resolve(r)
}

// InUse looks the services up in the fleet.
func (f Fleet) InUse(app string, services []machine.Service) (host string, port int, by string) {
	o, _ := f.Directory.Fleet.Snapshot().InUse(app, services)
	return o.Host, o.Port, o.App
}

// Regions lists the regions that have workers.
func (f Fleet) Regions(context.Context) []cluster.Region {
	return f.Directory.Fleet.Snapshot().Regions()
}

// Refused enters a refusing worker's record in the fleet.
func (f Fleet) Refused(w cluster.WorkerID, rec cluster.Record) { f.Directory.Fleet.Refused(w, rec) }

// Granted enters a new machine in the fleet.
func (f Fleet) Granted(m *machine.Machine, r *placement.Request) { f.Directory.Fleet.Granted(m, r) }

// Find asks the worker that has the machine. The caller may make a machine after NotFound, so a single worker that
// could not be asked makes it Unavailable, for however long that lasts.
func (f Fleet) Find(ctx context.Context, app, id string) (broker.Worker, *machine.Machine, error) {
	x, silent, err := f.FindSurely(ctx, app, id)
	if len(silent) > 0 {
		err = silent[0].Err
	}
	return x.Worker, x.Machine, err
}

// Named looks a name up in the directory.
func (f Fleet) Named(ctx context.Context, app, name string) (string, error) {
	return f.Holder(ctx, app, name), nil
}

// Gone looks a machine up in the fleet.
func (f Fleet) Gone(machine string) bool { return f.Directory.Fleet.Gone(machine) }

// Keyed looks a key up, and with ask also asks the workers: their reports lack the newest machines and those that are
// over.
func (f Fleet) Keyed(ctx context.Context, app, hash string, ask bool, drawn time.Time) (*broker.Keyed, error) {
	if m, there := f.Directory.Fleet.Snapshot().Keyed(hash); there && m.App == app {
		return &broker.Keyed{Machine: m.ID, Mark: m.KeyMark}, nil
	}
	if !ask {
		return nil, nil
	}
	workers := f.Directory.Workers()
	answers, errs := find.AskAll(workers, func(w find.Worker) (*machine.Machine, error) {
		return w.Keyed(ctx, app, hash)
	})
	var silent []find.Unanswered
	for i, err := range errs {
		f.Contact.Called(workers[i].ID(), !find.NoAnswer(err))
		switch {
		case err == nil:
			return &broker.Keyed{Machine: answers[i].ID, Mark: answers[i].KeyMark}, nil
		case find.NoAnswer(err) && !f.deadBefore(workers[i].ID(), drawn):
			silent = append(silent, find.Unanswered{Worker: workers[i].ID(), Err: err})
		}
	}
	if len(silent) > 0 {
		if err := f.Nowhere(find.MachineMissing, silent); !fault.Is(err, fault.NotFound) {
			return nil, err
		}
	}
	return nil, nil
}

// deadBefore reports whether a worker was declared dead before t, and has not been heard since.
func (f Fleet) deadBefore(id cluster.WorkerID, t time.Time) bool {
	x, there := f.Directory.Fleet.Snapshot().Worker(id)
	return there && !t.IsZero() && !x.Reachable() && !x.Since.IsZero() && x.Since.Before(t)
}

// Volumes asks the workers that have any.
func (f Fleet) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	list, silent, err := f.Directory.Volumes(ctx, app)
	if len(silent) > 0 {
		err = f.Nowhere(find.VolumeMissing, silent)
	}
	return list, err
}
