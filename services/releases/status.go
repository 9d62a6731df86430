package releases

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// Status returns an app's wanted service, and its present state.
func (a *Releases) Status(app string) (s catalog.Service, out api.ServiceStatus, err error) {
	if _, err := a.Apps.App(app); err != nil {
		return s, out, err
	}
	s, there := a.Catalog.Service(app)
	if !there {
		return s, out, catalog.NoService(app)
	}
	t := s.Tenure
	out = api.ServiceStatus{App: app, Groups: []api.GroupStatus{}, Steward: api.ServiceSteward{
		Member: release.StewardOf(s.App.ID, a.Stewards(), t), Term: t.Term.Number, By: t.Term.Member, Busy: t.Busy}}
	if s.Why != nil {
		out.Why = s.Why.Error()
	}
	if s.Head != nil {
		h := HeadAnswer(s.Head)
		out.Head = &h
	}
	out.Groups = append(out.Groups, a.Groups(&s)...)
	out.Rollout = rolloutAnswer(&s, out.Groups)
	a.command(&s, out.Rollout)
	out.Jobs = a.jobs(&s)
	return s, out, nil
}

// Carried returns the groups of each service whose steward this member is, by app.
func (a *Releases) Carried() map[string][]api.GroupStatus {
	members, out := a.Stewards(), map[string][]api.GroupStatus{}
	for _, app := range a.Catalog.AllServices() {
		s, is := a.Catalog.Service(app)
		if is && s.Head != nil && release.StewardOf(s.App.ID, members, s.Tenure) == a.Self {
			out[app] = a.Groups(&s)
		}
	}
	return out
}

// rolloutAnswer returns a service's rollout, given the state of its groups; nil: this souk cannot read its head.
func rolloutAnswer(of *catalog.Service, groups []api.GroupStatus) *api.Rollout {
	if of.Head == nil {
		return nil
	}
	s := of.Tell(func(group string) int {
		i := slices.IndexFunc(groups, func(g api.GroupStatus) bool { return g.Name == group })
		if i < 0 {
			return 0
		}
		return fresh(&groups[i])
	})
	out := &api.Rollout{Number: s.Number, Release: s.Release, Before: s.Before, InForce: s.InForce, State: s.State,
		Canary: s.Canary, Asked: s.Asked, By: s.By, Step: s.Step, Steps: s.Steps, Why: s.Why, Since: s.Since,
		Failed: append([]api.RolloutFailure{}, s.Failed...)}
	return out
}

// fresh counts the replicas of a group with a machine of the release that is ready, or rests.
func fresh(g *api.GroupStatus) int {
	at, wanted := map[int]bool{}, g.WantedSlots()
	for _, x := range g.Slots {
		if x.Machine != "" && !x.Old && x.Held == "" && wanted[x.Index] && (x.Ready || x.Asleep) {
			at[x.Index] = true
		}
	}
	return len(at)
}

// Groups returns the state of each group that is wanted or has machines.
func (a *Releases) Groups(s *catalog.Service) (out []api.GroupStatus) {
	slots := a.slots(s)
	names := make([]string, 0, len(slots))
	for name := range slots {
		names = append(names, name)
	}
	slices.Sort(names)
	wanted, restarted := s.InForce()
	standing := a.Directory.Fleet.Snapshot().Standing(s.App.Name)
	if wanted != nil {
		names = slices.DeleteFunc(names, func(n string) bool { return wanted.Group(n) != nil })
		for i := range wanted.Groups {
			names = slices.Insert(names, i, wanted.Groups[i].Name)
		}
	}
	for _, name := range names {
		g, chosen := api.GroupStatus{Name: name, Slots: slots[name]}, []int{}
		if wanted != nil {
			group := wanted.Group(name)
			if group != nil && group.Cron != nil && len(slots[name]) == 0 {
				continue // see jobs
			}
			if group != nil {
				g.Wanted, g.Image = s.Head.Wanted(group, s.Tenure.Scaled), group.Config.Image
				g.Lost, g.Autoscale = group.Tells(a.LostAfter), a.autoscale(s, group)
				chosen = rollout.WantedSlots(name, wanted.Spec(group, restarted), g.Wanted, standing)
			}
		}
		count(&g, chosen, wanted != nil)
		tellUnmade(&g, s.Tenure.Unmade)
		a.waits(wanted, &g)
		g.Blamed = blamed(&g, s.Tenure.Held)
		out = append(out, g)
	}
	return out
}

// autoscale returns the state of an autoscaled group; nil: it is not autoscaled.
func (a *Releases) autoscale(s *catalog.Service, g *release.Group) *api.AutoscaleStatus {
	by := g.Autoscale
	if by == nil {
		return nil
	}
	out := &api.AutoscaleStatus{Min: by.Min, Max: by.Max, Metric: by.By(), Target: g.Target(), Off: !s.Head.Scales(g)}
	out.Load = int(g.LoadsOf(a.Directory.Fleet.Snapshot().Standing(s.App.Name)).Heard)
	if x, chosen := s.Tenure.Scaled[g.Name]; chosen && x.Hand >= s.Head.Hand[g.Name] && !out.Off {
		if out.From, out.Lacks = x.From, x.Lacks; !x.At.IsZero() {
			out.At = &x.At
		}
	}
	return out
}

