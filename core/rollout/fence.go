package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/machine"
)

// A group whose machines are not replaced while their worker is silent needs more than the members' view to know that
// a slot is empty: an order of an earlier steward may still be on its way, and a worker may have made a machine that
// is not reported yet. So before a machine is made for such a slot, each worker of the cluster obeys the steward's
// term and reports its machines. From then on its machines are known: it refuses earlier orders, and the steward's own
// orders end before it relies on the report.

// Peer is a worker of the cluster, until it is removed.
type Peer struct {
	ID    cluster.WorkerID
	Heard bool
}

// Found is a machine of a service that a worker reported when it obeyed.
type Found struct {
	ID string
	machine.Replica
}

// standsFor reports whether the machine stands for a slot. A run stands for none.
func (x *Found) standsFor(s release.Slot) bool {
	return x.Run == "" && s == release.Slot{Group: x.Group, Index: x.Index}
}

// readAgain is the pause before a worker is asked again that reported a machine which the members do not know.
const readAgain = time.Second

var obeyAgain = backoff.Doubling{Base: 500 * time.Millisecond, Most: 15 * time.Second}

// fence is what a steward knows about the workers that obey its term.
type fence struct {
	term  cluster.Term // the term of everything else here
	reads map[cluster.WorkerID]*reading
	slots map[release.Slot]*fenced
	count uint64 // number of calls to obey, in the order in which they began
}

// reading is a worker's report when it obeyed.
type reading struct {
	busy     bool      // a call is in progress
	known    bool      // it has obeyed: has is its report
	asked    uint64    // number of the newest call
	began    time.Time // when the newest call began
	call     uint64    // number of the newest answered call
	has      []Found
	failures int // failed calls in a row
	again    time.Time
}

// fenced is the newest machine made for a slot in the fence's term.
type fenced struct {
	made  string           // its ID; "": none
	at    cluster.WorkerID // its worker; "": not reported yet
	after uint64           // number of the newest call when the steward learned that it was made
}

func newFence() fence {
	return fence{reads: map[cluster.WorkerID]*reading{}, slots: map[release.Slot]*fenced{}}
}

// empty reports whether no machine can be up for a slot, except those that the new one may run beside. If that is
// unknown, it asks the workers. There must be a term.
func (d *docket) empty(slot release.Slot, g *release.Group) bool {
	l := d.look
	if l.memory.slot(slot).making > 0 || slices.ContainsFunc(l.seen.kept, func(m release.Standing) bool {
		return m.Slot() == slot && m.State != machine.Destroyed && !l.memory.removed(l.clock.now, m.ID) &&
			(g.Single || m.Unheard || m.Goes())
	}) {
		return false
	}
	entry(l.memory.fenceNow().slots, slot)
	ok := true
	for _, w := range l.want.Workers {
		ok = d.heeds(w, slot) && ok
	}
	return ok
}

// heeds reports whether a worker obeys the term and has no unreported machine for a slot.
func (d *docket) heeds(w Peer, slot release.Slot) bool {
	l := d.look
	r, last := l.memory.fence.reading(w.ID), l.memory.fence.slots[slot]
	obeys := r.known && (last.made == "" || last.at != "" && last.at != w.ID || r.call > last.after)
	hides := slices.ContainsFunc(r.has, func(x Found) bool {
		return x.standsFor(slot) && !l.memory.removed(l.clock.now, x.ID) &&
			!slices.ContainsFunc(l.seen.kept, func(m release.Standing) bool { return m.ID == x.ID })
	})
	switch {
	case obeys && !hides:
		return true
	case !obeys || !l.clock.waits(r.began.Add(readAgain)):
		d.askToObey(w, r)
	}
	return false
}

// askToObey asks a worker to obey the term and to report its machines, if it can be reached now.
func (d *docket) askToObey(w Peer, r *reading) {
	if !w.Heard || r.busy || d.look.clock.waits(r.again) {
		return
	}
	f := &d.look.memory.fence
	f.count++
	r.busy, r.began, r.asked = true, d.look.clock.now, f.count
	d.out.Obey = append(d.out.Obey, w.ID)
}

// fenceNow returns the fence of the term.
func (s *Steward) fenceNow() *fence {
	if s.fence.term != s.office.term {
		s.fence = newFence()
		s.fence.term = s.office.term
	}
	return &s.fence
}

// reading returns a worker's report.
func (f *fence) reading(w cluster.WorkerID) *reading {
	return entry(f.reads, w)
}

