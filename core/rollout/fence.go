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

// A group whose machines are never replaced while their worker is silent needs more than the fleet's word that a slot is
// empty: an order of an earlier steward may be on its way to a worker, and what a worker has made may not be told yet. So
// before a machine is made for such a slot each worker of the cluster obeys the steward's term, and tells what it has then.
// What it has afterwards is known: earlier orders are refused there, and the steward's own end before it counts on them.

// Peer is a worker of the cluster, as long as nobody removed it.
type Peer struct {
	ID    cluster.WorkerID
	Heard bool
}

// Found is a machine of a service that a worker told of when it obeyed.
type Found struct {
	ID string
	machine.Replica
}

// standsFor reports whether it stands for a slot. A run stands for none.
func (x *Found) standsFor(s release.Slot) bool {
	return x.Run == "" && s == release.Slot{Group: x.Group, Index: x.Index}
}

// readAgain is when a worker is read again that told of a machine which the fleet does not have.
const readAgain = time.Second

var obeyAgain = backoff.Doubling{Base: 500 * time.Millisecond, Most: 15 * time.Second}

// fence is what a steward knows of the workers that obey its term.
type fence struct {
	term  cluster.Term // that all of this is of
	reads map[cluster.WorkerID]*reading
	slots map[release.Slot]*fenced
	count uint64 // of calls to obey, in the order in which they began
}

// reading is what a worker told when it obeyed.
type reading struct {
	busy     bool      // it is being asked
	known    bool      // it has obeyed: has is what it had
	asked    uint64    // the newest call, counted over all workers
	began    time.Time // of that
	call     uint64    // that was answered
	has      []Found
	failures int // in a row
	again    time.Time
}

// fenced is the newest machine that was made for a slot in the fence's term.
type fenced struct {
	made  string           // "": none
	at    cluster.WorkerID // that has it; "": the fleet has not told yet
	after uint64           // the newest call when the steward knew that it was made
}

func newFence() fence {
	return fence{reads: map[cluster.WorkerID]*reading{}, slots: map[release.Slot]*fenced{}}
}

// empty reports whether no machine can be up for a slot, apart from those that its machine is to be made beside; else it
// sees to what it needs to know. There is a term.
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

// heeds reports whether a worker obeys the term and has no machine for a slot that the fleet does not have.
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

// askToObey has a worker obey the term and tell what it has, where it can be asked now.
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

// reading returns what a worker told.
func (f *fence) reading(w cluster.WorkerID) *reading {
	return entry(f.reads, w)
}

// fresh reports whether no order of an earlier term can make a machine for a run any more, and whether one of the workers
// has made one. A worker that is not heard counts only where the group's machines are waited for. Each other run which a worker has
// must be known here where the run is a command, which runs alone. There is a term.
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

// Obeyed tells that a worker which was to obey a term has done so, and has these machines of the service, destroyed ones
// left out; or why it has not.
func (s *Steward) Obeyed(now time.Time, t cluster.Term, w cluster.WorkerID, has []Found, err error) {
	s.under--
	if fault.CodeOf(err) == cluster.CodeOldTerm {
		s.office.outbid(now, err)
	}
	r := s.fence.reads[w]
	if t != s.fence.term || r == nil {
		return // of a fence that is no more
	}
	r.busy = false
	if err != nil {
		r.again = now.Add(after(err, obeyAgain, r.failures))
		r.failures++
		return
	}
	r.known, r.call, r.has, r.failures, r.again = true, r.asked, has, 0, time.Time{}
}

// note notes at which workers the machines are that were made behind the fence, and forgets workers that were removed
// from the cluster.
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

// ended notes how a make ended. Where nobody knows whether there is a machine now, the term is over: in the next one all
// workers refuse the order if it is still on its way, and tell of the machine if it is made.
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

// Silent lists the workers that no machine is made without for an empty slot of a group, as they are not heard and may
// have one: none where others take the place of what they have.
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

// Awaits says in one sentence what no machine is made without for a slot of a group, as Silent lists it.
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
