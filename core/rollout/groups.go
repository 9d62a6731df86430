package rollout

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// pass is one look at a service.
type pass struct {
	*Steward
	now      time.Time
	want     *Want
	standing []Standing
	by       map[Slot][]*Standing   // machines that stay, by slot
	runs     map[string][]*Standing // by group, newest first
	commands []*Standing            // runs of releases' commands
	reported map[string]bool        // runs that the fleet knows of, by the machine's id
	ran      map[string]Ran
	held     map[string]*Held   // by machine
	lost     map[*Standing]bool // machines that others take the places of
	wanted   map[Slot]bool
	evens    map[string]*even            // by group; nil: its machines are not spread
	moves    map[string]cluster.WorkerID // where machines are to be by hand, by their ids
	goal     map[string]*side            // what is in force, by group
	old      map[string]*side            // what was before, while the rollout is not over and not undone
	specs    map[string]*Group           // of both releases, by the spec of their machines
	progress Progress
	open     bool            // the rollout is not over
	judged   bool            // it can fail
	blocked  bool            // nothing of the newer release is made before its command is over
	whole    map[string]bool // groups whose machines are as they are to be
	short    bool            // a canary's step is not reached, or not over
	fails    []failure
	wants    bool // something is to be done, now or later
	out      Next
}

func newPass(s *Steward, now time.Time, want *Want, standing []Standing) *pass {
	p := &pass{Steward: s, now: now, want: want, by: map[Slot][]*Standing{},
		lost: map[*Standing]bool{}, wanted: map[Slot]bool{}, whole: map[string]bool{}, evens: map[string]*even{},
		moves: map[string]cluster.WorkerID{}}
	p.part(standing)
	for i := range p.standing {
		if m := &p.standing[i]; !m.goes() && !s.removed(now, m.ID) {
			p.by[m.slot()] = append(p.by[m.slot()], m)
		}
	}
	return p
}

// side is what the machines of a group are to be by one release.
type side struct {
	release  string // id
	group    *Group
	spec     string
	n        int          // replicas
	slots    []int        // their numbers, in order, see chooseSlots
	has      map[int]bool // the same
	optional map[int]bool // those of them that its autoscale may leave out
	off      bool         // its job is turned off
	changed  bool         // the rollout makes its machines anew
	apart    bool         // no request goes to those that are made, until they are admitted
	beside   bool         // a canary of one replica: its old machine stays beside the new one until the step is over
}

// aim says what is in force and what was before it.
func (p *pass) aim() {
	h := p.want.Head
	if p.progress = p.want.Progress; !p.progress.Of(h) {
		p.progress = Progress{Rollout: h.Rollout, Release: h.Release, At: p.now.UTC()}
	}
	p.open = h.Rollout > 0 && p.progress.State != Done
	p.judged = p.open && p.progress.State == "" && !h.Paused
	p.goal = p.sides(p.want.Release, h.target())
	if h.Before != nil && p.want.Before != nil {
		p.old = p.sides(p.want.Before, *h.Before)
	}
	if p.progress.Undo && p.old != nil {
		p.goal, p.old = p.old, p.goal
	}
	p.specs = map[string]*Group{}
	for _, sides := range []map[string]*side{p.old, p.goal} {
		for _, to := range sides {
			p.specs[to.spec] = to.group
		}
	}
	p.moving()
	for name, to := range p.goal {
		other := p.old[name]
		to.changed = other == nil || other.spec != to.spec
	}
	if !p.open || p.progress.Undo {
		p.old = nil
	}
	now := stage{rollout: h.Rollout, release: h.Release, undo: p.progress.Undo, step: p.progress.Step}
	if now.reached = p.stage.reached; now != p.stage {
		if now.rollout != p.stage.rollout || now.release != p.stage.release || now.undo != p.stage.undo {
			p.begin()
		}
		now.reached = time.Time{}
		p.Steward.stage = now
	}
}

// begin forgets what slots and machines were in the rollout before.
func (p *pass) begin() {
	for _, w := range p.slots {
		w.began, w.gave = time.Time{}, false
	}
	for _, list := range p.by {
		for _, m := range list {
			if w := p.machines[m.ID]; w != nil {
				w.deaths, w.good, w.served = m.Deaths, false, false
			}
		}
	}
}

func (p *pass) sides(r *Release, t Target) map[string]*side {
	out := make(map[string]*side, len(r.Groups))
	for i := range r.Groups {
		g := &r.Groups[i]
		to := &side{release: t.Release, group: g, spec: r.Spec(g, t.Restarted),
			n: p.want.Head.Wanted(g, p.want.Scaled)}
		to.off = g.Cron != nil && p.want.Head.Count(g) == 0
		out[g.Name] = to
	}
	return out
}

