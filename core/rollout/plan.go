package rollout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Plan is what a rollout that begins now does, if no machine fails.
type Plan struct {
	Groups []GroupPlan // the release's groups in order, then the removed ones by name
	// First lists the orders that the steward gives until it must wait for a ready machine: machines to make, and
	// machines removed first. It ignores that groups wait for others.
	First []Order
	Jobs  []string // jobs that run differently from now on, or not any more
	// Command says that the release's command runs first.
	Command bool
	// Runs has an order for each run to check: the release's command first, then a run of each of Jobs that the
	// release has and that is on. Only their machine is exact.
	Runs []Order
}

// GroupPlan is what happens to one group.
type GroupPlan struct {
	Name     string
	Group    *release.Group   // of the release; nil: the release has no such group
	Strategy release.Strategy // "": the group is removed
	Order    release.Swap     // "": the group is removed
	Wanted   int              // replicas
	Now      int              // machines, except those being destroyed
	Most     int              // the most machines that may exist at once
	Canary   []int            // how many replicas are new at each step of its canary; empty: no canary
	Replicas []ReplicaPlan
}

// Surge returns how many surplus machines may exist at once.
func (g *GroupPlan) Surge() int { return max(0, g.Most-g.Wanted) }

// ReplicaPlan is what happens to one replica, or to a surplus machine.
type ReplicaPlan struct {
	Slot    release.Slot
	Does    release.Does
	Machine string           // its present machine; "": none
	Worker  cluster.WorkerID // of Machine
	Why     string           // one sentence; "" for Keep
}

// Changes reports whether a deploy does anything with machines, now or when a job is due.
func (p *Plan) Changes() bool {
	return p.Command || len(p.Jobs) > 0 || slices.ContainsFunc(p.Groups, func(g GroupPlan) bool {
		return slices.ContainsFunc(g.Replicas, func(r ReplicaPlan) bool { return r.Does != release.Keep })
	})
}

// Foresee predicts what a steward does for a head that has just been written, with the given machines. It changes
// neither. It uses what Step finds for each slot (view.does) and what Step orders first.
func Foresee(now time.Time, want *Want, standing []release.Standing) Plan {
	l := newLook(NewSteward(cluster.Term{}), now, want, standing)
	l.examine()
	surveys, _ := l.surveyGroups()
	out := Plan{First: l.ordersFirst(standing), Jobs: l.jobsChanged(), Command: want.Head.Command}
	for i := range want.Release.Groups {
		for _, s := range surveys {
			if s.goal.group.Name == want.Release.Groups[i].Name {
				out.Groups = append(out.Groups, l.planOf(s))
			}
		}
	}
	for _, slot := range l.unwanted() { // of removed groups
		if l.aim.goal[slot.Group] != nil {
			continue
		}
		if g := len(out.Groups) - 1; g < 0 || out.Groups[g].Name != slot.Group {
			out.Groups = append(out.Groups, GroupPlan{Name: slot.Group})
		}
		g := &out.Groups[len(out.Groups)-1]
		g.destroy(l.seen.by[slot], notWanted(slot))
		g.Now, g.Most = len(g.Replicas), len(g.Replicas)
	}
	for i := range out.First {
		if o := &out.First[i]; o.Yields {
			out.why(o)
		}
	}
	out.Runs = l.runsAhead(out.Jobs, out.Command)
	return out
}

// why sets, for a machine's replica, why it is removed before another group's machine is made.
func (p *Plan) why(o *Order) {
	for i := range p.Groups {
		for j := range p.Groups[i].Replicas {
			if r := &p.Groups[i].Replicas[j]; r.Machine == o.Machine {
				r.Why += ", and " + o.Why
			}
		}
	}
}

