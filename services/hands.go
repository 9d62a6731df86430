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

// verbTime bounds how long a worker may take for one verb. A stop that takes longer has begun, and is asked for again.
const verbTime = time.Minute

// Market is the hands of a process: it has the broker place machines, and tells workers what to do with theirs.
type Market struct {
	Broker interface {
		Place(ctx context.Context, in broker.Intent) (*broker.Placed, error)
	}
	// Worker returns a worker; false: it is not known.
	Worker func(cluster.WorkerID) (Operator, bool)
}

// Operator is what it needs of a worker.
type Operator interface {
	Obey(ctx context.Context, app string, t cluster.Term) ([]lifecycle.Replica, error)
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	Cordon(ctx context.Context, c lifecycle.CordonCommand) (cluster.Record, error)
}

// cordonFor is for how long a worker takes nothing new that seems to be at fault.
const cordonFor = time.Hour

// Cordon has a worker take nothing new for an hour.
func (m Market) Cordon(ctx context.Context, worker cluster.WorkerID, why string) error {
	w, known := m.Worker(worker)
	if !known {
		return fault.New(fault.Unavailable, fault.CodeWorker, "worker %s is not known any more", worker)
	}
	_, err := w.Cordon(ctx, lifecycle.CordonCommand{Owner: cordonOwner, Reason: why, TTL: cordonFor})
	return err
}

// obeyTime bounds how long a worker may take to obey.
const obeyTime = 5 * time.Second

// Obey has a worker obey a term for an app, and returns which machines of its service it has then.
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

// CarryOut does what a steward ordered.
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

// alone are the verbs of orders that take one.
var alone = map[rollout.Verb]lifecycle.Verb{rollout.Start: lifecycle.Start, rollout.Admit: lifecycle.Uncordon}

// orderVerbs returns what a worker does for an order. Before a machine is stopped requests go elsewhere, and those that
// it has are answered.
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

// makeMachine has a machine placed.
func (m Market) makeMachine(ctx context.Context, app string, r *release.Release, o *rollout.Order) error {
	in := broker.Intent{App: app, Launch: o.Launch(r),
		Replica: &broker.Replica{Replica: o.Replica, Term: o.Term, Booked: o.Booked, Token: o.Token}}
	if o.Only {
		in.At = o.Home
	}
	_, err := m.Broker.Place(ctx, in)
	return err
}

// doVerb has a worker carry out one verb, to its end.
func doVerb(ctx context.Context, w Operator, app string, o *rollout.Order, v lifecycle.Verb) error {
	ctx, cancel := context.WithTimeout(ctx, verbTime)
	defer cancel()
	out, err := w.Do(ctx, lifecycle.Command{Verb: v, App: app, Machine: o.Machine, Source: machine.SourceUser,
		Term: &o.Term, Expect: o.Instance, Kill: o.Kill})
	if err == nil && out.Begun != nil {
		err = fault.New(fault.Unavailable, fault.CodeBegun, "machine %s has begun to %s and goes on", o.Machine, v)
	}
	return err
}