// notice notes since when machines are ready, and how often they had ended by themselves before.
func (p *pass) notice(standing []Standing) {
	for i := range standing {
		m := &standing[i]
		if g := p.goal[m.Group]; g != nil && m.State == machine.Created && !g.group.Wakeable() {
			m.Rests = false // no request starts it, and nobody has stopped it
		}
		w := p.machines[m.ID]
		if w == nil {
			w = p.machine(m.ID)
			w.deaths = m.Deaths
		}
		w.breaksOff(m)
		switch {
		case !m.Ready:
			w.up = time.Time{}
		case w.up.IsZero():
			w.up, w.served = p.now, true
		default:
			w.served = true
		}
	}
}

// breaksOff notes that a machine that was ready is not, or was not for a moment.
func (w *machineWork) breaksOff(m *Standing) {
	if !w.up.IsZero() && (!m.Ready || m.Missed != w.missed) {
		w.up = time.Time{}
		w.breaks = cmp.Or(m.Missed, m.Unfit, "it was not for a moment")
	}
	w.missed = m.Missed
}

// settled reports whether a machine is what it is to be: it is up, or rests.
func settled(m *Standing) bool { return m.Ready || m.asleep() || m.Unheard }

// groups looks at each slot that is wanted, of a group after those that it comes after.
func (p *pass) groups() {
	for _, name := range slices.Sorted(maps.Keys(p.goal)) {
		p.visit(name)
	}
}

func (p *pass) visit(name string) {
	if _, over := p.whole[name]; over {
		return
	}
	first := true
	for _, before := range p.goal[name].group.After {
		p.visit(before)
		first = first && p.whole[before]
	}
	p.whole[name] = p.group(name, p.open && !first)
}

// view is a slot as one look finds it.
type view struct {
	slot       Slot
	of, others []*Standing // as it is to be, the one that stays first; and otherwise
	making     bool
	ok         bool     // the first of them is of use
	failure    *Failure // why it is not, and will not be
}

// fresh reports whether the slot has what it is to have, or is about to.
func (v *view) fresh() bool { return len(v.of) > 0 || v.making }

// machines returns how many machines the slot has, or is about to.
func (v *view) machines() int {
	n := len(v.of) + len(v.others)
	if v.making {
		n++
	}
	return n
}

// budget is how many more slots of a group may be under way.
type budget struct {
	news    int  // that have what they are to have, or are about to
	more    int  // machines that they have beside the first of each
	none    int  // of them that have none of use
	taking  int  // of them that take the place of a machine of another group, and have none of use yet
	judging bool // a machine is up, or on its way, by which the group is judged
	judged  bool // one was of use
	all     bool // each slot has what it is to have, and requests go there
	ready   bool // each slot has what it is to have
}

// group looks at the slots of a group, and reports whether each is as it is to be. gated is that others come first.
func (p *pass) group(name string, gated bool) bool {
	goal, old := p.goal[name], p.old[name]
	p.lose(goal)
	views, b := p.survey(goal)
	goal.apart = old != nil && goal.group.strategy() == BlueGreen
	b.all = b.ready
	for i := range views {
		b.all = b.all && !(goal.apart && len(views[i].of) > 0 && views[i].of[0].Cordoned)
	}
	allow := p.allow(goal, old, b.news, gated)
	first := p.firstNew(views, old, allow, &b)
	whole, step := true, 0
	for i := range views {
		v, to := &views[i], goal
		p.wanted[v.slot] = true
		switch {
		case v.fresh(), first[i]:
		case old != nil && old.has[v.slot.Index]:
			to = old
			v.of, v.others = p.split(v.slot, old)
			v.ok = len(v.of) > 0 && p.counts(v.of[0], old.group, len(v.others) > 0)
			v.making = p.makes(v.slot, old)
			whole = false
		default:
			if whole = false; p.blocked || len(v.others) > 0 || p.progress.State != Paused {
				continue
			} // nothing else can stand there
		}
		p.look(v, to, &b)
		if to == goal && (p.done(v, goal) || p.unfilled(v, goal)) {
			step++
		} else {
			whole = false
		}
	}
	if old != nil && p.progress.Step < len(goal.group.steps()) {
		p.short = p.short || gated || step < min(allow, goal.n)
	}
	return whole
}

func (p *pass) makes(s Slot, to *side) bool {
	w := p.slots[s]
	return w != nil && w.makes(to.spec)
}

