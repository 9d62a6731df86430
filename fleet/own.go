package fleet

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Own feeds a fleet from a worker of this process. It is a worker.Observer: what the worker has answered is in the
// fleet before anybody has the answer.
type Own struct {
	f  *Fleet
	id cluster.WorkerID
}

// Own makes the feed of a worker of this process, which from now on counts as alive.
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

// Reporter is a worker that says what it is and has.
type Reporter interface {
	Record(ctx context.Context) (cluster.Record, error)
	Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error)
}

// Begin enters all that a worker has. It is called before the worker works, so that nothing changes meanwhile.
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

// Worker enters what the worker says of itself.
func (o *Own) Worker(rec cluster.Record) { o.f.Update(func(e *Edit) { e.Record(rec, 0) }) }

// Machine enters a machine of the worker as it is now.
func (o *Own) Machine(x *machine.Machine) { o.Enter(x) }

// Enter is Machine for who tells others: it returns what the fleet knows of the machine now.
func (o *Own) Enter(x *machine.Machine) (m Machine) {
	o.f.Update(func(e *Edit) { m = o.ownMachine(e, x) })
	return m
}

// Load enters what the proxy has under way at machines of the worker, and returns those of which something else was
// known. See Loads.
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

// CPU is how much of its CPUs a machine uses.
type CPU struct {
	Machine string
	Percent int
}

// CPU enters how much CPU machines of the worker use, and returns those of which something else was known.
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

// Gone enters that the worker no longer keeps a machine.
func (o *Own) Gone(id string) { o.f.Update(func(e *Edit) { e.Gone(o.id, id) }) }

func (o *Own) ownMachine(e *Edit, x *machine.Machine) Machine {
	m := Summary(x)
	m.Worker = o.id
	if old, known := o.f.next.machines.Get(&m); known {
		m.Load, m.CPU = old.Load, old.CPU // of which the worker knows nothing
	}
	e.Machine(m)
	return m
}
