package rollout

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// look is one look at a service: what is wanted, its machines, and the steward's memory. Step runs its stages one
// after the other: each returns a todo, which the docket turns into orders.
type look struct {
	clock  *clock
	want   *Want
	memory *Steward
	seen   sight
	course course
	aim    aim
	moves  map[string]cluster.WorkerID // where a person moves machines to, by their IDs
	held   map[string]*release.Held    // by machine ID
	lost   map[*release.Standing]bool  // machines that are to be replaced, as their worker is silent
}

// clock is the time of a look, and when to look again if nothing changes; zero: no need to.
type clock struct{ now, again time.Time }

// waits reports whether it is still before at, and has the steward look again then.
func (c *clock) waits(at time.Time) bool {
	if !c.now.Before(at) {
		return false
	}
	if c.again.IsZero() || at.Before(c.again) {
		c.again = at
	}
	return true
}

// sight is the machines of a service as a look sees them: machines that are kept up, and runs.
type sight struct {
	kept     []release.Standing                   // all machines that are kept up
	by       map[release.Slot][]*release.Standing // those of kept that are not being removed, by slot
	runs     map[string][]*release.Standing       // by group, newest first
	commands []*release.Standing                  // runs of releases' commands
	reported map[string]bool                      // reported runs, by machine ID
}

// partMachines separates runs from machines that are kept up. removed reports machines whose removal is not reported
// yet.
func partMachines(standing []release.Standing, removed func(id string) bool) sight {
	s := sight{by: map[release.Slot][]*release.Standing{}, runs: map[string][]*release.Standing{},
		reported: map[string]bool{}}
	s.kept = slices.DeleteFunc(slices.Clone(standing), func(m release.Standing) bool { return m.Run != "" })
	for i := range s.kept {
		if m := &s.kept[i]; !m.Goes() && !removed(m.ID) {
			s.by[m.Slot()] = append(s.by[m.Slot()], m)
		}
	}
	for i := range standing {
		m := &standing[i]
		s.reported[m.ID] = s.reported[m.ID] || m.Run != ""
		switch gone := m.State == machine.Destroyed || removed(m.ID); {
		case m.Run == machine.RunCommand && !gone:
			s.commands = append(s.commands, m)
		case m.Run != "" && !gone && !m.Goes():
			s.runs[m.Group] = append(s.runs[m.Group], m)
		}
	}
	for _, list := range s.runs {
		slices.SortFunc(list, func(a, b *release.Standing) int {
			return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Worker, b.Worker))
		})
	}
	return s
}

// course is how far the rollout is, and which parts of it may proceed.
type course struct {
	progress release.Progress
	open     bool // the rollout is not over
	paused   bool // a person asked for it
	blocked  bool // no machine of the newer release is made before its command is done
}

// courseOf returns how far the rollout of a head is.
func courseOf(now time.Time, want *Want) course {
	h, c := want.Head, course{progress: want.Progress, paused: want.Head.Paused}
	if !c.progress.Of(h) {
		c.progress = release.Progress{Rollout: h.Rollout, Release: h.Release, At: now.UTC()}
	}
	c.open = c.progress.State != release.Done
	c.blocked = want.Release.Command != nil && h.Command && c.wakes() && c.progress.Command != release.CommandDone
	return c
}

// runs reports whether the rollout proceeds, and can fail.
func (c *course) runs() bool { return c.open && c.progress.State == "" && !c.paused }

// judged reports whether the rollout can fail by its machines.
func (c *course) judged() bool { return c.runs() && !c.blocked }

// wakes reports whether one machine of a sleeping group must be up, so that its release can be judged.
func (c *course) wakes() bool { return c.open && !c.progress.Undo }

// aim is what the machines of each group are to be.
type aim struct {
	goal  map[string]*side          // by group, the present target
	old   map[string]*side          // by group, the target before, while the rollout is neither over nor undone
	specs map[string]*release.Group // of both releases, by the spec of their machines
}

