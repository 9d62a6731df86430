package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/cron"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// A run is a machine that nobody keeps up: it runs once, for a time of a job or for a release, and stays to be looked at.
// None is asked for before no order of an earlier steward can make it any more, and no worker that is heard has one for the
// same (sameRun). Its id follows from what it is for and the term, so a term asks for one machine however often it asks.

// Ran is what is settled of the times of a job. The rest is read off its machines.
type Ran struct {
	At      uint64 `json:"at"`                // the newest time that is settled, in minutes since 1970: later ones are to come
	Rule    string `json:"rule"`              // what the times followed from
	Off     bool   `json:"off,omitempty"`     // the job is turned off
	Skipped string `json:"skipped,omitempty"` // why nothing was started at the newest time yet, one sentence; "": it was
}

// Time returns the newest time that is settled.
func (r *Ran) Time() time.Time { return minuteTime(r.At) }

func minuteTime(minute uint64) time.Time { return time.Unix(int64(minute)*60, 0).UTC() }

// Minute returns a time in minutes since 1970, rounded down.
func Minute(t time.Time) uint64 { return uint64(max(0, t.Unix()/60)) }

func checkRuns(runs map[string]Ran) error {
	ok := len(runs) <= MaxGroups
	for group, r := range runs {
		ok = ok && len(group) <= maxText && len(r.Rule) <= maxReason+1 && len(r.Skipped) <= maxReason
	}
	if !ok {
		return fault.New(fault.Invalid, "tenure", "a service has at most %d jobs, with texts of at most %d bytes",
			MaxGroups, maxReason)
	}
	return nil
}

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

// Over reports whether a run is over: its program ended, it was stopped, or it could not be started.
func (m *Standing) Over() bool {
	return m.State == machine.Stopped || m.State == machine.Failed || m.goes()
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

func (s *Steward) run(group string, kind machine.Run) *runWork {
	of := runOf{group, kind}
	if s.runs[of] == nil {
		s.runs[of] = &runWork{}
	}
	return s.runs[of]
}

// ranOut tells how the make of a run ended. Where nobody knows whether there is a machine now the term is over: in the next
// one the workers refuse the order if it is still on its way, and tell of the machine if it is made.
func (s *Steward) ranOut(now time.Time, o *Order, err error) {
	w := s.run(o.Replica.Group, o.Replica.Run)
	w.making, w.why = false, err
	if err == nil {
		w.made, w.failures, w.at, w.last = o.Replica.Epoch, 0, time.Time{}, o.Machine
		w.lastTerm, w.after = s.fence.term, s.fence.count
		return
	}
	w.at, w.failed = now.Add(after(err, makeAgain, w.failures)), o.Machine
	w.failures++
	if uncertain(err) && s.term == o.Term {
		s.over(s.term.Number)
	}
}

// part parts runs from the machines that are kept up.
func (p *pass) part(standing []Standing) {
	p.runs, p.reported = map[string][]*Standing{}, map[string]bool{}
	p.standing = slices.DeleteFunc(slices.Clone(standing), func(m Standing) bool { return m.Run != "" })
	for i := range standing {
		m := &standing[i]
		p.reported[m.ID] = p.reported[m.ID] || m.Run != ""
		switch gone := m.State == machine.Destroyed || p.removed(p.now, m.ID); {
		case m.Run == machine.RunCommand && !gone:
			p.commands = append(p.commands, m)
		case m.Run != "" && !gone && !m.goes():
			p.runs[m.Group] = append(p.runs[m.Group], m)
		}
	}
	for _, list := range p.runs {
		slices.SortFunc(list, func(a, b *Standing) int {
			return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Worker, b.Worker))
		})
	}
}

