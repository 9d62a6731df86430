package services

import (
	"context"
	"time"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// verbTime bounds how long a worker may take for one verb. A stop that takes longer goes on at the worker, and the
// steward orders it again.
const verbTime = time.Minute

// Market implements Hands: it places machines through the broker, and sends verbs to workers.
type Market struct {
	Broker interface {
		Place(ctx context.Context, in broker.Intent) (*broker.Placed, error)
	}
	// Worker returns a worker; false: unknown.
	Worker func(cluster.WorkerID) (Operator, bool)
}

// Operator is what Market needs of a worker.
type Operator interface {
	Obey(ctx context.Context, app string, t cluster.Term) ([]lifecycle.Replica, error)
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	Cordon(ctx context.Context, c lifecycle.CordonCommand) (cluster.Record, error)
}

// cordonFor is how long a suspect worker is cordoned.
const cordonFor = time.Hour

// Cordon cordons a worker for cordonFor.
func (m Market) Cordon(ctx context.Context, worker cluster.WorkerID, why string) error {
	w, known := m.Worker(worker)
	if !known {
		return fault.New(fault.Unavailable, fault.CodeWorker, "worker %s is not known any more", worker)
	}
	_, err := w.Cordon(ctx, lifecycle.CordonCommand{Owner: cordonOwner, Reason: why, TTL: cordonFor})
	return err
}

// obeyTime bounds the call that makes a worker obey a term.
const obeyTime = 5 * time.Second

// Obey makes a worker obey a steward's term for an app, and returns the machines of the app's service there.
func (m Market) Obey(ctx context.Context, app string, t cluster.Term,
	worker cluster.WorkerID) (found []rollout.Found, err error) {
	w, known := m.Worker(worker)
	if !known {
		return nil, fault.New(fault.Unavailable, fault.CodeWorker, "worker %s is not known any more", worker)
	}
	ctx, cancel := context.WithTimeout(ctx, obeyTime)
	defer cancel()
	has, err := w.Obey(ctx, app, t)
	if err != nil {
		return nil, err
	}
	for i := range has {
		if x := &has[i]; x.State != machine.Destroyed {
			found = append(found, rollout.Found{ID: x.ID, Replica: x.Replica})
		}
	}
	return found, nil
}

// CarryOut carries out a steward's order.
func (m Market) CarryOut(ctx context.Context, app string, r *release.Release, o rollout.Order) error {
	if o.Verb == rollout.Make {
		return m.makeMachine(ctx, app, r, &o)
	}
	w, known := m.Worker(o.Worker)
	if !known {
		return fault.New(fault.Unavailable, fault.CodeWorker, "worker %s, which has machine %s, is not known any more",
			o.Worker, o.Machine)
	}
	for _, v := range orderVerbs(&o) {
		switch err := doVerb(ctx, w, app, &o, v); {
		case o.Verb == rollout.Remove && fault.Is(err, fault.NotFound):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// alone maps the orders that need a single worker verb to that verb.
var alone = map[rollout.Verb]lifecycle.Verb{rollout.Start: lifecycle.Start, rollout.Admit: lifecycle.Uncordon}

// orderVerbs returns the worker verbs of an order. Before a stop the worker cordons the machine: new requests go
// elsewhere, and running ones are answered.
func orderVerbs(o *rollout.Order) []lifecycle.Verb {
	switch {
	case o.Verb == rollout.Remove && o.Kill:
		return []lifecycle.Verb{lifecycle.Destroy}
	case o.Verb == rollout.Remove:
		return []lifecycle.Verb{lifecycle.Cordon, lifecycle.Stop, lifecycle.Destroy}
	case o.Verb == rollout.Hold:
		return []lifecycle.Verb{lifecycle.Cordon, lifecycle.Stop}
	case o.Verb == rollout.Try:
		return []lifecycle.Verb{lifecycle.Uncordon, lifecycle.Start}
	}
	return []lifecycle.Verb{alone[o.Verb]}
}

// makeMachine places a machine through the broker.
func (m Market) makeMachine(ctx context.Context, app string, r *release.Release, o *rollout.Order) error {
	in := broker.Intent{App: app, Launch: o.Launch(r),
		Replica: &broker.Replica{Replica: o.Replica, Term: o.Term, Booked: o.Booked, Token: o.Token}}
	if o.Only {
		in.At = o.Home
	}
	_, err := m.Broker.Place(ctx, in)
	return err
}

// doVerb sends one verb to a worker, and waits until it is done.
func doVerb(ctx context.Context, w Operator, app string, o *rollout.Order, v lifecycle.Verb) error {
	ctx, cancel := context.WithTimeout(ctx, verbTime)
	defer cancel()
	out, err := w.Do(ctx, lifecycle.Command{Verb: v, App: app, Machine: o.Machine, Source: machine.SourceUser,
		Term: &o.Term, Expect: o.Instance, Kill: o.Kill})
	if err == nil && out.Begun != nil {
		err = fault.New(fault.Unavailable, fault.CodeBegun, "machine %s has begun to %s and is not done yet",
			o.Machine, v)
	}
	return err
}
