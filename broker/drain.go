package broker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// DrainPlan places a worker's machines on a copy of the view without that worker, one after another, as buyers would:
// by each machine's policy and with the workers' own judge. Large ones come first, since small ones fit into the rest.
// It also lists the worker's tasks and volumes. Nothing is moved.
func (b *Broker) DrainPlan(ctx context.Context, worker cluster.WorkerID) (*api.DrainPlan, error) {
	w, err := b.workerByID(worker)
	if err != nil {
		return nil, err
	}
	plan := &api.DrainPlan{Worker: worker, Moves: []api.DrainMove{}}
	machines, err := w.Machines(ctx, "", false)
	if err != nil {
		return nil, err
	}
	if plan.Volumes, err = leftVolumes(ctx, w); err != nil {
		return nil, err
	}
	if plan.Tasks, err = tasksByJob(ctx, w); err != nil {
		return nil, err
	}
	there := newDrainView(viewWithout(b.fleet.View(ctx), worker), "drain")
	slices.SortStableFunc(machines, func(x, y *machine.Machine) int {
		return cmp.Or(cmp.Compare(sizeOf(y), sizeOf(x)), cmp.Compare(x.ID, y.ID))
	})
	for _, m := range machines {
		d := api.DrainMove{App: m.App, Machine: m.ID, Name: m.Name, State: m.State, Fate: api.FateStays}
		switch d.Reason = b.whatTies(ctx, Machine{Machine: m, At: w}); {
		case d.Reason == "":
			b.planMove(ctx, &d, Machine{Machine: m, At: w}, there)
		case isBusy(m):
			d.Fate = api.FateWaits
		}
		plan.Moves = append(plan.Moves, d)
	}
	return plan, nil
}

// tasksByJob counts a worker's tasks by job, in the order of the jobs' ids.
func tasksByJob(ctx context.Context, w Inspector) ([]api.DrainTasks, error) {
	tasks, err := w.RunningTasks(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.DrainTasks{}
	for i := range tasks { // in the order of their names, which begin with the job
		t := &tasks[i]
		life, _ := jobs.ParseLife(t.Name)
		last := len(out) - 1
		if last < 0 || out[last].Job != life.Job {
			out, last = append(out, api.DrainTasks{Job: life.Job}), last+1
		}
		out[last].Running++
		out[last].App = cmp.Or(out[last].App, t.App)
	}
	return out, nil
}

// leftVolumes lists the ids of a worker's volumes that no machine has attached.
func leftVolumes(ctx context.Context, w Inspector) ([]string, error) {
	volumes, err := w.Volumes(ctx, "")
	if err != nil {
		return nil, err
	}
	out := []string{}
	for i := range volumes {
		if v := &volumes[i]; v.AttachedMachine == nil {
			out = append(out, v.ID)
		}
	}
	slices.Sort(out)
	return out, nil
}

// drainView is the fleet as it will be once the machines planned so far have moved or were made.
type drainView struct {
	cluster.View
	of    string                       // what the plan is for, in words
	ports map[string][]machine.Publish // of the planned machines, by worker
	freed map[string][]machine.Publish // of machines that will be gone, by worker
}

func newDrainView(v cluster.View, of string) drainView {
	return drainView{v, of, map[string][]machine.Publish{}, map[string][]machine.Publish{}}
}

// takeMachine enters a machine that is planned for a worker.
func (v drainView) takeMachine(worker string, r *placement.Request) {
	v.ports[worker] = append(v.ports[worker], r.Publish...)
	for i := range v.Workers {
		k := &v.Workers[i]
		if string(k.Worker) != worker {
			continue
		}
		room := r.Occupies() // a stopped machine asks for the rest when it starts
		k.Used, k.Machines, k.Apps = k.Used.Add(room), k.Machines+1, maps.Clone(k.Apps)
		if k.Apps == nil {
			k.Apps = map[string]int{}
		}
		k.Apps[r.App]++
	}
}

// planMove finds a place for a machine in the view, and takes it there. It takes the steps of Place that leave nothing
// behind.
func (b *Broker) planMove(ctx context.Context, d *api.DrainMove, m Machine, view drainView) {
	d.Fate = api.FateStuck
	if m.Replica != nil && m.Replica.Run != "" { // a run of a job: its steward removes it when it ends
		d.Fate, d.Reason = api.FateWaits, "it runs once, and its end is waited for"
		return
	}
	o := b.newOrder(Intent{App: m.App, Launch: relaunchOf(m.Machine, successorID(m.ID, 0)),
		Replaces: &m}) // under its future id, which decides among equal workers
	if err := b.prepareOrder(ctx, o); err != nil {
		d.Reason = err.Error()
		return
	}
	p := o.Purchases[0]
	ranked := b.withPorts(ctx, &p.Request, placement.Rank(p.Request, view.View, p.Policy), view)
	if len(ranked) == 0 || !ranked[0].Fits {
		d.Reason = stuckReason(ranked)
		return
	}
	best := ranked[0]
	view.takeMachine(best.Worker, &p.Request)
	if m.Replica != nil {
		d.Fate, d.Reason = api.FateAnew, "its service makes another where there is room, and then removes it"
		return
	}
	d.Fate, d.To = api.FateMoves, best.Worker
	d.Reason = fmt.Sprintf("best score %.2f of %d workers", best.Score, len(ranked))
	if m.State == machine.Suspended {
		d.Reason += "; it is suspended, and what it has in memory is lost"
	}
}

// withPorts moves the first candidate to the front on which the ports of a request are free. Records do not show ports,
// so it asks the workers that fit, the best first, as many as a buyer would ask; those without the ports are marked as
// unfit, with the reason.
func (b *Broker) withPorts(ctx context.Context, r *placement.Request, ranked []machine.Candidate,
	view drainView) []machine.Candidate {
	if len(r.Publish) == 0 {
		return ranked
	}
	out := slices.Clone(ranked)
	for i := range out {
		c := &out[i]
		if !c.Fits || i >= market.MaxAsked {
			break // the others do not fit, or a buyer would not ask them
		}
		c.Failing = b.portsAgainst(ctx, r, c.Worker, view)
		if c.Fits = len(c.Failing) == 0; c.Fits {
			best := *c
			return slices.Insert(slices.Delete(out, i, i+1), 0, best)
		}
	}
	return out
}

// portsAgainst returns why a worker lacks a request's ports: other machines have them, or the worker does not answer.
func (b *Broker) portsAgainst(ctx context.Context, r *placement.Request, worker string,
	view drainView) (no []machine.Clause) {
	for _, p := range r.Publish {
		if slices.ContainsFunc(view.ports[worker], p.Overlaps) {
			no = append(no, machine.Clause{Code: placement.CodePort, Wanted: p.String() + " free",
				Had: "a machine of this " + view.of + " that has it"})
		}
	}
	w := b.fleet.Worker(cluster.WorkerID(worker))
	if w == nil || len(no) > 0 {
		return no // the worker has just gone; the buyer will notice
	}
	q, err := w.Quote(ctx, *r)
	if err != nil {
		return []machine.Clause{{Code: placement.CodeState, Wanted: "an answer", Had: err.Error()}}
	}
	return slices.DeleteFunc(slices.Clone(q.Verdict.Failing), func(c machine.Clause) bool {
		return c.Code != placement.CodePort || slices.ContainsFunc(view.freed[worker],
			func(p machine.Publish) bool { return c.Wanted == p.String()+" free" })
	})
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

// viewWithout returns a copy of a view without one worker.
func viewWithout(view cluster.View, id cluster.WorkerID) cluster.View {
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
