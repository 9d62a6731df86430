package services

import (
	"context"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// hands make machines that stand in a fleet at once.
type hands struct {
	fleet   *fleet.Fleet
	mu      sync.Mutex
	orders  []rollout.Order
	err     error
	cordons []cluster.WorkerID
	obeyed  []obeyed
	wait    chan struct{}           // orders end when it is closed; nil: at once
	inForce map[string]cluster.Term // that the worker has obeyed, by app; nil: it looks at none
}

func (h *hands) CarryOut(ctx context.Context, app string, r *release.Release, o rollout.Order) error {
	h.mu.Lock()
	h.orders = append(h.orders, o)
	err, wait := h.err, h.wait
	if in := h.inForce[app]; h.inForce != nil && o.Term.Compare(in) < 0 {
		e := fault.New(fault.Conflict, cluster.CodeOldTerm, "term %s is in force", in)
		e.Detail = in
		err = e
	} else if h.inForce != nil {
		h.inForce[app] = o.Term
	}
	h.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	m := fleet.Machine{ID: o.Machine, App: app, Name: o.Slot().MachineName(o.Machine), State: machine.Started,
		Instance: "i", Worker: "w1", Replica: &o.Replica, Ready: true}
	h.fleet.Update(func(e *fleet.Edit) {
		if o.Verb == rollout.Remove {
			e.Gone(o.Worker, o.Machine)
		} else {
			e.Machine(m)
		}
	})
	return nil
}

// Obey tells what the fleet has of a worker, and notes who was asked.
func (h *hands) Obey(_ context.Context, app string, t cluster.Term, w cluster.WorkerID) (has []rollout.Found,
	err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.obeyed = append(h.obeyed, obeyed{w, t})
	for m := range h.fleet.Snapshot().MachinesOf(app) {
		if m.Worker == w && m.Replica != nil {
			has = append(has, rollout.Found{ID: m.ID, Replica: *m.Replica})
		}
	}
	return has, h.err
}

type obeyed struct {
	worker cluster.WorkerID
	term   cluster.Term
}

// Cordon notes which workers are cordoned.
func (h *hands) Cordon(_ context.Context, worker cluster.WorkerID, why string) error {
	h.mu.Lock()
	h.cordons = append(h.cordons, worker)
	h.mu.Unlock()
	h.fleet.Update(func(e *fleet.Edit) {
		e.Record(cluster.Record{Worker: worker, Version: 2,
			Cordon: &cluster.Cordon{Owner: cordonOwner, Reason: why}}, 1)
	})
	return nil
}

func (h *hands) take() []rollout.Order {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.orders
	h.orders = nil
	return out
}