// side is a group as one release has it.
type side struct {
	release  string // id
	group    *release.Group
	spec     string
	n        int          // replicas
	slots    []int        // numbers of its slots, in order, see chooseSlots
	has      map[int]bool // slots as a set
	optional map[int]bool // slots that its autoscale may leave out
	changed  bool         // the rollout replaces its machines
	apart    bool         // new machines get no requests until they are admitted
	beside   bool         // a canary of one replica: its old machine runs beside the new one until the step is over
}

// aimOf returns the present and the previous target.
func aimOf(want *Want, c *course) aim {
	h := want.Head
	a := aim{goal: sidesOf(want, want.Release, h.Target()), specs: map[string]*release.Group{}}
	if h.Before != nil && want.Before != nil {
		a.old = sidesOf(want, want.Before, *h.Before)
	}
	if c.progress.Undo && a.old != nil {
		a.goal, a.old = a.old, a.goal
	}
	for _, sides := range []map[string]*side{a.old, a.goal} {
		for _, name := range slices.Sorted(maps.Keys(sides)) {
			a.specs[sides[name].spec] = sides[name].group
		}
	}
	for name, to := range a.goal {
		to.changed = a.old[name] == nil || a.old[name].spec != to.spec
	}
	if !c.open || c.progress.Undo {
		a.old = nil
	}
	return a
}

func sidesOf(want *Want, r *release.Release, t release.Target) map[string]*side {
	out := make(map[string]*side, len(r.Groups))
	for i := range r.Groups {
		g := &r.Groups[i]
		out[g.Name] = &side{release: t.Release, group: g, spec: r.Spec(g, t.Restarted),
			n: want.Head.Wanted(g, want.Scaled)}
	}
	return out
}

// wants reports whether a slot is to have a machine.
func (a *aim) wants(s release.Slot) bool {
	return a.goal[s.Group] != nil && a.goal[s.Group].has[s.Index]
}

// newLook begins a look.
func newLook(s *Steward, now time.Time, want *Want, standing []release.Standing) *look {
	l := &look{clock: &clock{now: now}, want: want, memory: s, course: courseOf(now, want)}
	l.seen = partMachines(standing, func(id string) bool { return s.removed(now, id) })
	l.aim = aimOf(want, &l.course)
	l.moves = l.movesUnderWay()
	return l
}

// awaitsRelease reports whether the release before the rollout is still to arrive from another member.
func (l *look) awaitsRelease() bool {
	return l.course.open && l.want.Head.Before != nil && l.want.Before == nil
}

// followRollout updates the steward's memory to the present rollout, and forgets the slots and machines of another.
func (l *look) followRollout() {
	h, p, was := l.want.Head, &l.course.progress, l.memory.stage
	now := stage{rollout: h.Rollout, release: h.Release, undo: p.Undo, step: p.Step, reached: was.reached}
	if now == was {
		return
	}
	now.reached = time.Time{}
	l.memory.stage = now
	if now.rollout == was.rollout && now.release == was.release && now.undo == was.undo {
		return
	}
	for _, w := range l.memory.slots {
		w.began, w.gave = time.Time{}, false
	}
	for _, list := range l.seen.by {
		for _, m := range list {
			if w := l.memory.machines[m.ID]; w != nil {
				w.deaths, w.good, w.served = m.Deaths, false, false
			}
		}
	}
}

// examine determines which slots are wanted, and the state of the machines. It returns the held machines, and whether
// they must be written.
func (l *look) examine() (held []release.Held, changed bool) {
	l.noteReady()
	l.chooseSlots()
	l.lost = l.findLost()
	l.held, held, changed = l.findHeld()
	return held, changed
}

// noteReady records since when machines are ready, and how often they had ended by themselves before.
func (l *look) noteReady() {
	for i := range l.seen.kept {
		m := &l.seen.kept[i]
		if g := l.aim.goal[m.Group]; g != nil && m.State == machine.Created && !g.group.Wakeable() {
			m.Rests = false // no request starts it, and it was not stopped on request
		}
		w := l.memory.machines[m.ID]
		if w == nil {
			w = l.memory.machine(m.ID)
			w.deaths = m.Deaths
		}
		w.noteBreak(m)
		switch {
		case !m.Ready:
			w.up = time.Time{}
		case w.up.IsZero():
			w.up, w.served = l.clock.now, true
		default:
			w.served = true
		}
	}
}

