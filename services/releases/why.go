package releases

import (
	"context"
	"fmt"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// Why explains a service. It reads only the machines and the fleet, so each member says the same.
func (a *Releases) Why(ctx context.Context, app string) (out api.ServiceWhy, err error) {
	s, status, err := a.Status(app)
	if err != nil {
		return out, err
	}
	list, silent, err := a.Directory.Listing(ctx, s.App.Name, false,
		func(m *machine.Machine) bool { return m.Replica != nil })
	if err != nil {
		return out, err
	}
	x := explainer{a: a, of: &s, machines: map[string]*machine.Machine{}, standing: map[string]release.Standing{},
		lacks: map[string]lack{}, uneven: a.uneven(&s)}
	for _, m := range list {
		x.machines[m.ID] = m.Machine
	}
	for _, m := range a.Directory.Fleet.Snapshot().Standing(s.App.Name) {
		x.standing[m.ID] = m
	}
	out = api.ServiceWhy{Service: status, Replicas: []api.ReplicaWhy{}}
	for i := range status.Groups {
		g := &status.Groups[i]
		for j := range g.Slots {
			out.Replicas = append(out.Replicas, x.replica(ctx, g, &g.Slots[j]))
		}
	}
	for i := range status.Jobs {
		out.Jobs = append(out.Jobs, x.job(ctx, &status.Jobs[i]))
	}
	for _, one := range silent {
		out.Missing = append(out.Missing, one.Worker)
	}
	return out, nil
}

// explainer explains the replicas of one service.
type explainer struct {
	a        *Releases
	of       *catalog.Service
	machines map[string]*machine.Machine // by id, as their workers report them
	standing map[string]release.Standing // by id
	lacks    map[string]lack             // by group
	uneven   unevenness
}

// lack is why a group does not have its next machine.
type lack struct {
	fits bool // there is room for it
	why  string
	help []string
}

func (x *explainer) replica(ctx context.Context, g *api.GroupStatus, slot *api.SlotStatus) api.ReplicaWhy {
	out := api.ReplicaWhy{Machine: slot.Machine, Worker: slot.Worker, Release: slot.Release, Help: []string{}}
	switch {
	case slot.Waits != "":
		out.Why = slot.Waits
	case slot.Machine == "":
		next := x.lack(ctx, g.Name)
		if next.fits && slot.Unmade != "" {
			next.why = "the last that was tried could not be made: " + slot.Unmade
		}
		out.Why, out.Help = "it has no machine: "+next.why, append(out.Help, next.help...)
	case slot.Unheard:
		out.Why = fmt.Sprintf("worker %s is not heard: %s", slot.Worker, g.Lost)
	default:
		x.stands(g, slot, &out)
		if slot.Old && !slot.Extra && slot.Held == "" {
			x.replaced(ctx, g.Name, &out)
			if slot.Unmade != "" {
				out.Why += "; the last that was tried could not be made: " + slot.Unmade
			}
		}
	}
	out.Group, out.Index = g.Name, slot.Index
	return out
}

// lack says why a group does not have its next machine, by planning its placement now.
func (x *explainer) lack(ctx context.Context, group string) lack {
	out, said := x.lacks[group]
	if said {
		return out
	}
	wanted, _ := x.of.InForce()
	o := rollout.Order{Replica: machine.Replica{Group: group}}
	if wanted.Group(group).Cron != nil {
		o.Replica.Run = machine.RunScheduled
	}
	o.Machine = o.Slot().MachineID(x.of.App.ID, 0, "")
	p, err := x.a.Broker.Plan(ctx, broker.Intent{App: x.of.App.Name, Launch: o.Launch(wanted)})
	switch {
	case err != nil:
		out.why = err.Error()
	case p.Verdict == decision.FitsNow:
		out.fits, out.why = true, fmt.Sprintf("there is room at worker %s", p.Decision.Winner)
	default:
		out.why = p.Decision.Reason
		for _, one := range p.Changes {
			out.help = append(out.help, one.Text)
		}
	}
	x.lacks[group] = out
	return out
}

// job says which run of a job is under way; if none is, whether one would have room now.
func (x *explainer) job(ctx context.Context, j *api.JobStatus) api.JobWhy {
	out := api.JobWhy{Group: j.Group, Help: []string{}}
	on := slices.IndexFunc(j.Runs, func(r api.JobRun) bool {
		return r.State != machine.Stopped && r.State != machine.Failed
	})
	switch {
	case j.Off:
		out.AsWanted, out.Why = true, "it is off"
		out.Help = append(out.Help, fmt.Sprintf("souk scale %s %s=1", x.of.App.Name, j.Group))
	case on >= 0 && j.Runs[on].Unheard:
		wanted, _ := x.of.InForce()
		out.Why = fmt.Sprintf("machine %s may still run it, and its worker %s is not heard: %s", j.Runs[on].Machine,
			j.Runs[on].Worker, wanted.Group(j.Group).Tells(x.a.LostAfter))
	case on >= 0:
		out.AsWanted, out.Why = true, fmt.Sprintf("machine %s of worker %s runs it", j.Runs[on].Machine,
			j.Runs[on].Worker)
	default:
		next := x.lack(ctx, j.Group)
		out.AsWanted, out.Why = next.fits, "it does not run now: "+next.why
		out.Help = append(out.Help, next.help...)
	}
	if j.Skipped != "" {
		out.AsWanted, out.Why = false, j.Skipped+"; "+out.Why
	}
	return out
}

// resting are the states of machines that are down on purpose.
var resting = []machine.State{machine.Created, machine.Stopped, machine.Suspended}

// replaced adds why a machine is not replaced yet, if its successor must be made first and has no room.
func (x *explainer) replaced(ctx context.Context, group string, out *api.ReplicaWhy) {
	wanted, _ := x.of.InForce()
	if g := wanted.Group(group); g == nil || g.Order() != release.StartFirst {
		return
	}
	if next := x.lack(ctx, group); !next.fits {
		out.Why += ", which has no room beside it: " + next.why
		out.Help = append(out.Help, next.help...)
	}
}

// stands explains a machine whose worker is reachable.
func (x *explainer) stands(g *api.GroupStatus, slot *api.SlotStatus, out *api.ReplicaWhy) {
	m, known := x.machines[slot.Machine]
	seen := x.standing[slot.Machine]
	logs := "\"souk logs " + slot.Machine + "\" says what it wrote"
	switch {
	case slot.Held != "":
		out.Why = slot.Held
		out.Help = []string{logs, "make another release, or have all made anew: \"souk restart --app " +
			x.of.App.Name + "\""}
	case !g.WantedSlots()[slot.Index]:
		out.Why = "it is not wanted any more, and goes once the others are as wanted"
	case slot.To != "":
		out.Why = fmt.Sprintf("it goes to worker %s, as somebody asked: another machine is made there first", slot.To)
		if slot.Unmade != "" {
			out.Why += "; the last that was tried could not be made: " + slot.Unmade
		}
		out.Help = []string{fmt.Sprintf("\"souk move %s --to %s\" has it stay", slot.Machine, slot.Worker)}
	case slot.Extra && (slot.Old || slot.Ready):
		out.Why = "another machine stands for the replica, so it goes"
	case slot.Old:
		out.Why = "it is to be replaced by one of release " + release.Short(x.target())
	case seen.Died:
		out.Why, out.Help = "its program ended by itself, and it is started again: "+seen.Ended, []string{logs}
	case !slot.Ready && slot.State == machine.Started:
		out.Why, out.Help = unready(m, known), []string{logs}
	case !slot.Ready && known && m.Retry != nil:
		out.Why = fmt.Sprintf("its %s has failed %d times: %s", m.Retry.Operation, m.Retry.Tries, m.Retry.Reason)
	case !slot.Ready && !slot.Asleep:
		out.Why = fmt.Sprintf("it is %s, and is about to be started", slot.State)
		if !slices.Contains(resting, slot.State) {
			out.Why = fmt.Sprintf("it is %s", slot.State)
		}
	case !slot.Ready:
		out.AsWanted = true
		out.Why = fmt.Sprintf("it is %s: a request wakes it, or \"souk start %s\"", slot.State, slot.Machine)
		if wanted, _ := x.of.InForce(); wanted.Group(g.Name) == nil || !wanted.Group(g.Name).Wakeable() {
			out.Why = fmt.Sprintf("it is %s, as somebody asked for; \"souk start %s\" has it run", slot.State,
				slot.Machine)
		}
	default:
		out.AsWanted, out.Why = true, "it is ready"
		if known && m.Placement != nil {
			out.Why = m.Placement.Reason
		}
		if to := x.uneven.better[slot.Machine]; to != "" {
			out.Why += "; " + x.uneven.why(g.Name, slot.Worker, to)
			out.Help = []string{fmt.Sprintf("\"souk rebalance --app %s\" makes it there, and so does the next deploy",
				x.of.App.Name)}
		}
	}
}

// target returns the release that the machines should have.
func (x *explainer) target() string { return x.of.Head.InForce(x.of.Tenure.Progress).Release }

// unready says which check a started machine fails.
func unready(m *machine.Machine, known bool) string {
	if known {
		if why := m.Unfit(); why != "" {
			return "it is up, and not ready yet: " + why
		}
	}
	return "it is up, and not ready yet"
}
