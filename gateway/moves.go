package gateway

import (
	"context"
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/services/releases"
)

// movesAPI serves manual moves of machines to another worker. It moves a stand-alone machine itself; a replica of a
// service is moved by the service's steward.
type movesAPI struct {
	broker    moveBroker
	releases  *releases.Releases
	directory *directory
}

// moveBroker is what movesAPI needs of the broker.
type moveBroker interface {
	Move(ctx context.Context, m broker.Machine, to cluster.WorkerID) (*broker.Moved, error)
	MayMove(ctx context.Context, m broker.Machine, to cluster.WorkerID) error
}

func (a *movesAPI) opHandlers() handlers {
	return handlers{
		api.MoveMachine:   a.move,
		api.PlanRebalance: a.plan,
		api.Rebalance:     a.rebalance,
	}
}

// move moves a machine to another worker, or asks its service to.
func (a *movesAPI) move(w http.ResponseWriter, r *http.Request) error {
	var in api.MoveRequest
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	d := a.directory
	f, err := d.machineNamed(r)
	if err != nil {
		return err
	}
	if f.Machine.State == machine.Destroyed {
		return fault.New(fault.NotFound, find.MachineMissing, "machine not found")
	}
	if _, known := d.Worker(in.To); !known && in.To != "" {
		return noWorker(string(in.To))
	}
	var out api.Moved
	switch m := (broker.Machine{Machine: f.Machine, At: f.Worker}); {
	case in.To != "" && in.To == m.Worker:
		out, err = a.releases.Stay(m.Machine, in.Plan, callerName(r))
	case in.To != "" && m.Replica != nil:
		out, err = a.releases.MoveReplica(r.Context(), m.Machine, &in, callerName(r))
	case in.Plan:
		out = api.Moved{From: m.ID, Worker: m.Worker, Machine: m.Machine, Planned: true}
		err = a.broker.MayMove(r.Context(), m, in.To)
	default:
		out, err = a.moveAlone(r, m, in.To)
	}
	return answerOrFail(w, http.StatusOK, out, err)
}

// moveAlone moves a machine that is no replica of a service.
func (a *movesAPI) moveAlone(r *http.Request, m broker.Machine, to cluster.WorkerID) (api.Moved, error) {
	out, err := a.broker.Move(r.Context(), m, to)
	if err != nil {
		return api.Moved{}, err
	}
	return api.Moved{From: out.From, Worker: out.Worker, Machine: out.Machine, DownMS: decision.Millis(out.Down)}, nil
}

// plan lists the machines of a service to move, and where, so that their groups are evenly spread.
func (a *movesAPI) plan(w http.ResponseWriter, r *http.Request) error {
	out, err := a.releases.Rebalancing(r.PathValue("app"))
	return answerOrFail(w, http.StatusOK, out, err)
}

// rebalance carries out such a plan.
func (a *movesAPI) rebalance(w http.ResponseWriter, r *http.Request) error {
	out, err := a.releases.Rebalance(r.PathValue("app"), callerName(r))
	return answerOrFail(w, http.StatusOK, out, err)
}
