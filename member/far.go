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

// Far is another member's worker: what it told is answered here, and what it must be asked for goes over the wire.
type Far struct {
	*wire.Worker
	m  *Member
	id cluster.WorkerID
}

// handles are the other members' workers, by which they are called.
type handles struct {
	now    atomic.Pointer[directory]
	roster uint64 // of the fleet when they were listed
}

// directory is the handles at one moment.
type directory struct {
	list []*Far // in the order of their ids
	byID map[cluster.WorkerID]*Far
}

// listHandles makes a handle for each worker of the fleet that is new, and closes those of workers that are gone. It is
// called with the follower's lock.
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

// unheardError is the error of a member that cannot be heard; nil while it can.
func (f *Far) unheardError() error {
	if w, known := f.m.fleet.Snapshot().Worker(f.id); known && w.Reachable() {
		return nil
	}
	return fault.New(fault.Unavailable, broker.CodeGone,
		"worker %s has not been heard of for a while; its machines may be running, and what is asked of them must wait",
		f.id)
}

// Record is what the worker last told: nobody is asked.
func (f *Far) Record(context.Context) (cluster.Record, error) {
	if err := f.unheardError(); err != nil {
		return cluster.Record{}, err
	}
	if w, known := f.m.fleet.Snapshot().Worker(f.id); known && w.Reported {
		return *w.Record, nil
	}
	return cluster.Record{}, fault.New(fault.Unavailable, codeWorkerUnknown, "worker %s has not told yet what it has",
		f.id)
}

// Machine asks the worker. One that cannot be heard is not asked: a machine that another is known to have it has not.
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

// Events listens to the worker. Of one that cannot be heard there are none, until it is back: then the stream ends, for
// who listens must list the machines anew.
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
				"worker %s is heard of again; list the machines and listen again", f.id)
		}
		select {
		case <-past:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Grant is not tried at a worker that cannot be heard.
func (f *Far) Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	if err := f.unheardError(); err != nil {
		return nil, err
	}
	return f.Worker.Grant(ctx, g)
}

// Do is Grant for verbs.
func (f *Far) Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error) {
	if err := f.unheardError(); err != nil {
		return lifecycle.Outcome{}, err
	}
	return f.Worker.Do(ctx, c)
}

// Machines is Grant for lists.
func (f *Far) Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	if err := f.unheardError(); err != nil {
		return nil, err
	}
	return f.Worker.Machines(ctx, app, destroyed)
}

// Volumes is Machines for volumes.
func (f *Far) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	if err := f.unheardError(); err != nil {
		return nil, err
	}
	return f.Worker.Volumes(ctx, app)
}
