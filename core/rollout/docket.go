package rollout

import (
	"slices"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// todo is what one stage of a look wants done.
type todo struct {
	acts  []act
	waits bool // there is more to do: it is under way, or its time or its place has not come
}

// act is something to be done to a machine that stands, or a machine that is to be made for a slot.
type act struct {
	verb    Verb
	machine *release.Standing // nil: of Make
	slot    release.Slot      // of Make, as what follows
	to      *side
	asleep  bool // it is not started
	yields  bool // of Remove: a machine of another group needs what it has
	why     string
}

// isWaitedFor reports whether a service has something to do as long as an act is not carried out. What is to go from a worker that
// is not heard goes when it is, and so ends a command that is not to run any more.
func (a act) isWaitedFor() bool {
	switch a.verb {
	case Remove:
		return !a.machine.Unheard
	case Hold:
		return a.machine.Run != machine.RunCommand
	}
	return true
}

func (t *todo) do(v Verb, m *release.Standing, why string) {
	t.acts = append(t.acts, act{verb: v, machine: m, why: why})
}

func (t *todo) remove(m *release.Standing, why string) { t.do(Remove, m, why) }

// docket makes orders of what stages want done, in the steward's term, and asks for one where there is none.
type docket struct {
	look   *look
	out    Next
	wants  bool // something is to be done, now or later
	outbid bool // it begins no term yet, as another member has outbid it
}

// give makes orders of what a stage wants done, as far as that can be ordered now.
func (d *docket) give(t todo) {
	d.wants = d.wants || t.waits || slices.ContainsFunc(t.acts, act.isWaitedFor)
	for i := range t.acts {
		if a := &t.acts[i]; a.verb == Make {
			d.orderMake(a)
		} else {
			d.order(a)
		}
	}
}

// orderMake orders a machine for a slot.
func (d *docket) orderMake(a *act) {
	s, to, spec := d.look.memory, a.to, a.to.spec
	w := s.slot(a.slot)
	w.begin(spec, d.look.clock.now)
	if w.makes(spec) || w.making == mostMakes || w.spec == spec && d.look.clock.waits(w.at) || d.full() {
		return
	}
	epoch, ok := d.nextEpoch(a.slot, w)
	if !ok && !s.office.term.IsZero() {
		s.office.endTerm()
	}
	if !d.begun() || to.group.Lost() == release.Never && !d.empty(a.slot, to.group) {
		return
	}
	term := s.office.term
	o := Order{Verb: Make, Term: term, Machine: a.slot.MachineID(d.look.want.App, epoch, term.Member), Why: a.why,
		Home: w.home, Only: w.only, Asleep: a.asleep && to.group.Wakeable(), Apart: to.apart,
		Replica: machine.Replica{Group: a.slot.Group, Index: a.slot.Index, Epoch: epoch,
			Spec: spec, Release: to.release, StopAfter: to.group.StopsAfter()}}
	if h := d.look.want.Head; to.release == h.Release {
		o.Booked, o.Token = h.Booking.HeldFor(d.look.clock.now, a.slot)
	}
	d.out.Orders = append(d.out.Orders, o)
}

// nextEpoch returns the epoch of the next machine of a slot; false: the term has none left.
func (d *docket) nextEpoch(slot release.Slot, w *slotWork) (uint64, bool) {
	seen, known := w.epoch, w.asked
	for _, m := range d.look.seen.by[slot] {
		seen, known = max(seen, m.Epoch), true
	}
	if floor := d.look.memory.floor; !known && floor > 0 {
		seen, known = floor-1, true
	}
	return nextEpoch(d.look.memory.office.term, seen, known)
}

// order orders something of a machine that stands, where its worker can be asked.
func (d *docket) order(a *act) {
	m := a.machine
	w := d.look.memory.machine(m.ID)
	if m.Unheard || w.busy || d.look.clock.waits(w.at) || d.full() || !d.begun() {
		return
	}
	d.out.Orders = append(d.out.Orders, Order{Verb: a.verb, Term: d.look.memory.office.term, Machine: m.ID,
		Replica: m.Replica, Worker: m.Worker, Instance: m.Instance, Why: a.why, Kill: a.verb == Remove && !m.Up(),
		Yields: a.yields})
}

// full reports whether as much is under way as may be.
func (d *docket) full() bool { return d.look.memory.under+len(d.out.Orders) >= mostOrders }

// begun reports whether there is a term to give orders in, and asks for one where there is none.
func (d *docket) begun() bool {
	switch s := d.look.memory; {
	case s.office.term.IsZero() && d.look.clock.waits(s.office.rivalry.until):
		d.outbid = true
	case s.office.term.IsZero():
		d.out.Term = max(s.office.least, 1)
	case s.office.resting:
		d.out.Term = s.office.term.Number
	default:
		return true
	}
	return false
}

// tell has written what the look came to, and reports whether that can be: there is a term.
func (d *docket) tell() bool {
	d.out.Tell = d.begun()
	return d.out.Tell
}

// tellProgress has the rollout's progress written.
func (d *docket) tellProgress(next release.Progress) {
	next.At = d.look.clock.now.UTC()
	if d.tell() {
		d.look.course.progress = next
	}
}

// close returns what the steward does next.
func (d *docket) close() Next {
	s := d.look.memory
	s.under += len(d.out.Obey)
	d.out.Busy = s.under > 0 || len(d.out.Orders) > 0 || d.out.Term > 0 || d.wants || d.outbid
	d.out.Progress, d.out.Again = d.look.course.progress, d.look.clock.again
	if d.out.Term > 0 || d.out.Tell {
		d.out.Orders = nil
		return d.out
	}
	for i := range d.out.Orders {
		s.enter(d.look.clock.now, &d.out.Orders[i])
	}
	return d.out
}
