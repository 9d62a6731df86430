package releases

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// Stay cancels a machine's move: the machine stays, and its successor elsewhere is removed.
func (a *Releases) Stay(m *machine.Machine, plan bool, by string) (api.Moved, error) {
	out := api.Moved{From: m.ID, Worker: m.Worker, Machine: m, Already: true}
	if m.Replica == nil || m.Replica.Run != "" || plan {
		return out, nil
	}
	_, err := a.want(by, m.App, []release.MoveTo{{Machine: m.ID}})
	if fault.CodeOf(err) == fault.CodeNoService {
		err = nil
	}
	return out, err
}

// want records that machines of a service should be at other workers.
func (a *Releases) want(by, app string, moves []release.MoveTo) (*release.Head, error) {
	known := a.Directory.Fleet.Snapshot()
	stands := func(id string) bool {
		_, there := known.Machine(id)
		return there
	}
	h, _, err := a.Catalog.Change(app, release.Change{Why: release.WhyMove, Moves: moves, Stands: stands, By: by,
		At: time.Now()})
	return h, err
}

// MoveReplica lets a service's steward move a replica to a worker, if that worker would take it now.
func (a *Releases) MoveReplica(ctx context.Context, m *machine.Machine, move *api.MoveRequest,
	by string) (api.Moved, error) {
	s, _ := a.Catalog.Service(m.App)
	wanted, _ := s.InForce()
	if why := staysText(m, wanted); why != "" {
		return api.Moved{}, fault.New(fault.Precondition, fault.CodeStays,
			"machine %s stays at worker %s: %s", m.ID, m.Worker,
			why)
	}
	out := api.Moved{From: m.ID, Worker: m.Worker, Machine: m, Begun: true}
	if s.Head.MovesTo(time.Now(), m.ID, m.Worker) == move.To && !move.Plan { // the move is under way already
		return out, nil
	}
	o := rollout.Order{Verb: rollout.Make, Replica: machine.Replica{Group: m.Replica.Group, Index: m.Replica.Index},
		Asleep: m.Rests && slices.Contains(resting, m.State)}
	o.Machine = o.Slot().MachineID(s.App.ID, 0, "")
	in := broker.Intent{App: m.App, Launch: o.Launch(wanted), At: move.To}
	if err := a.Broker.Takes(ctx, in, m.ID, m.Worker); err != nil {
		return api.Moved{}, err
	}
	if out.Begun, out.Planned = !move.Plan, move.Plan; move.Plan {
		return out, nil
	}
	_, err := a.want(by, m.App, []release.MoveTo{{Machine: m.ID, Group: m.Replica.Group, Index: m.Replica.Index,
		To: move.To}})
	return out, err
}

// staysText says why a replica's machine cannot move to another worker; "": it can.
func staysText(m *machine.Machine, wanted *release.Release) string {
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

// Rebalancing lists the moves that would spread a service's groups evenly.
func (a *Releases) Rebalancing(app string) (api.Rebalancing, error) {
	out := api.Rebalancing{App: app, Moves: []api.ReplicaMove{}}
	if _, err := a.Apps.App(app); err != nil {
		return out, err
	}
	s, there := a.Catalog.Service(app)
	if !there {
		return out, catalog.NoService(app)
	}
	u := a.uneven(&s)
	for i := range u.standing {
		m := &u.standing[i]
		if to := u.better[m.ID]; to != "" {
			out.Moves = append(out.Moves, api.ReplicaMove{Group: m.Group, Index: m.Index, Machine: m.ID,
				Worker: m.Worker, To: to, Why: u.why(m.Group, m.Worker, to)})
		}
	}
	slices.SortFunc(out.Moves, func(x, y api.ReplicaMove) int {
		return release.Slot{Group: x.Group, Index: x.Index}.Compare(release.Slot{Group: y.Group, Index: y.Index})
	})
	out.Moves = out.Moves[:min(len(out.Moves), release.MaxMoves)]
	return out, nil
}

// Rebalance orders the moves that Rebalancing lists.
func (a *Releases) Rebalance(app, by string) (out api.Rebalancing, err error) {
	if out, err = a.Rebalancing(app); err != nil || len(out.Moves) == 0 {
		return out, err
	}
	moves := make([]release.MoveTo, len(out.Moves))
	for i, m := range out.Moves {
		moves[i] = release.MoveTo{Machine: m.Machine, Group: m.Group, Index: m.Index, To: m.To}
	}
	h, err := a.want(by, out.App, moves)
	if err != nil {
		return out, err
	}
	head := HeadAnswer(h)
	out.Head = &head
	return out, nil
}

// unevenness says which machines of a service would be better at which other workers.
type unevenness struct {
	standing []release.Standing          // the machines' workers once moves under way are done
	better   map[string]cluster.WorkerID // machine id to the better worker
	at       map[groupAt]int             // number of machines
}

// groupAt is a group at a worker.
type groupAt struct {
	group  string
	worker cluster.WorkerID
}

func (a *Releases) uneven(s *catalog.Service) unevenness {
	u := unevenness{better: map[string]cluster.WorkerID{}, at: map[groupAt]int{}}
	wanted, restarted := s.InForce()
	if wanted == nil {
		return u
	}
	known := a.Directory.Fleet.Snapshot()
	u.standing = s.Head.Moved(time.Now(), known.Standing(s.App.Name))
	for i := range u.standing {
		u.at[groupAt{u.standing[i].Group, u.standing[i].Worker}]++
	}
	for i := range wanted.Groups {
		g := &wanted.Groups[i]
		n := s.Head.Wanted(g, s.Tenure.Scaled)
		maps.Copy(u.better, rollout.Uneven(g, wanted.Spec(g, restarted), n, u.standing, known.Places()))
	}
	return u
}

// why says why a machine of a group would be better at another worker.
func (u *unevenness) why(group string, at, to cluster.WorkerID) string {
	return fmt.Sprintf("group %s is not spread evenly any more: worker %s has %d of its machines, and worker %s, "+
		"which has room for one, has %d", group, at, u.at[groupAt{group, at}], to, u.at[groupAt{group, to}])
}