// noteBreak records why a machine that was ready is not, or was not for a moment.
func (w *machineWork) noteBreak(m *release.Standing) {
	if !w.up.IsZero() && (!m.Ready || m.Missed != w.missed) {
		w.up = time.Time{}
		w.breaks = cmp.Or(m.Missed, m.Unfit, "it was not for a moment")
	}
	w.missed = m.Missed
}

// findLost returns the lost machines: their worker has been unreachable for long enough, and their group replaces
// them.
func (l *look) findLost() map[*release.Standing]bool {
	lost := map[*release.Standing]bool{}
	for name, to := range l.aim.goal {
		g := to.group
		if g.Lost() == release.Never {
			continue
		}
		for _, index := range to.slots {
			for _, m := range l.seen.by[release.Slot{Group: name, Index: index}] {
				if m.Unheard && !l.clock.waits(m.Silent.Add(g.LostWithin(l.want.LostAfter))) {
					lost[m] = true
				}
			}
		}
	}
	return lost
}

// isSettled reports whether a machine needs no action: it is ready, asleep, or its worker cannot be reached.
func isSettled(m *release.Standing) bool { return m.Ready || m.Asleep() || m.Unheard }

// ofUse reports whether a machine can stand for its replica until another does.
func (l *look) ofUse(m *release.Standing) bool {
	return isSettled(m) && l.held[m.ID] == nil && !l.memory.removing(m.ID)
}

// counts reports whether a machine is fit to replace others: it is not held, and if there are others, or the rollout
// is not over, it has been up for a while.
func (l *look) counts(m *release.Standing, g *release.Group, others bool) bool {
	switch up := g.MinUp(); {
	case !l.ofUse(m) || m.Unheard && others:
		return false
	case !m.Ready || !others && !l.course.open || up == 0:
		return true
	default:
		return !l.clock.waits(l.memory.machine(m.ID).up.Add(up))
	}
}

// proves reports whether a machine shows that its release works: it has been ready for long enough, or it was ready
// and has since gone to sleep as its service intends.
func (l *look) proves(m *release.Standing, g *release.Group, others bool) bool {
	if m.Asleep() {
		return l.memory.machine(m.ID).served && l.ofUse(m)
	}
	return m.Ready && l.counts(m, g, others)
}

// split returns the machines of a slot that are as one release has them, the one that stays first, and the others;
// lost ones are left out. A ready machine stays, and the oldest of several: it was there before it was taken for lost.
// With SOUK_FENCE the newest stays, since what the machines write to refuses the others.
func (l *look) split(s release.Slot, to *side) (of, others []*release.Standing) {
	for _, m := range l.seen.by[s] {
		switch {
		case l.lost[m]:
		case m.Spec == to.spec && !(l.leaves(m) && to.group.Movable()):
			of = append(of, m)
		default:
			others = append(others, m)
		}
	}
	age := 1
	if to.group.Lost() == release.Fenced {
		age = -1
	}
	first := func(a, b *release.Standing) int {
		return cmp.Or(compareBool(l.memory.removing(a.ID), l.memory.removing(b.ID)),
			compareBool(l.held[a.ID] != nil, l.held[b.ID] != nil),
			-compareBool(a.Ready, b.Ready), compareBool(a.Unheard, b.Unheard), compareBool(a.Died, b.Died),
			compareBool(a.Asleep(), b.Asleep()), age*cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.ID, b.ID)))
	}
	slices.SortFunc(of, first)
	slices.SortFunc(others, func(a, b *release.Standing) int {
		return cmp.Or(-compareBool(l.ofUse(a), l.ofUse(b)), first(a, b))
	})
	return of, others
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