// runsAhead returns an order for the release's command and for a run of each of jobs.
func (l *look) runsAhead(jobs []string, command bool) (out []Order) {
	goal := l.aim.goal
	add := func(to *side, kind machine.Run) {
		r := ofRun(to, kind, 0)
		out = append(out, Order{Verb: Make, Machine: RunID(l.want.App, &r, cluster.Term{}), Replica: r})
	}
	if command {
		add(goal[l.want.Release.CommandGroup().Name], machine.RunCommand)
	}
	for _, name := range jobs {
		if isJob(goal, name) && !l.want.Head.IsOff(goal[name].group) {
			add(goal[name], machine.RunScheduled)
		}
	}
	return out
}

// jobsChanged lists the jobs that run differently than before the rollout, or that only one of the two releases has.
func (l *look) jobsChanged() (names []string) {
	differ := func(in, than map[string]*side) {
		for name := range in {
			if isJob(in, name) && !slices.Contains(names, name) && !(isJob(than, name) &&
				in[name].spec == than[name].spec && reflect.DeepEqual(in[name].group.Cron, than[name].group.Cron)) {
				names = append(names, name)
			}
		}
	}
	differ(l.aim.goal, l.aim.old)
	differ(l.aim.old, l.aim.goal)
	slices.Sort(names)
	return names
}

// planOf returns the plan of a group of the release: for each slot what the steward does with it.
func (l *look) planOf(s *survey) GroupPlan {
	to, g, old := s.goal, s.goal.group, s.old
	out := GroupPlan{Name: g.Name, Group: g, Strategy: g.Strategy(), Order: g.Order(), Wanted: to.n}
	created, doubled := 0, 0
	two, _ := g.Surge(to.n)
	for i := range s.views {
		v := &s.views[i]
		out.Replicas = append(out.Replicas, l.planOfSlot(v, s))
		switch v.does() {
		case release.Keep:
			out.destroy(append(slices.Clone(v.of[1:]), v.others...), "another machine stands for "+v.slot.String())
		case release.Renew:
			doubled++
			out.destroy(v.others[1:], "another machine stands for "+v.slot.String())
			if old != nil && slices.ContainsFunc(v.others, l.leaves) {
				before, _ := old.group.Surge(old.n) // the previous release may make one first
				two = max(two, before)
			}
		default:
			created++
			if old != nil && old.has[v.slot.Index] { // made by the previous release, then replaced
				doubled++
			}
		}
	}
	for slot, list := range l.seen.by {
		if slot.Group == g.Name {
			out.Now += len(list)
		}
	}
	for _, slot := range l.unwanted() {
		if slot.Group == g.Name {
			out.destroy(l.seen.by[slot], notWanted(slot))
		}
	}
	if old != nil && to.changed {
		for step := range g.Steps() {
			out.Canary = append(out.Canary, g.NewAt(step, to.n))
		}
	}
	out.Most = out.Now + created + min(two, doubled)
	return out
}

// planOfSlot returns what happens to a slot, and why.
func (l *look) planOfSlot(v *view, s *survey) ReplicaPlan {
	r := ReplicaPlan{Slot: v.slot, Does: v.does()}
	switch r.Does {
	case release.Keep:
		r.Machine, r.Worker = v.of[0].ID, v.of[0].Worker
	case release.Renew:
		r.Machine, r.Worker = v.others[0].ID, v.others[0].Worker
		r.Does, r.Why = l.differs(v.others[0], s.goal)
	default:
		r.Why = "it has no machine"
		if silent := Silent(s.goal.group, l.want.Workers); len(silent) > 0 {
			r.Why = Awaits(v.slot, silent)
		}
	}
	return r
}

// maxNames bounds the bytes of secrets' names in a sentence.
const maxNames = 120