// tellUnmade adds to each replica that lacks a current machine why none could be made so far.
func tellUnmade(g *api.GroupStatus, told []release.Failure) {
	for i := range g.Slots {
		for _, f := range told {
			if x := &g.Slots[i]; (x.Machine == "" || x.Old || x.To != "") && f.Group == g.Name && f.Index == x.Index {
				x.Unmade = f.Why
			}
		}
	}
}

// waits adds to each replica without a machine the workers that must come back first.
func (a *Releases) waits(wanted *release.Release, g *api.GroupStatus) {
	if wanted == nil || wanted.Group(g.Name) == nil {
		return
	}
	silent := rollout.Silent(wanted.Group(g.Name), a.Directory.Fleet.Snapshot().Peers())
	for i := range g.Slots {
		x := &g.Slots[i]
		slot := release.Slot{Group: g.Name, Index: x.Index}
		switch {
		case len(silent) > 0 && x.Machine == "":
			x.Waits = rollout.Awaits(slot, silent)
		case x.Unheard && slices.Contains(silent, x.Worker):
			x.Waits = rollout.Awaits(slot, []cluster.WorkerID{x.Worker})
		}
	}
}

// blamed reports whether a group's held machines show that its release is at fault.
func blamed(g *api.GroupStatus, held []release.Held) bool {
	at := map[string]cluster.WorkerID{}
	for _, x := range g.Slots {
		if !x.Old {
			at[x.Machine] = x.Worker
		}
	}
	return rollout.Blamed(held, func(machine string) cluster.WorkerID { return at[machine] })
}

// asleep reports whether a machine is down on purpose; see release.Standing.
func asleep(m *fleet.Machine) bool {
	return m.Rests && !m.Died && slices.Contains(resting, m.State)
}

// heldText says why a machine is held down, and when it is tried again.
func heldText(h *release.Held, now time.Time) string {
	if wait := h.Until().Sub(now); wait > 0 {
		return fmt.Sprintf("%s; it is tried again in %v", h.Why, wait.Round(time.Second))
	}
	return h.Why + "; it is tried again now"
}

// slots lists the machines of a service by group.
func (a *Releases) slots(s *catalog.Service) map[string][]api.SlotStatus {
	known, out := a.Directory.Fleet.Snapshot(), map[string][]api.SlotStatus{}
	wanted, restarted := s.InForce()
	specs := map[string]string{} // of groups that are wanted
	if wanted != nil {
		for i := range wanted.Groups {
			specs[wanted.Groups[i].Name] = wanted.Spec(&wanted.Groups[i], restarted)
		}
	}
	for m := range known.MachinesOf(s.App.Name) {
		of := m.Replica
		if of == nil || of.Run != "" || m.State == machine.Destroyed || m.State == machine.Destroying {
			continue
		}
		x := api.SlotStatus{Index: of.Index, Machine: m.ID, Name: m.Name, Worker: m.Worker, State: m.State,
			Ready: m.Ready && !m.Failing, Asleep: asleep(m), Release: of.Release}
		if !x.Ready {
			x.Unfit = m.Unfit
		}
		if i := slices.IndexFunc(s.Tenure.Held, func(h release.Held) bool { return h.Machine == m.ID }); i >= 0 {
			x.Held = heldText(&s.Tenure.Held[i], time.Now())
		}
		if s.Head != nil {
			x.To = s.Head.MovesTo(time.Now(), m.ID, m.Worker)
		}
		if x.Ready {
			x.Held = "" // tried again, and well so far
		}
		if w, told := known.Worker(m.Worker); !told || !w.Reachable() {
			x.Unheard, x.Ready = true, false
		}
		if spec, is := specs[of.Group]; wanted != nil {
			x.Old = !is || of.Spec != spec
		}
		out[of.Group] = append(out[of.Group], x)
	}
	return out
}

// count fills in a group's counts and its replicas without a machine. chosen are the wanted replicas' numbers,
// in order; known is false if these are unknown.
func count(g *api.GroupStatus, chosen []int, known bool) {
	best := func(x api.SlotStatus) int { // the machine of a replica that stays goes first
		switch {
		case x.Ready && !x.Old:
			return 0
		case x.Ready:
			return 1
		case !x.Old:
			return 2
		}
		return 3
	}
	byIndex := func(a, b api.SlotStatus) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), best(a)-best(b), strings.Compare(a.Machine, b.Machine))
	}
	slices.SortFunc(g.Slots, byIndex)
	have := map[int]bool{}
	for i := range g.Slots {
		x := &g.Slots[i]
		_, wanted := slices.BinarySearch(chosen, x.Index)
		x.Extra = known && (!wanted || have[x.Index])
		if !x.Extra && !have[x.Index] {
			g.There++
			if x.Ready && !x.Old {
				g.Ready++
			}
		}
		have[x.Index] = true
	}
	there := len(g.Slots)
	for _, i := range chosen {
		if !have[i] {
			g.Slots = append(g.Slots, api.SlotStatus{Index: i})
		}
	}
	if len(g.Slots) > there {
		slices.SortStableFunc(g.Slots, byIndex)
	}
	g.Slots = append([]api.SlotStatus{}, g.Slots...)
}
