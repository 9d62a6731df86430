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

// look is one look at a service: what is wanted, what stands, and what the steward remembers. Its stages follow one another
// in Step: each says what is to be done (todo), and the docket makes orders of that.
type look struct {
	clock  *clock
	want   *Want
	memory *Steward
	seen   sight
	course course
	aim    aim
	moves  map[string]cluster.WorkerID // where machines are to be by hand, by their ids
	held   map[string]*release.Held    // by machine
	lost   map[*release.Standing]bool  // machines that others take the places of
}

// clock is the time of a look, and when to look again where nothing changes; zero: there is no need.
type clock struct{ now, again time.Time }

// waits reports whether it is too early for something, and has it looked at then.
func (c *clock) waits(at time.Time) bool {
	if !c.now.Before(at) {
		return false
	}
	if c.again.IsZero() || at.Before(c.again) {
		c.again = at
	}
	return true
}

// sight is the machines of a service as a look finds them: those that are kept up, and runs.
type sight struct {
	kept     []release.Standing                   // all that are kept up
	by       map[release.Slot][]*release.Standing // those of them that stay, by slot
	runs     map[string][]*release.Standing       // by group, newest first
	commands []*release.Standing                  // runs of releases' commands
	reported map[string]bool                      // runs that the fleet knows of, by the machine's id
}

// partMachines parts runs from the machines that are kept up. removed says of which the fleet has not told yet that it is gone.
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

// course is how far the rollout is, and what may go on of it.
type course struct {
	progress release.Progress
	open     bool // the rollout is not over
	paused   bool // somebody asked for that
	blocked  bool // nothing of the newer release is made before its command is over
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

// runs reports whether the rollout goes on, and can fail.
func (c *course) runs() bool { return c.open && c.progress.State == "" && !c.paused }

// judged reports whether it can fail by its machines.
func (c *course) judged() bool { return c.runs() && !c.blocked }

// wakes reports whether one machine of a group that sleeps is to be up, so that its release can be judged.
func (c *course) wakes() bool { return c.open && !c.progress.Undo }

// aim is what the machines of each group are to be.
type aim struct {
	goal  map[string]*side          // what is in force, by group
	old   map[string]*side          // what was before, while the rollout is not over and not undone
	specs map[string]*release.Group // of both releases, by the spec of their machines
}

// side is what the machines of a group are to be by one release.
type side struct {
	release  string // id
	group    *release.Group
	spec     string
	n        int          // replicas
	slots    []int        // their numbers, in order, see chooseSlots
	has      map[int]bool // the same
	optional map[int]bool // those of them that its autoscale may leave out
	changed  bool         // the rollout makes its machines anew
	apart    bool         // no request goes to those that are made, until they are admitted
	beside   bool         // a canary of one replica: its old machine stays beside the new one until the step is over
}

// aimOf returns what is in force and what was before it.
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

// awaitsRelease reports whether the release before the rollout is about to come from another member.
func (l *look) awaitsRelease() bool {
	return l.course.open && l.want.Head.Before != nil && l.want.Before == nil
}

// followRollout has the steward remember of the rollout what it is at. What slots and machines were in another one is forgotten.
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

// examine finds out which slots are wanted, and what the machines are good for. It returns the machines that are held, and
// whether that must be written.
func (l *look) examine() (held []release.Held, changed bool) {
	l.noteReady()
	l.chooseSlots()
	l.lost = l.findLost()
	l.held, held, changed = l.findHeld()
	return held, changed
}

// noteReady notes since when machines are ready, and how often they had ended by themselves before.
func (l *look) noteReady() {
	for i := range l.seen.kept {
		m := &l.seen.kept[i]
		if g := l.aim.goal[m.Group]; g != nil && m.State == machine.Created && !g.group.Wakeable() {
			m.Rests = false // no request starts it, and nobody has stopped it
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

// noteBreak notes that a machine that was ready is not, or was not for a moment.
func (w *machineWork) noteBreak(m *release.Standing) {
	if !w.up.IsZero() && (!m.Ready || m.Missed != w.missed) {
		w.up = time.Time{}
		w.breaks = cmp.Or(m.Missed, m.Unfit, "it was not for a moment")
	}
	w.missed = m.Missed
}

// findLost returns which machines are lost: their worker has not been heard for long enough, and others may be made.
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

// isSettled reports whether nothing is to be done for a machine: it is ready, asleep, or its worker cannot be reached.
func isSettled(m *release.Standing) bool { return m.Ready || m.Asleep() || m.Unheard }

// ofUse reports whether a machine can stand for its replica until another does.
func (l *look) ofUse(m *release.Standing) bool {
	return isSettled(m) && l.held[m.ID] == nil && !l.memory.removing(m.ID)
}

// counts reports whether a machine is what it is to be, so that others may go for it: it is not held, and if there are
// others, or the rollout is not over, it has been up for a while.
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

// proves reports whether a machine shows that its release works: it has been ready for long enough, or it was ready and
// went to sleep since, as its service has it.
func (l *look) proves(m *release.Standing, g *release.Group, others bool) bool {
	if m.Asleep() {
		return l.memory.machine(m.ID).served && l.ofUse(m)
	}
	return m.Ready && l.counts(m, g, others)
}

// split returns the machines of a slot that are as one release has them, the one that stays first, and the others; those
// that are lost left out. What stays is the one that is up, and of several the oldest: it was there before others took it
// for lost. Where they are told apart by SOUK_FENCE the newest stays, since what they write to refuses the others.
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
