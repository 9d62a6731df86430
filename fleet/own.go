package fleet

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Own feeds a fleet from a worker of this process. It is a worker.Observer: a change is in the fleet before the worker
// answers the caller.
type Own struct {
	f  *Fleet
	id cluster.WorkerID
}

// Own makes the feed of a worker of this process, and marks the worker as alive.
func (f *Fleet) Own(id cluster.WorkerID) *Own {
	f.Update(func(e *Edit) {
		next := unknownWorker(id)
		if w, known := e.workerByID(id); known {
			next = *w
		}
		next.Own, next.State, next.Since = true, cluster.MemberAlive, time.Now()
		e.putWorker(&next)
	})
	return &Own{f: f, id: id}
}

// Reporter is a worker that can report its record and machines.
type Reporter interface {
	Record(ctx context.Context) (cluster.Record, error)
	Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error)
}

// Begin enters all that a worker has. Call it before the worker runs, so that nothing changes meanwhile.
func (o *Own) Begin(ctx context.Context, w Reporter) error {
	rec, err := w.Record(ctx)
	if err != nil {
		return err
	}
	list, err := w.Machines(ctx, "", false)
	if err != nil {
		return err
	}
	o.f.Update(func(e *Edit) {
		e.Record(rec, 0)
		for _, x := range list {
			o.ownMachine(e, x)
		}
	})
	return nil
}

// Worker enters the worker's record.
func (o *Own) Worker(rec cluster.Record) { o.f.Update(func(e *Edit) { e.Record(rec, 0) }) }

// Machine enters the current state of a machine of the worker.
func (o *Own) Machine(x *machine.Machine) { o.Enter(x) }

// Enter is Machine for callers that inform other members: it returns the machine as the fleet now has it.
func (o *Own) Enter(x *machine.Machine) (m Machine) {
	o.f.Update(func(e *Edit) { m = o.ownMachine(e, x) })
	return m
}

// Load enters the proxy's load of machines of the worker, and returns the machines that changed. See Loads.
func (o *Own) Load(list []Load) (changed []Machine) {
	o.f.Update(func(e *Edit) {
		for _, l := range list {
			old, known := o.f.next.machines.Get(&Machine{ID: l.Machine, Worker: o.id})
			if !known || old.Load == l.Load {
				continue
			}
			m := *old
			m.Load = l.Load
			e.enterMachine(&m)
			changed = append(changed, m)
		}
	})
	return changed
}

// CPU is the CPU use of a machine.
type CPU struct {
	Machine string
	Percent int
}

// CPU enters the CPU use of machines of the worker, and returns the machines that changed.
func (o *Own) CPU(list []CPU) (changed []Machine) {
	o.f.Update(func(e *Edit) {
		for _, l := range list {
			old, known := o.f.next.machines.Get(&Machine{ID: l.Machine, Worker: o.id})
			if !known || old.CPU != nil && *old.CPU == l.Percent {
				continue
			}
			m := *old
			m.CPU = &l.Percent
			e.enterMachine(&m)
			changed = append(changed, m)
		}
	})
	return changed
}

// Gone removes a machine that the worker no longer keeps.
func (o *Own) Gone(id string) { o.f.Update(func(e *Edit) { e.Gone(o.id, id) }) }

func (o *Own) ownMachine(e *Edit, x *machine.Machine) Machine {
	m := Summary(x)
	m.Worker = o.id
	if old, known := o.f.next.machines.Get(&m); known {
		m.Load, m.CPU = old.Load, old.CPU // the worker does not know these
	}
	e.Machine(m)
	return m
}
