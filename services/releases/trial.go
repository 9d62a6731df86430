package releases

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// trial is a rollout's plan, and the result of placing its first step.
type trial struct {
	plan   rollout.Plan
	groups map[string]*groupTrial
	made   map[release.Slot]*broker.Trial // the placement of each slot's next machine
	cost   float64                        // added cost, credits an hour
	runs   runTrial
	unmade unmade // volumes to make first
}

// runTrial is the result of placing a command or job of a release.
type runTrial struct {
	fits api.Fit
	why  []string
}

// groupTrial is the result of placing a group's first step. Some of its machines run beside an older one.
type groupTrial struct {
	fitting              // of the first machine without room
	news, newsPlaced     int
	beside, besidePlaced int
	placed               []*broker.Trial // machines placed beside older ones
	evicts               int
}

// lacks records that a machine has no room.
func (x *groupTrial) lacks(no fitting) {
	if x.fits == api.FitsNow || no.fits == api.FitsNever {
		x.fitting = no
	}
}

// refused records that a worker has lost the room for a placed machine.
func (x *groupTrial) refused(why string) {
	if x.besidePlaced > 0 {
		x.besidePlaced--
	} else {
		x.newsPlaced--
	}
	x.lacks(fitting{fits: api.FitsLater, why: why})
}

// try places the first machines of a service's rollout on a copy of the view. Room that a group needs only during its
// rollout is free again for the groups after it.
func (a *Releases) try(ctx context.Context, s *catalog.Service, un unmade) *trial {
	known := a.Directory.Fleet.Snapshot()
	t := &trial{groups: map[string]*groupTrial{}, made: map[release.Slot]*broker.Trial{}, unmade: un}
	want := rollout.WantOf(&s.Service, cmp.Or(s.App.ID, s.App.Name))
	want.LostAfter, want.Workers, want.Places = a.LostAfter, known.Peers(), known.Places()
	want.Unmade, want.Runs = nil, nil // a plan ignores earlier tries and runs
	t.plan = rollout.Foresee(time.Now(), want, known.Standing(s.App.Name))
	t.tryRuns(ctx, a.Broker, s)
	stage := a.Broker.Rehearse(ctx)
	for i := range t.plan.First {
		if o := &t.plan.First[i]; o.Verb == rollout.Remove && goesBefore(s, o) {
			stage.TakeOut(ctx, s.App.Name, o.Machine)
		}
	}
	var visit func(g *release.Group)
	visit = func(g *release.Group) {
		if t.groups[g.Name] != nil {
			return
		}
		x := &groupTrial{fitting: fitting{fits: api.FitsNow}}
		t.groups[g.Name] = x
		for _, name := range g.After {
			visit(s.Release.Group(name))
			for _, one := range t.groups[name].placed {
				stage.GiveBack(one)
			}
			t.groups[name].placed = nil
		}
		t.place(ctx, stage, s, g.Name)
	}
	for i := range s.Release.Groups {
		visit(&s.Release.Groups[i])
		t.cost = max(t.cost, stage.Cost())
	}
	return t
}

// goesBefore reports whether a machine is removed before any group is placed: its group is gone, or another machine
// needs its volume.
func goesBefore(s *catalog.Service, o *rollout.Order) bool {
	return o.Yields || s.Release.Group(o.Replica.Group) == nil
}

// tryRuns places the release's command and jobs, each alone. The command needs room now, since it runs before the
// release's machines are made; a job may find room when it is due.
func (t *trial) tryRuns(ctx context.Context, b Broker, s *catalog.Service) {
	t.runs.fits = api.FitsNow
	for i := range t.plan.Runs {
		o := &t.plan.Runs[i]
		_, no := rehearse(ctx, b.Rehearse(ctx), s, o, t.unmade)
		what := "a run of " + o.Replica.Group
		if o.Replica.Run == machine.RunCommand {
			what = "the release command"
		}
		if no.fits == api.FitsNow || no.fits == api.FitsLater && o.Replica.Run != machine.RunCommand {
			continue
		}
		t.runs.why = append(t.runs.why, fmt.Sprintf("%s has no room: %s", what, no.why))
		t.runs.fits = worse(t.runs.fits, no.fits)
	}
}

