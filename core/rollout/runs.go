package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/cron"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// A run is a machine that nobody keeps up: it runs once, for a time of a job or for a release, and stays to be looked at.
// A steward orders a run only after the orders of earlier stewards are fenced, and only where no worker that can be reached
// has one for the same time (sameRun). Its id follows from what it is for and from the term, so one term makes one machine
// however often it orders it.

// RunID returns the id of the machine of a run of an app, whose own id app is, that is made in a term.
func RunID(app string, r *machine.Replica, t cluster.Term) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "souk run %s %s %s %d %s %s", app, r.Group, r.Run, r.Epoch, r.Release, t))
	return hex.EncodeToString(sum[:7])
}

// sameRun reports whether two machines are for the same: for one time of a job, or for the command of one rollout.
func sameRun(a, b *machine.Replica) bool {
	return a.Run == b.Run && a.Group == b.Group && a.Epoch == b.Epoch &&
		(a.Run != machine.RunCommand || a.Release == b.Release) // on two sides of a cut rollouts may have one number
}

// runOf names the runs of one kind of a group.
type runOf struct {
	group string
	kind  machine.Run
}

// runWork is what a steward remembers of them.
type runWork struct {
	making   bool
	epoch    uint64    // the newest that it has asked for
	made     uint64    // the newest that was made
	failures int       // in a row
	at       time.Time // it makes none before
	why      error     // the newest failure; nil: none since one was made
	failed   string    // the machine of that
	began    time.Time // of a command: since when it is to run
	last     string    // the machine that was made last, and of which the fleet has not told; "": there is none
	lastTerm cluster.Term
	after    uint64 // the newest call to obey in that term when it was made
}

// runMemory is what a steward remembers of runs.
type runMemory struct {
	by        map[runOf]*runWork
	schedules map[string]*cron.Schedule // of jobs, by what they follow from: a zone is read from a file
}

func newRunMemory() runMemory {
	return runMemory{by: map[runOf]*runWork{}, schedules: map[string]*cron.Schedule{}}
}

// of returns what is remembered of the runs of one kind of a group.
func (m *runMemory) of(group string, kind machine.Run) *runWork {
	return entry(m.by, runOf{group, kind})
}

// ranOut tells how the make of a run ended. Where nobody knows whether there is a machine now the term is over: in the next
// one the workers refuse the order if it is still on its way, and tell of the machine if it is made.
func (s *Steward) ranOut(now time.Time, o *Order, err error) {
	w := s.runs.of(o.Replica.Group, o.Replica.Run)
	w.making, w.why = false, err
	if err == nil {
		w.made, w.failures, w.at, w.last = o.Replica.Epoch, 0, time.Time{}, o.Machine
		w.lastTerm, w.after = s.fence.term, s.fence.count
		return
	}
	w.at, w.failed = now.Add(after(err, makeAgain, w.failures)), o.Machine
	w.failures++
	if uncertain(err) && s.office.term == o.Term {
		s.office.endTerm()
	}
}

// runs sees to the runs of a service.
type runs struct {
	look   *look
	docket *docket
}

// runJobs sees to the groups that run at times, and returns which of their times are settled. A pause of the rollout does not hold
// them up.
func (r *runs) runJobs() map[string]release.Ran {
	l := r.look
	in := l.aim.goal
	if l.course.blocked {
		in = l.aim.old
	}
	ran := maps.Clone(l.want.Runs)
	maps.DeleteFunc(ran, func(name string, _ release.Ran) bool { // with the next word
		return !isJob(l.aim.goal, name) && !isJob(l.aim.old, name)
	})
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if !isJob(in, name) {
			continue
		}
		was, known := ran[name]
		now, changed := r.runJob(in[name], was, known)
		if !changed {
			continue
		}
		if ran == nil {
			ran = map[string]release.Ran{}
		}
		now.Skipped = fault.Clip(now.Skipped, release.MaxReason)
		ran[name] = now
		r.docket.tell()
	}
	for _, name := range slices.Sorted(maps.Keys(l.seen.runs)) {
		keep := 0 // of a group that is gone
		if isJob(in, name) {
			keep = in[name].group.Cron.Keeps()
		}
		r.docket.give(tidyRuns(l.seen.runs[name], keep))
	}
	return ran
}

func isJob(in map[string]*side, name string) bool {
	return in[name] != nil && in[name].group.Cron != nil
}

// tidyRuns removes runs that have ended but for the newest, and those whose worker is being emptied.
func tidyRuns(runs []*release.Standing, keep int) (t todo) {
	for _, m := range runs {
		if !m.Over() {
			continue
		}
		if keep--; keep < 0 || m.Leaves {
			t.remove(m, "it has ended, and newer runs are kept")
		}
	}
	return t
}

// runJob sees to one job, of which was is settled. It returns what is settled then, and whether that is anything new.
func (r *runs) runJob(to *side, was release.Ran, known bool) (now release.Ran, changed bool) {
	g := to.group
	w := r.look.memory.runs.of(g.Name, machine.RunScheduled)
	now = r.settledTimes(g, was, known)
	if known && w.made > now.At {
		now.At, now.Skipped = w.made, ""
	}
	switch {
	case !known || now != was:
		return now, true
	case w.making:
		r.docket.give(todo{waits: true})
	case !r.look.want.Head.IsOff(g):
		return r.runDue(to, now, w)
	}
	return now, false
}

