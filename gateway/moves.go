package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// movesAPI serves machines that go to another worker by hand. One of its own is moved here, and a replica of a service by its
// steward.
type movesAPI struct {
	broker   moveBroker
	releases *releasesAPI
}

// moveBroker is what it needs of the broker.
type moveBroker interface {
	Move(ctx context.Context, m broker.Machine, to cluster.WorkerID) (*broker.Moved, error)
	MayMove(ctx context.Context, m broker.Machine, to cluster.WorkerID) error
	Takes(ctx context.Context, in broker.Intent, id string, at cluster.WorkerID) error
}

// handlers returns what it serves.
func (a *movesAPI) handlers() handlers {
	return handlers{
		api.MoveMachine:   a.move,
		api.PlanRebalance: a.plan,
		api.Rebalance:     a.rebalance,
	}
}

// move makes a machine anew at another worker and destroys it where it was, or has its service do that.
func (a *movesAPI) move(w http.ResponseWriter, r *http.Request) error {
	var in api.MoveRequest
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	d := a.releases.directory
	f, err := d.named(r)
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
		out, err = a.stay(r, m.Machine, in.Plan)
	case in.To != "" && m.Replica != nil:
		out, err = a.replica(r, m.Machine, &in)
	case in.Plan:
		out = api.Moved{From: m.ID, Worker: m.Worker, Machine: m.Machine, Planned: true}
		err = a.broker.MayMove(r.Context(), m, in.To)
	default:
		out, err = a.alone(r, m, in.To)
	}
	if err == nil {
		answer(w, http.StatusOK, out)
	}
	return err
}

// alone moves a machine of its own.
func (a *movesAPI) alone(r *http.Request, m broker.Machine, to cluster.WorkerID) (api.Moved, error) {
	out, err := a.broker.Move(r.Context(), m, to)
	if err != nil {
		return api.Moved{}, err
	}
	return api.Moved{From: out.From, Worker: out.Worker, Machine: out.Machine, DownMS: decision.Millis(out.Down)}, nil
}

// stay leaves a machine where it is; what was to take its place elsewhere goes.
func (a *movesAPI) stay(r *http.Request, m *machine.Machine, plan bool) (api.Moved, error) {
	out := api.Moved{From: m.ID, Worker: m.Worker, Machine: m, Already: true}
	if m.Replica == nil || m.Replica.Run != "" || plan {
		return out, nil
	}
	_, err := a.want(r, m.App, []rollout.MoveTo{{Machine: m.ID}})
	if fault.CodeOf(err) == "no_service" {
		err = nil
	}
	return out, err
}

// want has machines of a service be at other workers.
func (a *movesAPI) want(r *http.Request, app string, moves []rollout.MoveTo) (*rollout.Head, error) {
	known := a.releases.directory.Fleet.Snapshot()
	stands := func(id string) bool {
		_, there := known.Machine(id)
		return there
	}
	return a.releases.catalog.Move(app, moves, stands, caller(r), time.Now())
}

// replica has the steward of a service make another machine for a replica at a worker, if that takes it now.
func (a *movesAPI) replica(r *http.Request, m *machine.Machine, move *api.MoveRequest) (api.Moved, error) {
	s, _ := a.releases.catalog.Service(m.App)
	wanted, _ := s.InForce()
	if why := staysText(m, wanted); why != "" {
		return api.Moved{}, fault.New(fault.Precondition, "stays", "machine %s stays at worker %s: %s", m.ID, m.Worker,
			why)
	}
	out := api.Moved{From: m.ID, Worker: m.Worker, Machine: m, Begun: true}
	if s.Head.MovesTo(time.Now(), m.ID, m.Worker) == move.To && !move.Plan { // it is on its way
		return out, nil
	}
	o := rollout.Order{Verb: rollout.Make, Replica: machine.Replica{Group: m.Replica.Group, Index: m.Replica.Index},
		Asleep: m.Rests && slices.Contains(resting, m.State)}
	o.Machine = o.Slot().MachineID(s.App.ID, 0, "")
	in := broker.Intent{App: m.App, Launch: o.Launch(wanted), At: move.To}
	if err := a.broker.Takes(r.Context(), in, m.ID, m.Worker); err != nil {
		return api.Moved{}, err
	}
	if out.Begun, out.Planned = !move.Plan, move.Plan; move.Plan {
		return out, nil
	}
	_, err := a.want(r, m.App, []rollout.MoveTo{{Machine: m.ID, Group: m.Replica.Group, Index: m.Replica.Index,
		To: move.To}})
	return out, err
}

