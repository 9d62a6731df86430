package releases

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// runs lists the runs of a service, newest first: of a job, or of its releases' commands (group "").
func (a *Releases) runs(app, group string) (out []*fleet.Machine) {
	for m := range a.Directory.Fleet.Snapshot().MachinesOf(app) {
		of := m.Replica
		if of == nil || of.Run == "" || m.State == machine.Destroyed || m.State == machine.Destroying {
			continue
		}
		if command := of.Run == machine.RunCommand; command == (group == "") && (command || of.Group == group) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(x, y *fleet.Machine) int {
		return cmp.Or(cmp.Compare(y.Replica.Epoch, x.Replica.Epoch), cmp.Compare(x.ID, y.ID))
	})
	return out
}

// command adds the state of the release's command to a rollout's answer.
func (a *Releases) command(s *catalog.Service, r *api.Rollout) {
	if r == nil || s.Release == nil || s.Release.Command == nil || !s.Head.Command {
		return
	}
	if p := s.Tenure.Progress; p.Of(s.Head) {
		r.Command = string(p.Command)
	}
	for _, m := range a.runs(s.App.Name, "") {
		if m.Replica.Epoch == s.Head.Rollout && m.Replica.Release == s.Head.Release {
			r.CommandMachine = m.ID
		}
	}
	if r.Command == "" {
		r.Command = "waiting"
		if r.CommandMachine != "" {
			r.Command = "running"
		}
	}
}

// jobs returns the state of a service's scheduled groups.
func (a *Releases) jobs(s *catalog.Service) (out []api.JobStatus) {
	wanted, _ := s.InForce()
	if wanted == nil {
		return nil
	}
	known := a.Directory.Fleet.Snapshot()
	for i := range wanted.Groups {
		g := &wanted.Groups[i]
		c := g.Cron
		if c == nil {
			continue
		}
		j := api.JobStatus{Group: g.Name, Image: g.Config.Image, Schedule: c.Schedule, Zone: cmp.Or(c.Zone, "UTC"),
			Overlap: cmp.Or(c.Overlap, release.Forbid), Off: s.Head.Count(g) == 0, Runs: []api.JobRun{}}
		if r, settled := s.Tenure.Runs[g.Name]; settled && !j.Off {
			j.Skipped = r.Skipped
			if next := c.Next(r.Time()); !next.IsZero() {
				j.Next = &next
			}
		}
		for _, m := range a.runs(s.App.Name, g.Name) {
			x := api.JobRun{Machine: m.ID, Name: m.Name, Worker: m.Worker, At: m.Replica.At(), Why: m.Replica.Run,
				State: m.State, Exit: m.Exit, Ended: m.Ended}
			w, told := known.Worker(m.Worker)
			x.Unheard = !told || !w.Reachable()
			j.Runs = append(j.Runs, x)
		}
		out = append(out, j)
	}
	return out
}

// Trigger runs a job now. The run's machine is like a scheduled one, and the service's steward manages it from then on.
func (a *Releases) Trigger(ctx context.Context, app *catalog.App, group string) (out api.Triggered, err error) {
	s, there := a.Catalog.Service(app.Name)
	if !there {
		return out, catalog.NoService(app.Name)
	}
	if s.Why != nil {
		return out, s.Why
	}
	applied, restarted := s.Applied()
	if applied == nil {
		return out, fault.New(fault.Precondition, codeCommandPending, "the command of the first release of %s has not "+
			"ended with 0, so no job of it runs yet: \"souk status --app %s\" tells how far it is", app.Name, app.Name)
	}
	g, err := job(applied, group)
	if err != nil {
		return out, err
	}
	now := time.Now()
	o := rollout.Order{Replica: machine.Replica{Group: g.Name, Epoch: release.Minute(now), Release: applied.ID(),
		Spec: applied.Spec(g, restarted), Run: machine.RunTriggered}}
	for _, m := range a.runs(app.Name, g.Name) {
		o.Replica.Epoch = max(o.Replica.Epoch, m.Replica.Epoch+1)
		x := m.Standing(true, false, time.Time{})
		if !x.Over() && cmp.Or(g.Cron.Overlap, release.Forbid) != release.AllowBoth {
			return out, fault.New(fault.Conflict, codeJobRuns, "machine %s runs job %s of %s already, and two runs of "+
				"it do not go together (cron.overlap): wait for it, or stop it with \"souk stop %s\"", m.ID, g.Name,
				app.Name, m.ID)
		}
	}
	o.Machine = rollout.RunID(app.ID, &o.Replica, cluster.Term{Member: a.Self})
	placed, err := a.Broker.Place(ctx, broker.Intent{App: app.Name, Launch: o.Launch(applied),
		Replica: &broker.Replica{Replica: o.Replica}})
	if err != nil {
		return out, err
	}
	m := placed.Machines[0]
	return api.Triggered{Machine: m.ID, Name: m.Name, Worker: m.Worker}, nil
}

// job returns a scheduled group by its name.
func job(r *release.Release, name string) (*release.Group, error) {
	if g := r.Group(name); g != nil && g.Cron != nil {
		return g, nil
	}
	var jobs []string
	for i := range r.Groups {
		if r.Groups[i].Cron != nil {
			jobs = append(jobs, r.Groups[i].Name)
		}
	}
	if len(jobs) == 0 {
		return nil, fault.New(fault.NotFound, fault.CodeJobNotFound,
			"the release has no group that runs at times, so there "+
				"is no job %s: give one a cron.schedule", fault.Clip(cmp.Or(name, `""`), 80))
	}
	return nil, fault.New(fault.NotFound, fault.CodeJobNotFound, "the release has no job %s; its jobs are %s",
		fault.Clip(cmp.Or(name, `""`), 80), strings.Join(jobs, ", "))
}