// jobs sees to the groups that run at times. A pause of the rollout does not hold them up.
func (p *pass) jobs() {
	in := p.goal
	if p.blocked {
		in = p.old
	}
	p.ran = maps.Clone(p.want.Runs)
	for name := range p.ran {
		if !p.isJob(p.goal, name) && !p.isJob(p.old, name) {
			delete(p.ran, name) // with the next word
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if p.isJob(in, name) {
			p.job(in[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.runs)) {
		keep := 0 // of a group that is gone
		if p.isJob(in, name) {
			keep = in[name].group.Cron.keep()
		}
		p.tidy(p.runs[name], keep)
	}
}

func (p *pass) isJob(in map[string]*side, name string) bool {
	return in[name] != nil && in[name].group.Cron != nil
}

// tidy removes runs that have ended but for the newest, and those whose worker is being emptied.
func (p *pass) tidy(runs []*Standing, keep int) {
	for _, m := range runs {
		if !m.Over() {
			continue
		}
		if keep--; keep < 0 || m.Leaves {
			p.remove(m, "it has ended, and newer runs are kept")
		}
	}
}

// settle has all know what became of the times of a job.
func (p *pass) settle(group string, r Ran) {
	if p.ran == nil {
		p.ran = map[string]Ran{}
	}
	r.Skipped = fault.Clip(r.Skipped, maxReason)
	p.ran[group] = r
	p.out.Tell = p.begun() || p.out.Tell
}

// job sees to one job.
func (p *pass) job(to *side) {
	g, h := to.group, p.want.Head
	r, known := p.ran[g.Name]
	was := r
	switch rule := g.Cron.rule(); {
	case !known || r.Rule != rule: // what was before it is not made up for
		r = Ran{At: max(r.At, Minute(h.began())), Rule: rule, Off: to.off}
	case r.Off && !to.off:
		r.Off, r.At = false, max(r.At, Minute(h.At))
	default:
		r.Off = to.off
	}
	for _, m := range p.runs[g.Name] {
		if m.Run == machine.RunScheduled && m.Epoch > r.At {
			r.At, r.Skipped = m.Epoch, ""
		}
	}
	w := p.run(g.Name, machine.RunScheduled)
	if known && w.made > r.At {
		r.At, r.Skipped = w.made, ""
	}
	if !known || r != was {
		p.settle(g.Name, r)
		return
	}
	if w.making {
		p.wants = true
	} else if !to.off {
		p.due(to, r, w)
	}
}

// due starts what is due of a job, once: of several times that were missed the newest.
func (p *pass) due(to *side, r Ran, w *runWork) {
	g, c := to.group, to.group.Cron
	at := p.schedule(c)
	if at == nil { // a newer souk took it in, or one that knows more zones
		return
	}
	first := at.Next(r.Time())
	if first.IsZero() || p.waits(first) {
		return
	}
	oldest := p.now.Add(-c.startWithin())
	last := time.Time{}
	for t := at.Next(later(r.Time(), oldest.Add(-1))); !t.IsZero() && !t.After(p.now); t = at.Next(t) {
		last = t
	}
	if last.IsZero() {
		r.At, r.Skipped = Minute(oldest), fmt.Sprintf("what was due at %s could not be started within %v",
			first.Format(time.RFC3339), c.startWithin())
		if w.why != nil {
			r.Skipped += ": " + w.why.Error()
		}
		p.settle(g.Name, r)
		return
	}
	p.wants = true
	for _, m := range p.runs[g.Name] {
		switch on := p.goesOn(m, g); {
		case on && c.overlap() == Forbid:
			r.At, r.Skipped = Minute(last), fmt.Sprintf("nothing was started at %s, as machine %s of worker %s was "+
				"still running (overlap = %s)", last.Format(time.RFC3339), m.ID, m.Worker, Forbid)
			p.settle(g.Name, r)
			return
		case on && c.overlap() == ReplaceThat:
			p.order(m, Hold, "the next run is due, and takes its place")
			return
		case !on && len(g.Config.Mounts) > 0: // it has the volume
			p.remove(m, "the next run is due, and needs its volume")
			return
		}
	}
	if text := notYet(last, w); text != "" && text != r.Skipped {
		r.Skipped = text
		p.settle(g.Name, r)
		return
	}
	replica := p.ofRun(to, machine.RunScheduled, Minute(last))
	if p.startRun(replica, g, w) {
		r.At, r.Skipped = replica.Epoch, ""
		p.settle(g.Name, r)
	}
}

// notYet says why what is due could not be started so far; "": it was not tried.
func notYet(due time.Time, w *runWork) string {
	if w.why == nil {
		return ""
	}
	return fault.Clip(fmt.Sprintf("what is due at %s could not be started yet, and is tried again: %v",
		due.Format(time.RFC3339), w.why), maxReason)
}

// schedule returns when a job is due; nil: its rule cannot be read.
func (p *pass) schedule(c *Cron) *cron.Schedule {
	rule := c.rule()
	if s, read := p.schedules[rule]; read {
		return s
	}
	if len(p.schedules) >= MaxGroups { // of releases that were before
		clear(p.schedules)
	}
	s, err := cron.Parse(c.Schedule, c.Zone)
	if err != nil {
		s = nil
	}
	p.schedules[rule] = s
	return s
}

// goesOn reports whether a run is not over, as far as the group waits for one whose worker is not heard.
func (p *pass) goesOn(m *Standing, g *Group) bool {
	if m.Unheard && g.Lost() != Never && !p.waits(m.Silent.Add(g.LostWithin(p.want.LostAfter))) {
		return false
	}
	return !m.Over()
}

func (p *pass) ofRun(to *side, kind machine.Run, epoch uint64) machine.Replica {
	return machine.Replica{Group: to.group.Name, Epoch: epoch, Spec: to.spec, Release: to.release, Run: kind,
		StopAfter: to.group.stopAfter()}
}

// startRun orders the machine of a run once no other can have made it, and reports whether one has.
func (p *pass) startRun(r machine.Replica, g *Group, w *runWork) (has bool) {
	p.wants = true
	if w.making || p.waits(w.at) || p.full() || !p.begun() {
		return false
	}
	id := RunID(p.want.App, &r, p.term)
	ok, has := p.fresh(g, &r, r.Run == machine.RunCommand, w)
	if has || !ok {
		return has
	}
	p.out.Orders = append(p.out.Orders, Order{Verb: Make, Term: p.term, Machine: id, Replica: r, Why: "it is due"})
	return false
}