// survey finds what the slots of a group have.
func (p *pass) survey(to *side) (views []view, b budget) {
	b.ready = true
	for _, index := range to.slots {
		v := view{slot: Slot{to.group.Name, index}}
		v.of, v.others = p.split(v.slot, to)
		v.making = p.makes(v.slot, to)
		if len(v.of) > 0 && p.proves(v.of[0], to.group, len(v.others) > 0) {
			p.machine(v.of[0].ID).good = true
		}
		b.judged = b.judged || len(v.of) > 0 && p.machine(v.of[0].ID).good
		views = append(views, v)
	}
	for i := range views {
		v := &views[i]
		v.ok = len(v.of) > 0 && p.counts(v.of[0], to.group, len(v.others) > 0) &&
			(b.judged || !p.wakes() || !v.of[0].asleep() || !to.changed)
		p.dates(v, to)
		v.failure = p.failing(v, to)
		b.judging = b.judging || v.failure == nil && (v.making || len(v.of) > 0 && !v.of[0].asleep())
		if v.fresh() {
			b.news++
		}
		if v.failure == nil || to.group.onFailure() != GoOn {
			b.more += max(0, v.machines()-1)
			if !slices.ContainsFunc(v.of, p.ofUse) && !slices.ContainsFunc(v.others, p.ofUse) && !p.unfilled(v, to) {
				b.none++
			}
		}
		b.ready = b.ready && (v.ok || p.unfilled(v, to))
		if w := p.slots[v.slot]; w != nil && w.took != "" && !v.ok {
			b.taking++
		}
	}
	return views, b
}

// dates notes since when a slot waits for a machine of use.
func (p *pass) dates(v *view, to *side) {
	switch w := p.slots[v.slot]; {
	case v.ok && w != nil:
		w.began, w.gave, w.took = time.Time{}, false, ""
	case !v.ok && len(v.of) > 0:
		p.slot(v.slot).begin(to.spec, p.now)
	}
}

// counts reports whether a machine is what it is to be, so that others may go for it: it is not held, and if there are
// others, or the rollout is not over, it has been up for a while.
func (p *pass) counts(m *Standing, g *Group, others bool) bool {
	switch up := g.minUp(); {
	case !p.ofUse(m) || m.Unheard && others:
		return false
	case !m.Ready || !others && !p.open || up == 0:
		return true
	default:
		return !p.waits(p.machine(m.ID).up.Add(up))
	}
}

// proves reports whether a machine shows that its release works: it has been ready for long enough, or it was ready and
// went to sleep since, as its service has it.
func (p *pass) proves(m *Standing, g *Group, others bool) bool {
	if m.asleep() {
		return p.machine(m.ID).served && p.ofUse(m)
	}
	return m.Ready && p.counts(m, g, others)
}

// done reports whether nothing is to be done for a slot any more, as far as the rollout goes. One that has what it had
// before is left out of that, and one that failed where others go on.
func (p *pass) done(v *view, to *side) bool {
	others := !to.beside && slices.ContainsFunc(v.others, func(m *Standing) bool { return !m.Unheard })
	switch {
	case v.failure != nil && to.group.onFailure() == GoOn:
		return true
	case !to.changed:
		return len(v.of) > 0
	}
	return v.ok && len(v.of) == 1 && !others && !v.of[0].Cordoned
}

// lose notes which machines of a group are lost: their worker has not been heard for long enough, and another may be made.
func (p *pass) lose(to *side) {
	g := to.group
	if g.Lost() == Never {
		return
	}
	for _, index := range to.slots {
		for _, m := range p.by[Slot{g.Name, index}] {
			if m.Unheard && !p.waits(m.Silent.Add(g.LostWithin(p.want.LostAfter))) {
				p.lost[m] = true
			}
		}
	}
}

