package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

func (g *Gateway) planDrain(w http.ResponseWriter, r *http.Request) error {
	worker, err := g.workerOf(r)
	if err != nil {
		return err
	}
	plan, err := g.drainPlan(r.Context(), worker)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, plan)
	return nil
}

// drainPlan places the worker's machines on a copy of the view without that worker, one after the other, as buyers would:
// by each one's own policy and the judge that the workers judge with. Large ones come first, as small ones fit in what is left.
func (g *Gateway) drainPlan(ctx context.Context, worker Worker) (api.DrainPlan, error) {
	plan := api.DrainPlan{Worker: worker.ID(), Moves: []api.DrainMove{}}
	machines, err := worker.Machines(ctx, "", false)
	if err != nil {
		return plan, err
	}
	view := without(g.viewNow(ctx), worker.ID())
	slices.SortStableFunc(machines, func(a, b *machine.Machine) int {
		return cmp.Or(cmp.Compare(sizeOf(b), sizeOf(a)), cmp.Compare(a.ID, b.ID))
	})
	for _, m := range machines {
		x := api.DrainMove{App: m.App, Machine: m.ID, Name: m.Name, State: m.State, Fate: api.FateStays}
		if x.Reason = g.tied(ctx, worker, m); x.Reason == "" {
			g.planMove(ctx, &x, m, &view)
		}
		plan.Moves = append(plan.Moves, x)
	}
	return plan, nil
}

// planMove finds a place in the view, and takes it there.
func (g *Gateway) planMove(ctx context.Context, x *api.DrainMove, m *machine.Machine, view *cluster.View) {
	x.Fate = api.FateStuck
	launch := relaunch(m, m.ID)
	req, policy, err := g.moveRequest(ctx, m, launch, *view)
	if err != nil {
		x.Reason = err.Error()
		return
	}
	ranked := placement.Rank(req, *view, policy)
	if len(ranked) == 0 || !ranked[0].Fits {
		x.Reason = stuckReason(ranked)
		return
	}
	best := ranked[0]
	x.Fate, x.To = api.FateMoves, best.Worker
	x.Reason = fmt.Sprintf("best score %.2f of %d workers", best.Score, len(ranked))
	if m.State == machine.Suspended {
		x.Reason += "; it is suspended, and what it has in memory is lost"
	}
	for i := range view.Workers {
		w := &view.Workers[i]
		if string(w.Worker) == best.Worker && req.Start {
			w.Used = w.Used.Add(req.Resources)
		}
	}
}

func stuckReason(ranked []machine.Candidate) string {
	if len(ranked) == 0 {
		return "there is no other worker"
	}
	text := "no other worker takes it now"
	for _, c := range ranked[:min(len(ranked), 3)] {
		if len(c.Failing) > 0 {
			text += fmt.Sprintf("; %s: %s", c.Worker, placement.ClauseText(c.Failing[0]))
		}
	}
	return text
}

// tied says what ties a machine to its worker; "" when nothing does.
func (g *Gateway) tied(ctx context.Context, w Worker, m *machine.Machine) string {
	switch {
	case m.Config == nil || m.Config.Image == "":
		return "its config is not known, as its worker cannot be asked"
	case len(m.Config.Mounts) > 0:
		return "its volume is there: copy what is on it, destroy both and make them anew"
	case m.Config.AutoDestroy:
		return "it goes by itself when it ends (auto_destroy)"
	case m.State.Transient():
		return fmt.Sprintf("it is %s; ask again when that is over", m.State)
	}
	if l, err := w.CurrentLease(ctx, m.App, m.ID); err == nil {
		return fmt.Sprintf("%s holds its lease", cmp.Or(l.Owner, "somebody"))
	}
	return ""
}

// MetadataMoved is the metadata key under which a machine that was made anew says whose place it takes.
const MetadataMoved = "souk_moved_from"

// relaunch gives the launch that makes a machine anew under an id. It stays in its region, and what is down stays down.
func relaunch(m *machine.Machine, id string) *machine.Launch {
	c := *m.Config
	c.Metadata = map[string]string{MetadataMoved: m.ID}
	for k, v := range m.Config.Metadata {
		if k != MetadataMoved && k != machine.MetadataEpoch {
			c.Metadata[k] = v
		}
	}
	c.Metadata[machine.MetadataEpoch] = strconv.FormatUint(machine.FenceEpoch(m)+1, 10)
	return &machine.Launch{ID: id, Name: m.Name, Region: string(m.Region), Config: &c, Scheduling: m.Scheduling,
		SkipLaunch: m.State != machine.Started, SkipServiceRegistration: m.Cordoned}
}

// moveRequest gives the request of a machine that is to be anywhere but where it is.
func (g *Gateway) moveRequest(ctx context.Context, m *machine.Machine, launch *machine.Launch, view cluster.View) (placement.Request, placement.Policy, error) {
	req, err := g.request(ctx, m.App, launch)
	if err != nil {
		return req, placement.Policy{}, err
	}
	elsewhere := cluster.Requirement{Attribute: "worker", Op: cluster.Unequal, Values: []cluster.Value{cluster.Text(string(m.Worker))}}
	req.Scheduling.Require = append(slices.Clone(req.Scheduling.Require), elsewhere)
	policy, err := g.policyFor(&req)
	return g.resolve(ctx, req, view), policy, err
}

func (g *Gateway) viewNow(ctx context.Context) cluster.View {
	view, _ := g.view(ctx)
	return view
}

// without gives a copy of a view without one worker.
func without(view cluster.View, id cluster.WorkerID) cluster.View {
	view.Workers = slices.DeleteFunc(slices.Clone(view.Workers), func(r cluster.Record) bool { return r.Worker == id })
	return view
}

func sizeOf(m *machine.Machine) int64 {
	if m.Config == nil {
		return 0
	}
	r := machine.Resources(m.Config)
	return r.CPU + r.Memory
}

func missing() error { return fault.New(fault.NotFound, machineMissing, "machine not found") }
