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

// A run is a machine that is not kept up: it runs once, for a time of a job or for a release, and stays for
// inspection. A steward orders a run only after fencing off the orders of earlier stewards, and only if no reachable
// worker has one for the same time (sameRun). Its ID follows from its purpose and the term, so within one term
// repeated orders make one machine.

// RunID returns the ID of a run's machine that is made in a term. app is the app's own ID.
func RunID(app string, r *machine.Replica, t cluster.Term) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "souk run %s %s %s %d %s %s", app, r.Group, r.Run, r.Epoch, r.Release, t))
	return hex.EncodeToString(sum[:7])
}

// sameRun reports whether two machines are for the same run: for one time of a job, or for the command of one rollout.
func sameRun(a, b *machine.Replica) bool {
	return a.Run == b.Run && a.Group == b.Group && a.Epoch == b.Epoch &&
		(a.Run != machine.RunCommand || a.Release == b.Release) // in a partition, rollouts may share a number
}

// runOf identifies the runs of one kind of a group.
type runOf struct {
	group string
	kind  machine.Run
}

// runWork is a steward's memory of such runs.
type runWork struct {
	making   bool
	epoch    uint64    // the newest that it has ordered
	made     uint64    // the newest that was made
	failures int       // failed orders in a row
	at       time.Time // no order before then
	why      error     // the newest failure; nil: none since one was made
	failed   string    // the machine of that failure
	began    time.Time // of a command: since when it should run
	last     string    // the newest machine made that is not reported yet; "": none
	lastTerm cluster.Term
	after    uint64 // number of the newest call to obey in lastTerm when it was made
}

// runMemory is a steward's memory of runs.
type runMemory struct {
	by        map[runOf]*runWork
	schedules map[string]*cron.Schedule // of jobs, cached by their Rule: parsing reads the zone's file
}

func newRunMemory() runMemory {
	return runMemory{by: map[runOf]*runWork{}, schedules: map[string]*cron.Schedule{}}
}

// of returns the memory of the runs of one kind of a group.
func (m *runMemory) of(group string, kind machine.Run) *runWork {
	return entry(m.by, runOf{group, kind})
}

// ranOut handles the end of a run's order. If it is uncertain whether a machine was made, the term ends: in the next
// term workers refuse the order if it is still on its way, and report the machine if it was made.
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

// runs handles the runs of a service.
type runs struct {
	look   *look
	docket *docket
}

// runJobs handles the jobs, and returns their settled times. A paused rollout does not stop jobs.
func (r *runs) runJobs() map[string]release.Ran {
	l := r.look
	in := l.aim.goal
	if l.course.blocked {
		in = l.aim.old
	}
	ran := maps.Clone(l.want.Runs)
	maps.DeleteFunc(ran, func(name string, _ release.Ran) bool { // dropped at the next write
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
		keep := 0 // of a removed group
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

// tidyRuns removes all but the newest ended runs, and those whose worker is drained.
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

// runJob handles one job, whose settled times are was. It returns the settled times, and whether they have changed.
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

// settledTimes returns which times of a job are settled, by its rule and its machines.
func (r *runs) settledTimes(g *release.Group, now release.Ran, known bool) release.Ran {
	h := r.look.want.Head
	switch rule, off := g.Cron.Rule(), h.IsOff(g); {
	case !known || now.Rule != rule: // times before a new rule are not made up for
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

// runDue starts the due run of a job, once: the newest of several missed times. It returns the settled times, and
// whether they have changed.
func (r *runs) runDue(to *side, now release.Ran, w *runWork) (next release.Ran, changed bool) {
	l := r.look
	g, c := to.group, to.group.Cron
	at := l.memory.runs.schedule(c)
	if at == nil { // a souk that knows more schedules or zones accepted it
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

// makeWay stops a running run that the due one replaces, or removes an ended one whose volume the due one needs.
// skipped is why the due one is skipped.
func (r *runs) makeWay(g *release.Group, due time.Time) (t todo, skipped string) {
	for _, m := range r.look.seen.runs[g.Name] {
		switch on, overlap := r.look.goesOn(m, g), g.Cron.OnOverlap(); {
		case on && overlap == release.Forbid:
			return t, fmt.Sprintf("nothing was started at %s, as machine %s of worker %s was "+
				"still running (overlap = %s)", due.Format(time.RFC3339), m.ID, m.Worker, release.Forbid)
		case on && overlap == release.ReplaceThat:
			t.do(Hold, m, "the next run is due, and takes its place")
			return t, ""
		case !on && len(g.Config.Mounts) > 0: // it still has the volume
			t.remove(m, "the next run is due, and needs its volume")
			return t, ""
		}
	}
	return t, ""
}

// notYet returns why a due run could not be started so far; "": it was not tried.
func notYet(due time.Time, w *runWork) string {
	if w.why == nil {
		return ""
	}
	return fault.Clip(fmt.Sprintf("what is due at %s could not be started yet, and is tried again: %v",
		due.Format(time.RFC3339), w.why), release.MaxReason)
}

// schedule returns a job's schedule; nil: its rule cannot be read.
func (m *runMemory) schedule(c *release.Cron) *cron.Schedule {
	rule := c.Rule()
	if at, read := m.schedules[rule]; read {
		return at
	}
	if len(m.schedules) >= release.MaxGroups { // some are of earlier releases
		clear(m.schedules)
	}
	at, err := cron.Parse(c.Schedule, c.Zone)
	if err != nil {
		at = nil
	}
	m.schedules[rule] = at
	return at
}

// goesOn reports whether a run is not over. It counts one at an unreachable worker only if the group waits for such
// workers.
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

// start orders the machine of a run once no other can have been made for it, and reports whether a worker has one.
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
