package member

import (
	"context"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/gossip"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/wire"
)

// Far is another member's worker: what it told is answered here, and what it must be asked for goes over the wire.
type Far struct {
	*wire.Worker
	m  *Member
	id cluster.WorkerID
}

// refreshEvery bounds how often the list of workers is made anew while much changes.
const refreshEvery = 20 * time.Millisecond

// follow keeps the list of other workers until ctx ends.
func (m *Member) follow(ctx context.Context) {
	for {
		moved := m.cluster.Moved()
		m.refresh()
		m.forget()
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(refreshEvery):
		}
	}
}

// refresh makes a link to each worker that is new.
func (m *Member) refresh() {
	m.readRemovals()
	old := map[cluster.WorkerID]*Far{}
	for _, f := range *m.far.Load() {
		old[f.id] = f
	}
	var next []*Far
	ids := m.cluster.Expected() // one that has not been heard yet may have what nobody else has: it must be asked, and cannot
	for _, k := range m.cluster.Known() {
		ids = append(ids, k.Owner)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id == m.ID() || m.removedFor(id) {
			continue
		}
		if f := old[id]; f != nil {
			next = append(next, f)
			delete(old, id)
			continue
		}
		next = append(next, &Far{Worker: m.client.Worker(id, func() string { return m.addressOf(id) }), m: m, id: id})
	}
	m.far.Store(&next)
	for _, f := range old { // those that are no more
		f.Close()
	}
}

func (m *Member) addressOf(id cluster.WorkerID) string {
	x, _ := m.cluster.Member(id)
	return x.API
}

// Others lists the other members' workers, in the order of their ids.
func (m *Member) Others() []*Far { return *m.far.Load() }

// gone is the error of a member that cannot be heard; nil while it can.
func (f *Far) gone() error {
	switch f.m.stateOf(f.id) {
	case gossip.Dead, gossip.Left, "":
		return fault.New(fault.Unavailable, gateway.CodeGone, "worker %s has not been heard of for a while; its machines may be running, and what is asked of them must wait", f.id)
	}
	return nil
}

// Record is what the worker last told: nobody is asked.
func (f *Far) Record(context.Context) (cluster.Record, error) {
	if err := f.gone(); err != nil {
		return cluster.Record{}, err
	}
	if w, told := f.m.cluster.Record(f.id); told {
		return w, nil
	}
	return cluster.Record{}, fault.New(fault.Unavailable, "worker_unknown", "worker %s has not told yet what it has", f.id)
}

// Names gives the ids of an app's machines by their names, as the worker told.
func (f *Far) Names(app string) map[string]string {
	out := map[string]string{}
	for _, x := range f.m.cluster.Machines(app) {
		if x.Worker == f.id && x.Name != "" {
			out[x.Name] = x.ID
		}
	}
	return out
}

// Machine asks the worker; of one that cannot be heard, what it last told is given, with host_status "unreachable". Where
// nobody is known to have the machine it may be one that the worker told nobody of: that is Unavailable, not NotFound.
func (f *Far) Machine(ctx context.Context, app, id string) (*machine.Machine, error) {
	if f.gone() == nil {
		return f.Worker.Machine(ctx, app, id)
	}
	if x, known := f.m.cluster.Machine(id); known {
		if x.Worker == f.id && x.App == app {
			return f.told(x), nil
		}
		return nil, fault.New(fault.NotFound, "machine_not_found", "machine not found")
	}
	return nil, f.gone() // it may have one that it has told nobody of
}

// Events listens to the worker. Of one that cannot be heard there are none, until it is back: then the stream ends, for who
// listens must list the machines anew.
func (f *Far) Events(ctx context.Context, app string, emit func(machine.EventOf) error) error {
	if f.gone() == nil {
		return f.Worker.Events(ctx, app, emit)
	}
	if err := emit(machine.EventOf{}); err != nil {
		return err
	}
	for {
		moved := f.m.cluster.Moved()
		if f.gone() == nil {
			return fault.New(fault.Unavailable, "worker_back", "worker %s is heard of again; list the machines and listen again", f.id)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Grant is not tried at a worker that cannot be heard.
func (f *Far) Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	if err := f.gone(); err != nil {
		return nil, err
	}
	return f.Worker.Grant(ctx, g)
}

// Do is Grant for verbs.
func (f *Far) Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error) {
	if err := f.gone(); err != nil {
		return lifecycle.Outcome{}, err
	}
	return f.Worker.Do(ctx, c)
}

// Machines is Machine for lists.
func (f *Far) Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	if f.gone() == nil {
		list, err := f.Worker.Machines(ctx, app, destroyed)
		if !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Timeout) {
			return list, err
		}
	}
	list := []*machine.Machine{}
	for _, x := range f.m.cluster.Machines(app) {
		if x.Worker == f.id {
			list = append(list, f.told(x))
		}
	}
	return list, nil
}

// told makes a machine of what its worker last told.
func (f *Far) told(x gossip.Machine) *machine.Machine {
	at := x.UpdatedAt.UTC().Format(time.RFC3339)
	return &machine.Machine{ID: x.ID, App: x.App, Name: x.Name, State: machine.State(x.State), Region: string(x.Region), InstanceID: x.Instance,
		Version: x.Instance, CreatedAt: at, UpdatedAt: at, Worker: f.id, HostStatus: "unreachable", Events: []machine.Event{}, Config: &machine.Config{}}
}

// Volumes lists the worker's volumes. Of one that cannot be heard none are known.
func (f *Far) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	if err := f.gone(); err != nil {
		return nil, nil
	}
	return f.Worker.Volumes(ctx, app)
}