// staysText says why the machine of a replica cannot go to another worker; "": it can.
func staysText(m *machine.Machine, wanted *rollout.Release) string {
	switch {
	case m.Replica.Run != "":
		return "it runs once, and ends by itself"
	case wanted == nil || wanted.Group(m.Replica.Group) == nil:
		return "its service does not want it any more"
	case len(wanted.Group(m.Replica.Group).Config.Mounts) > 0:
		return "its volume is there, and a volume does not move: copy what is on it, and have a release mount another"
	}
	return ""
}

// plan lists the machines of a service that would leave their groups evenly spread elsewhere.
func (a *movesAPI) plan(w http.ResponseWriter, r *http.Request) error {
	out, err := a.uneven(r.PathValue("app"))
	if err == nil {
		answer(w, http.StatusOK, out)
	}
	return err
}

// rebalance has them made there.
func (a *movesAPI) rebalance(w http.ResponseWriter, r *http.Request) error {
	out, err := a.uneven(r.PathValue("app"))
	if err != nil {
		return err
	}
	if len(out.Moves) > 0 {
		moves := make([]rollout.MoveTo, len(out.Moves))
		for i, m := range out.Moves {
			moves[i] = rollout.MoveTo{Machine: m.Machine, Group: m.Group, Index: m.Index, To: m.To}
		}
		h, err := a.want(r, out.App, moves)
		if err != nil {
			return err
		}
		head := headAnswer(h)
		out.Head = &head
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (a *movesAPI) uneven(app string) (api.Rebalancing, error) {
	out := api.Rebalancing{App: app, Moves: []api.ReplicaMove{}}
	if _, err := a.releases.catalog.App(app); err != nil {
		return out, err
	}
	s, there := a.releases.catalog.Service(app)
	if !there {
		return out, catalog.NoService(app)
	}
	u := a.releases.uneven(&s)
	for i := range u.standing {
		m := &u.standing[i]
		if to := u.better[m.ID]; to != "" {
			out.Moves = append(out.Moves, api.ReplicaMove{Group: m.Group, Index: m.Index, Machine: m.ID,
				Worker: m.Worker, To: to, Why: u.why(m.Group, m.Worker, to)})
		}
	}
	slices.SortFunc(out.Moves, func(x, y api.ReplicaMove) int {
		return rollout.Slot{Group: x.Group, Index: x.Index}.Compare(rollout.Slot{Group: y.Group, Index: y.Index})
	})
	out.Moves = out.Moves[:min(len(out.Moves), rollout.MaxMoves)]
	return out, nil
}

// unevenness is which machines of a service would be better at which other workers.
type unevenness struct {
	standing []rollout.Standing          // where machines are once those that are on their way have come
	better   map[string]cluster.WorkerID // by the machine's id
	at       map[groupAt]int             // machines
}

// groupAt is a group at a worker.
type groupAt struct {
	group  string
	worker cluster.WorkerID
}

func (a *releasesAPI) uneven(s *catalog.Service) unevenness {
	u := unevenness{better: map[string]cluster.WorkerID{}, at: map[groupAt]int{}}
	wanted, restarted := s.InForce()
	if wanted == nil {
		return u
	}
	known := a.directory.Fleet.Snapshot()
	u.standing = s.Head.Moved(time.Now(), known.Standing(s.App.Name))
	for i := range u.standing {
		u.at[groupAt{u.standing[i].Group, u.standing[i].Worker}]++
	}
	for i := range wanted.Groups {
		g := &wanted.Groups[i]
		n := s.Head.Wanted(g, s.Tenure.Scaled)
		maps.Copy(u.better, g.Uneven(wanted.Spec(g, restarted), n, u.standing, known.Places()))
	}
	return u
}

// why says why a machine of a group would be better at another worker.
func (u *unevenness) why(group string, at, to cluster.WorkerID) string {
	return fmt.Sprintf("group %s is not spread evenly any more: worker %s has %d of its machines, and worker %s, "+
		"which has room for one, has %d", group, at, u.at[groupAt{group, at}], to, u.at[groupAt{group, to}])
}