// worse returns the worse of two fits.
func worse(a, b api.Fit) api.Fit {
	if a == api.FitsNever || b == api.FitsNow {
		return a
	}
	return b
}

// place places the first step of a group: missing machines, then those made beside older ones.
func (t *trial) place(ctx context.Context, stage *broker.Rehearsal, s *catalog.Service, group string) {
	var news, besides []*rollout.Order
	first := map[release.Slot]bool{} // slots whose old machine is removed first
	for i := range t.plan.First {
		switch o := &t.plan.First[i]; {
		case o.Replica.Group != group:
		case o.Verb == rollout.Remove:
			first[o.Slot()] = true
			if !goesBefore(s, o) {
				stage.TakeOut(ctx, s.App.Name, o.Machine)
			}
		case t.has(o.Slot()) && !first[o.Slot()]:
			besides = append(besides, o)
		default:
			news = append(news, o)
		}
	}
	x := t.groups[group]
	x.news, x.beside = len(news), len(besides)
	x.newsPlaced = len(t.rehearse(ctx, stage, s, x, news))
	x.placed = t.rehearse(ctx, stage, s, x, besides)
	x.besidePlaced = len(x.placed)
}

// has reports whether a replica has a machine.
func (t *trial) has(slot release.Slot) bool {
	return slices.ContainsFunc(t.plan.Groups, func(g rollout.GroupPlan) bool {
		return g.Name == slot.Group && slices.ContainsFunc(g.Replicas,
			func(r rollout.ReplicaPlan) bool { return r.Slot == slot && r.Machine != "" })
	})
}

// rehearse places machines up to the first without room: the others are of the same size.
func (t *trial) rehearse(ctx context.Context, stage *broker.Rehearsal, s *catalog.Service, x *groupTrial,
	orders []*rollout.Order) (placed []*broker.Trial) {
	for _, o := range orders {
		one, no := rehearse(ctx, stage, s, o, t.unmade)
		if one == nil {
			x.lacks(no)
			return placed
		}
		t.made[o.Slot()] = one
		x.evicts += one.Evicts
		placed = append(placed, one)
	}
	return placed
}

// fitting says whether a machine has room, and if not, why.
type fitting struct {
	fits    api.Fit
	why     string
	failing []decision.Group
}

// rehearse places one machine; nil: it has no room.
func rehearse(ctx context.Context, stage *broker.Rehearsal, s *catalog.Service, o *rollout.Order,
	un unmade) (*broker.Trial, fitting) {
	l := o.Launch(s.Release)
	l.MinSecretsVersion = nil // the plan's secrets are not set yet
	one, err := stage.Place(ctx, s.App.Name, un.without(l))
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Invalid): // more room would not help
		return nil, fitting{api.FitsNever, err.Error(), nil}
	case err != nil:
		return nil, fitting{api.FitsLater, err.Error(), nil}
	case one.Verdict == decision.Never:
		return nil, fitting{api.FitsNever, reason(one), one.Failing}
	case one.Verdict != decision.FitsNow:
		return nil, fitting{api.FitsLater, reason(one), one.Failing}
	}
	return one, fitting{fits: api.FitsNow}
}

// reason says why a machine has no room, with the reasons of the first few workers.
func reason(one *broker.Trial) string {
	const most = 3
	var list []string
	for _, g := range one.Failing[:min(len(one.Failing), most)] {
		if len(g.Failing) > 0 {
			list = append(list, fmt.Sprintf("%s: %s", g.Example, placement.ClauseText(g.Failing[0])))
		}
	}
	if len(list) == 0 {
		return one.Reason
	}
	return one.Reason + " (" + strings.Join(list, "; ") + ")"
}

// fits returns whether all groups, commands and jobs have room.
func (t *trial) fits() api.Fit {
	out := t.runs.fits
	for _, x := range t.groups {
		out = worse(out, x.fits)
	}
	return out
}
