package member

import (
	"context"
	"sync/atomic"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/wire"
)

// Far is another member's worker: reads of its reports are answered here, all other calls go over the wire.
type Far struct {
	*wire.Worker
	m  *Member
	id cluster.WorkerID
}

// handles are the Far workers of all other members.
type handles struct {
	now    atomic.Pointer[directory]
	roster uint64 // the fleet's roster when they were listed
}

// directory is the handles at one moment.
type directory struct {
	list []*Far // in the order of their ids
	byID map[cluster.WorkerID]*Far
}

// listHandles makes a handle for each worker of the fleet that is new, and closes those of workers that are gone. The
// caller holds the follower's lock.
func (m *Member) listHandles() {
	h, s := &m.follower.far, m.fleet.Snapshot()
	old := h.now.Load()
	if old != nil && h.roster == s.Roster() {
		return
	}
	h.roster = s.Roster()
	next := &directory{byID: map[cluster.WorkerID]*Far{}}
	for w := range s.Workers() {
		if w.ID == m.ID() {
			continue
		}
		f := (*Far)(nil)
		if old != nil {
			f = old.byID[w.ID]
		}
		if f == nil {
			id := w.ID
			f = &Far{Worker: m.client.Worker(id, func() string { return m.addressOf(id) }), m: m, id: id}
		}
		next.list, next.byID[w.ID] = append(next.list, f), f
	}
	h.now.Store(next)
	if old != nil {
		for _, f := range old.list {
			if next.byID[f.id] == nil {
				f.Close()
			}
		}
	}
}

func (m *Member) addressOf(id cluster.WorkerID) string {
	if w, known := m.fleet.Snapshot().Worker(id); known && w.Addr != "" {
		return w.Addr
	}
	return m.cluster.CalledBefore(id)
}

// Others lists the other members' workers, in the order of their ids.
func (m *Member) Others() []*Far { return m.follower.far.now.Load().list }

// Other returns another member's worker.
func (m *Member) Other(id cluster.WorkerID) (f *Far, known bool) {
	f, known = m.follower.far.now.Load().byID[id]
	return f, known
}

// unheardError is the error for an unreachable member; nil while it is reachable.
func (f *Far) unheardError() error {
	if w, known := f.m.fleet.Snapshot().Worker(f.id); known && w.Reachable() {
		return nil
	}
	return fault.New(fault.Unavailable, broker.CodeGone,
		"worker %s has not been heard of for a while; its machines may be running, but cannot be asked or changed "+
			"until it answers again",
		f.id)
}

// Record returns the worker's last report, without asking it.
func (f *Far) Record(context.Context) (cluster.Record, error) {
	if err := f.unheardError(); err != nil {
		return cluster.Record{}, err
	}
	if w, known := f.m.fleet.Snapshot().Worker(f.id); known && w.Reported {
		return *w.Record, nil
	}
	return cluster.Record{}, fault.New(fault.Unavailable, codeWorkerUnknown, "worker %s has not reported its "+
		"machines and resources yet",
		f.id)
}

// Machine asks the worker. For an unreachable one it answers NotFound if another worker is known to have the machine.
func (f *Far) Machine(ctx context.Context, app, id string) (*machine.Machine, error) {
	unheard := f.unheardError()
	if unheard == nil {
		return f.Worker.Machine(ctx, app, id)
	}
	if x, known := f.m.fleet.Snapshot().Machine(id); known && (x.Worker != f.id || x.App != app) {
		return nil, fault.New(fault.NotFound, fault.CodeMachineNotFound, "machine not found")
	}
	return nil, unheard
}

// Events streams the worker's events. While the worker is unreachable it has none; when it is back the stream ends,
// since the listener must list the machines again.
func (f *Far) Events(ctx context.Context, app string, emit func(machine.EventOf) error) error {
	if f.unheardError() == nil {
		return f.Worker.Events(ctx, app, emit)
	}
	if err := emit(machine.EventOf{}); err != nil {
		return err
	}
	for {
		past := f.m.fleet.Snapshot().Past()
		if f.unheardError() == nil {
			return fault.New(fault.Unavailable, codeWorkerBack,
				"worker %s is reachable again; list the machines and listen again", f.id)
		}
		select {
		case <-past:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Grant asks the worker to make a machine, unless it is unreachable.
func (f *Far) Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	if err := f.unheardError(); err != nil {
		return nil, err
	}
	return f.Worker.Grant(ctx, g)
}

// Do carries out a verb at the worker, unless it is unreachable.
func (f *Far) Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error) {
	if err := f.unheardError(); err != nil {
		return lifecycle.Outcome{}, err
	}
	return f.Worker.Do(ctx, c)
}

// Machines lists the worker's machines, unless it is unreachable.
func (f *Far) Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	if err := f.unheardError(); err != nil {
		return nil, err
	}
	return f.Worker.Machines(ctx, app, destroyed)
}

// Volumes lists the worker's volumes, unless it is unreachable.
func (f *Far) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	if err := f.unheardError(); err != nil {
		return nil, err
	}
	return f.Worker.Volumes(ctx, app)
}