// differs returns why a machine does not stay.
func (l *look) differs(m *release.Standing, to *side) (release.Does, string) {
	old := l.aim.old[to.group.Name]
	switch {
	case m.Spec == to.spec && !m.Leaves:
		return release.Move, fmt.Sprintf("somebody wants it at worker %s", l.moves[m.ID])
	case m.Spec == to.spec:
		return release.Move, "its machine must go from its worker"
	case old == nil || m.Spec != old.spec:
		return release.Renew, "its machine is of another release"
	case old.group.Config.Image != to.group.Config.Image:
		return release.Renew, fmt.Sprintf("its image changes from %s to %s", machine.ShortImage(old.group.Config.Image),
			machine.ShortImage(to.group.Config.Image))
	case !old.group.Alike(to.group):
		return release.Renew, "its machine is of another release"
	}
	next, before := l.want.Release, l.want.Before
	if names := next.ChangedSecrets(before, to.group); len(names) > 0 {
		return release.Restart, "it reads secrets that changed: " + fault.Clip(strings.Join(names, ", "), maxNames)
	}
	return release.Restart, "it is to be restarted"
}

func (g *GroupPlan) destroy(list []*release.Standing, why string) {
	for _, m := range list {
		g.Replicas = append(g.Replicas, ReplicaPlan{Slot: m.Slot(), Does: release.Destroy, Machine: m.ID,
			Worker: m.Worker, Why: why})
	}
}

// mostLooks bounds the looks of ordersFirst: each but the last gives an order or gets an answer.
const mostLooks = 1000

// ordersFirst runs a steward until it waits for a machine to be ready, and returns its orders.
func (l *look) ordersFirst(standing []release.Standing) (out []Order) {
	now, want := l.clock.now, l.want
	to, wants := *want.Release, *want
	to.Groups = slices.Clone(to.Groups)
	for i := range to.Groups {
		to.Groups[i].After = nil
	}
	wants.Release = &to
	standing = slices.Clone(standing)
	for i := range standing { // the plan is about the release, not about later loads
		standing[i].Load, standing[i].CPU = 0, nil
	}
	standing = slices.DeleteFunc(standing, func(m release.Standing) bool { return m.Run != "" })
	to.Command = nil
	s := NewSteward(cluster.Term{Number: newest(standing)})
	for range mostLooks {
		n := s.Step(now, &wants, standing)
		switch {
		case n.Term > 0:
			s.Begin(cluster.Term{Number: n.Term, Member: "plan"})
			continue
		case n.Tell:
			wants.Notes = n.Notes
			continue
		}
		for _, w := range n.Obey {
			s.Obeyed(now, s.Term(), w, foundAt(w, standing), nil)
		}
		for i := range n.Orders {
			o := &n.Orders[i]
			standing = carriedOut(o, standing)
			s.Done(now, o, nil)
			if o.Verb == Make && !l.mayLack(o.Slot()) || o.Verb == Remove {
				out = append(out, *o)
			}
		}
		if len(n.Orders) == 0 && len(n.Obey) == 0 {
			break
		}
	}
	return out
}

// newest returns the newest term in which a machine was made.
func newest(standing []release.Standing) (term uint64) {
	for i := range standing {
		term = max(term, standing[i].Epoch>>epochBits)
	}
	return term
}

// foundAt lists the machines that a worker has.
func foundAt(w cluster.WorkerID, standing []release.Standing) (out []Found) {
	for i := range standing {
		if m := &standing[i]; m.Worker == w && m.State != machine.Destroyed {
			out = append(out, Found{ID: m.ID, Replica: m.Replica})
		}
	}
	return out
}

// carriedOut returns the machines after an order is carried out. A new machine is not ready.
func carriedOut(o *Order, standing []release.Standing) []release.Standing {
	at := slices.IndexFunc(standing, func(m release.Standing) bool { return m.ID == o.Machine })
	switch {
	case o.Verb == Make:
		m := release.Standing{ID: o.Machine, Replica: o.Replica, State: machine.Started, Cordoned: o.Apart}
		if o.Asleep {
			m.State = machine.Created
		}
		return append(standing, m)
	case at < 0:
	case o.Verb == Remove:
		return slices.Delete(standing, at, at+1)
	case o.Verb == Start:
		standing[at].State, standing[at].Died = machine.Started, false
	case o.Verb == Hold:
		standing[at].State, standing[at].Died, standing[at].Cordoned = machine.Stopped, false, true
	case o.Verb == Admit:
		standing[at].Cordoned = false
	}
	return standing
}