// fresh reports whether no order of an earlier term can still make a machine for a run, and whether a worker has made
// one. An unreachable worker matters only if the group's machines are waited for. A command runs alone, so each other
// run at a worker must be known, too. There must be a term.
func (r *runs) fresh(g *release.Group, run *machine.Replica, last *runWork) (ok, has bool) {
	l, f := r.look, r.look.memory.fenceNow()
	alone := run.Run == machine.RunCommand
	ok = true
	for _, w := range l.want.Workers {
		told := f.reading(w.ID)
		has = has || slices.ContainsFunc(told.has, func(x Found) bool { return sameRun(&x.Replica, run) })
		hides := alone && slices.ContainsFunc(told.has, func(x Found) bool {
			return x.Run != "" && !sameRun(&x.Replica, run) && !l.seen.reported[x.ID] &&
				!l.memory.removed(l.clock.now, x.ID)
		})
		untold := alone && last.last != "" && !l.seen.reported[last.last] && last.lastTerm == f.term &&
			told.call <= last.after
		if told.known && !hides && !untold || !w.Heard && g.Lost() != release.Never {
			continue
		}
		ok = false
		if !hides || !l.clock.waits(told.began.Add(readAgain)) {
			r.docket.askToObey(w, told)
		}
	}
	return ok, has
}

// Obeyed reports that a worker has obeyed a term, with its machines of the service except destroyed ones, or why it
// has not.
func (s *Steward) Obeyed(now time.Time, t cluster.Term, w cluster.WorkerID, has []Found, err error) {
	s.under--
	if fault.CodeOf(err) == cluster.CodeOldTerm {
		s.office.outbid(now, err)
	}
	r := s.fence.reads[w]
	if t != s.fence.term || r == nil {
		return // of an earlier fence
	}
	r.busy = false
	if err != nil {
		r.again = now.Add(after(err, obeyAgain, r.failures))
		r.failures++
		return
	}
	r.known, r.call, r.has, r.failures, r.again = true, r.asked, has, 0, time.Time{}
}

// note records at which workers the machines made in the fence's term are, and forgets workers that were removed from
// the cluster.
func (f *fence) note(standing []release.Standing, workers []Peer) {
	if len(f.reads) == 0 {
		return
	}
	maps.DeleteFunc(f.reads, func(id cluster.WorkerID, r *reading) bool {
		return !slices.ContainsFunc(workers, func(w Peer) bool { return w.ID == id })
	})
	for i := range standing {
		if x := f.slots[standing[i].Slot()]; x != nil && x.made == standing[i].ID {
			x.at = standing[i].Worker
		}
	}
}

// ended handles the end of a make. If it is uncertain whether a machine was made, the term ends: in the next term all
// workers refuse the order if it is still on its way, and report the machine if it was made.
func (s *Steward) ended(o *Order, err error) {
	x := s.fence.slots[o.Slot()]
	switch {
	case x == nil || o.Term != s.fence.term:
	case err == nil:
		*x = fenced{made: o.Machine, after: s.fence.count}
	case uncertain(err) && s.office.term == o.Term:
		s.office.endTerm()
	}
}

// uncertain reports whether a make that failed may have made a machine. A refusal says that it has not.
func uncertain(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.Denied, fault.NotFound, fault.Conflict, fault.Precondition, fault.Exhausted:
		return false
	}
	return true
}

// Silent lists the unreachable workers that a group waits for before it makes a machine for an empty slot, as one of
// them may have it. It is empty if the group replaces lost machines.
func Silent(g *release.Group, workers []Peer) (ids []cluster.WorkerID) {
	if g.Lost() != release.Never {
		return nil
	}
	for _, w := range workers {
		if !w.Heard {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// Awaits says in one sentence which workers a group waits for before it makes a slot's machine, as listed by Silent.
func Awaits(slot release.Slot, silent []cluster.WorkerID) string {
	const most = 3
	names := make([]string, 0, most)
	for _, w := range silent[:min(len(silent), most)] {
		names = append(names, string(w))
	}
	list, is, it := "worker "+strings.Join(names, ", "), "is", "it"
	if len(silent) > 1 {
		list, is, it = "workers "+strings.Join(names, ", "), "are", "each of them"
	}
	if n := len(silent) - most; n > 0 {
		list = fmt.Sprintf("%s and %d more", list, n)
	}
	return fmt.Sprintf("no machine is made for %s while %s %s not heard, as %s may have one; if %s never comes back, "+
		"remove it: souk node rm %s", slot, list, is, it, it, names[0])
}
