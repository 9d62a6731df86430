package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/jobs"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// DrainPlan places a worker's machines on a copy of the view without that worker, one after the other, as buyers would:
// by each one's own policy and the judge that the workers judge with. Large ones come first, as small ones fit in what
// is left. It tells the tasks and volumes there, too. Nothing is moved.
func (b *Broker) DrainPlan(ctx context.Context, worker cluster.WorkerID) (*api.DrainPlan, error) {
	w, err := b.worker(worker)
	if err != nil {
		return nil, err
	}
	plan := &api.DrainPlan{Worker: worker, Moves: []api.DrainMove{}}
	// tasks last: one that ends for a machine is told as one of the two
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
	view := without(b.fleet.View(ctx), worker)
	slices.SortStableFunc(machines, func(x, y *machine.Machine) int {
		return cmp.Or(cmp.Compare(sizeOf(y), sizeOf(x)), cmp.Compare(x.ID, y.ID))
	})
	for _, m := range machines {
		d := api.DrainMove{App: m.App, Machine: m.ID, Name: m.Name, State: m.State, Fate: api.FateStays}
		switch d.Reason = b.tied(ctx, Machine{Machine: m, At: w}); {
		case d.Reason == "":
			b.planMove(ctx, &d, Machine{Machine: m, At: w}, view)
		case busy(m):
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
	for i := range tasks { // by name, which begins with the job
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

// leftVolumes lists the volumes of a worker that no machine has, by id.
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

// planMove finds a place in the view, and takes it there. It takes the steps of Place as far as nothing is left behind.
func (b *Broker) planMove(ctx context.Context, d *api.DrainMove, m Machine, view cluster.View) {
	d.Fate = api.FateStuck
	o := b.order(Intent{App: m.App, Launch: relaunch(m.Machine, successorID(m.ID, 0)),
		Replaces: &m}) // under the id that it will have: it decides among workers that are alike
	if err := b.prepare(ctx, o); err != nil {
		d.Reason = err.Error()
		return
	}
	p := o.Purchases[0]
	ranked := placement.Rank(p.Request, view, p.Policy)
	if len(ranked) == 0 || !ranked[0].Fits {
		d.Reason = stuckReason(ranked)
		return
	}
	best := ranked[0]
	d.Fate, d.To = api.FateMoves, best.Worker
	d.Reason = fmt.Sprintf("best score %.2f of %d workers", best.Score, len(ranked))
	if m.State == machine.Suspended {
		d.Reason += "; it is suspended, and what it has in memory is lost"
	}
	for i := range view.Workers {
		if k := &view.Workers[i]; string(k.Worker) == d.To && p.Request.Start {
			k.Used = k.Used.Add(p.Request.Resources)
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

// without returns a copy of a view without one worker.
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