// split returns the machines of a slot that are as one release has them, the one that stays first, and the others; those
// that are lost left out. What stays is the one that is up, and of several the oldest: it was there before others took it
// for lost. Where they are told apart by SOUK_FENCE the newest stays, since what they write to refuses the others.
func (p *pass) split(s Slot, to *side) (of, others []*Standing) {
	for _, m := range p.by[s] {
		switch {
		case p.lost[m]:
		case m.Spec == to.spec && !(p.leaves(m) && to.group.movable()):
			of = append(of, m)
		default:
			others = append(others, m)
		}
	}
	age := 1
	if to.group.Lost() == Fenced {
		age = -1
	}
	first := func(a, b *Standing) int {
		return cmp.Or(compareBool(p.removing(a), p.removing(b)), compareBool(p.held[a.ID] != nil, p.held[b.ID] != nil),
			-compareBool(a.Ready, b.Ready), compareBool(a.Unheard, b.Unheard), compareBool(a.Died, b.Died),
			compareBool(a.asleep(), b.asleep()), age*cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.ID, b.ID)))
	}
	slices.SortFunc(of, first)
	slices.SortFunc(others, func(a, b *Standing) int {
		return cmp.Or(-compareBool(p.ofUse(a), p.ofUse(b)), first(a, b))
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

// look looks at one slot, which is to be as one release has it.
func (p *pass) look(v *view, to *side, b *budget) {
	switch {
	case !v.fresh() && len(v.others) == 0 && (to != p.goal[to.group.Name] && p.given(to) || !p.free(v, to, b)):
		p.wants = true
	case !v.fresh() && len(v.others) == 0:
		w := p.slot(v.slot)
		w.home, w.only = cmp.Or(w.home, p.awaited(v.slot)), false
		p.make(v.slot, to, w.slept && (b.judged || !p.wakes()), "it has no machine")
		b.judging = true
	case len(v.of) == 0 && len(v.others) == 0:
		p.wants = true
	case len(v.of) == 0:
		p.replace(v, to, b)
	default:
		p.keep(v, to, b)
	}
}

// keep has the first of a slot's machines stay, and the others go once they may.
func (p *pass) keep(v *view, to *side, b *budget) {
	first := v.of[0]
	for _, twin := range v.of[1:] {
		p.remove(twin, "another machine stands for "+v.slot.String())
	}
	held := p.hold(first)
	goes := v.ok && (!to.apart || b.all) && !to.beside
	p.wants = p.wants || p.judged && !v.ok && !held && to.changed && v.failure == nil
	switch {
	case goes:
		for _, m := range v.others {
			why := "one of the newer release stands for "
			if p.leaves(m) {
				why = "another machine stands for "
			}
			p.remove(m, why+v.slot.String())
		}
	case len(v.others) > 0:
		rests := held || to.beside && v.ok
		p.wants = p.wants || !rests && (p.judged && v.failure == nil || first.Ready || !p.late(v.slot, to))
		p.keepOne(v.others)
	}
	switch {
	case held:
	case v.ok && p.open && first.Cordoned && to.changed && (!to.apart || b.ready):
		p.admit(first)
	case !v.ok && p.judged && p.wakes() && first.asleep() && !first.Unheard && to.changed:
		if !b.judging {
			b.judging = true
			p.order(first, Start, "it is woken, so that its release can be judged")
		}
		p.wants = true
	default:
		p.revive(first)
	}
}

// wakes reports whether one machine of a group that sleeps is to be up, so that its release can be judged.
func (p *pass) wakes() bool { return p.open && !p.progress.Undo }

// admit lets requests go to a machine.
func (p *pass) admit(m *Standing) {
	p.wants = true
	if w := p.machine(m.ID); w.verb == Admit && !w.done.IsZero() && p.waits(w.done.Add(time.Second)) {
		return // its worker is about to tell of it
	}
	p.order(m, Admit, "all machines of the newer release are ready")
}

// revive has a machine started that died, or that is down without anybody having asked for it.
func (p *pass) revive(m *Standing) {
	w := p.machines[m.ID]
	if !m.Died && !m.stranded() {
		if w != nil && w.starts > 0 && m.Ready && p.now.After(w.started.Add(upFor)) {
			w.starts = 0
		}
		return
	}
	p.wants = true
	if w != nil && w.verb == Start && !w.done.IsZero() { // it was started, and has died again since
		w.at = later(w.at, w.done.Add(startAgain.After(w.starts)))
		w.starts++
		w.done = time.Time{}
	}
	why := "it died"
	if !m.Died {
		why = "it is down, and nobody has asked for that"
	}
	p.order(m, Start, why)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// surplus removes the machines of slots that are not wanted. Those that were wanted before the rollout go last.
func (p *pass) surplus() {
	kept := p.open && (p.blocked || p.want.Head.Paused || p.progress.State == Paused || !p.wholly())
	keptOld := map[string]bool{} // groups of which one old machine stays, see needsOld
	for _, slot := range slices.SortedFunc(maps.Keys(p.by), Slot.Compare) {
		if p.wanted[slot] {
			continue
		}
		old := p.old[slot.Group]
		for _, m := range p.by[slot] {
			if !keptOld[slot.Group] && p.needsOld(slot.Group, old) && m.Spec == old.spec && p.ofUse(m) {
				keptOld[slot.Group] = true
				p.revive(m)
				continue
			}
			if kept && old != nil && old.has[slot.Index] {
				p.revive(m)
				continue
			}
			p.remove(m, slot.String()+" is not wanted any more")
		}
	}
}

// wholly reports whether each group is as it is to be.
func (p *pass) wholly() bool {
	for name := range p.goal {
		if !p.whole[name] {
			return false
		}
	}
	return true
}

// Wakeable reports whether a request starts a machine of the group that is down.
func (g *Group) Wakeable() bool {
	return slices.ContainsFunc(g.Config.Services, func(s machine.Service) bool {
		return s.Autostart == nil || *s.Autostart
	})
}