// settledTimes returns which times of a job are settled as far as its rule and its machines say that.
func (r *runs) settledTimes(g *release.Group, now release.Ran, known bool) release.Ran {
	h := r.look.want.Head
	switch rule, off := g.Cron.Rule(), h.IsOff(g); {
	case !known || now.Rule != rule: // what was before it is not made up for
		now = release.Ran{At: max(now.At, release.Minute(h.Began())), Rule: rule, Off: off}
	case now.Off && !off:
		now.Off, now.At = false, max(now.At, release.Minute(h.At))
	default:
		now.Off = off
	}
	for _, m := range r.look.seen.runs[g.Name] {
		if m.Run == machine.RunScheduled && m.Epoch > now.At {
			now.At, now.Skipped = m.Epoch, ""
		}
	}
	return now
}

// runDue starts what is due of a job, once: of several times that were missed the newest. It returns what is settled then, and
// whether that is anything new.
func (r *runs) runDue(to *side, now release.Ran, w *runWork) (next release.Ran, changed bool) {
	l := r.look
	g, c := to.group, to.group.Cron
	at := l.memory.runs.schedule(c)
	if at == nil { // a newer souk took it in, or one that knows more zones
		return now, false
	}
	first := at.Next(now.Time())
	if first.IsZero() || l.clock.waits(first) {
		return now, false
	}
	oldest := l.clock.now.Add(-c.StartsWithin())
	last := time.Time{}
	for t := at.Next(later(now.Time(), oldest.Add(-1))); !t.IsZero() && !t.After(l.clock.now); t = at.Next(t) {
		last = t
	}
	if last.IsZero() {
		now.At, now.Skipped = release.Minute(oldest), fmt.Sprintf("what was due at %s could not be started within %v",
			first.Format(time.RFC3339), c.StartsWithin())
		if w.why != nil {
			now.Skipped += ": " + w.why.Error()
		}
		return now, true
	}
	t, skipped := r.makeWay(g, last)
	t.waits = true
	r.docket.give(t)
	switch text := notYet(last, w); {
	case skipped != "":
		now.At, now.Skipped = release.Minute(last), skipped
	case len(t.acts) > 0:
		return now, false
	case text != "" && text != now.Skipped:
		now.Skipped = text
	case r.start(ofRun(to, machine.RunScheduled, release.Minute(last)), g, w):
		now.At, now.Skipped = release.Minute(last), ""
	default:
		return now, false
	}
	return now, true
}

// makeWay has a run that goes on stopped where the next one, which is due, takes its place, or one that has ended removed where that
// needs its volume. skipped is why the next one is left out.
func (r *runs) makeWay(g *release.Group, due time.Time) (t todo, skipped string) {
	for _, m := range r.look.seen.runs[g.Name] {
		switch on, overlap := r.look.goesOn(m, g), g.Cron.OnOverlap(); {
		case on && overlap == release.Forbid:
			return t, fmt.Sprintf("nothing was started at %s, as machine %s of worker %s was "+
				"still running (overlap = %s)", due.Format(time.RFC3339), m.ID, m.Worker, release.Forbid)
		case on && overlap == release.ReplaceThat:
			t.do(Hold, m, "the next run is due, and takes its place")
			return t, ""
		case !on && len(g.Config.Mounts) > 0: // it has the volume
			t.remove(m, "the next run is due, and needs its volume")
			return t, ""
		}
	}
	return t, ""
}

// notYet says why what is due could not be started so far; "": it was not tried.
func notYet(due time.Time, w *runWork) string {
	if w.why == nil {
		return ""
	}
	return fault.Clip(fmt.Sprintf("what is due at %s could not be started yet, and is tried again: %v",
		due.Format(time.RFC3339), w.why), release.MaxReason)
}

// schedule returns when a job is due; nil: its rule cannot be read.
func (m *runMemory) schedule(c *release.Cron) *cron.Schedule {
	rule := c.Rule()
	if at, read := m.schedules[rule]; read {
		return at
	}
	if len(m.schedules) >= release.MaxGroups { // of releases that were before
		clear(m.schedules)
	}
	at, err := cron.Parse(c.Schedule, c.Zone)
	if err != nil {
		at = nil
	}
	m.schedules[rule] = at
	return at
}

// goesOn reports whether a run is not over, as far as the group waits for one whose worker is not heard.
func (l *look) goesOn(m *release.Standing, g *release.Group) bool {
	if m.Unheard && g.Lost() != release.Never && !l.clock.waits(m.Silent.Add(g.LostWithin(l.want.LostAfter))) {
		return false
	}
	return !m.Over()
}

func ofRun(to *side, kind machine.Run, epoch uint64) machine.Replica {
	return machine.Replica{Group: to.group.Name, Epoch: epoch, Spec: to.spec, Release: to.release, Run: kind,
		StopAfter: to.group.StopsAfter()}
}

// start orders the machine of a run once no other can have made it, and reports whether one has.
func (r *runs) start(run machine.Replica, g *release.Group, w *runWork) (has bool) {
	d, term := r.docket, r.look.memory.office.term
	d.give(todo{waits: true})
	if w.making || r.look.clock.waits(w.at) || d.full() || !d.begun() {
		return false
	}
	ok, has := r.fresh(g, &run, w)
	if !has && ok {
		d.out.Orders = append(d.out.Orders, Order{Verb: Make, Term: term, Replica: run, Why: "it is due",
			Machine: RunID(r.look.want.App, &run, term)})
	}
	return has
}
