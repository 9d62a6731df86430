package rollout

import (
	"slices"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// todo is what one stage of a look wants to be done.
type todo struct {
	acts  []act
	waits bool // more is left to do: it is in progress, or not possible yet
}

// act is an action on an existing machine, or on a machine to be made for a slot.
type act struct {
	verb    Verb
	machine *release.Standing // nil for Make
	slot    release.Slot      // of Make, like the next fields
	to      *side
	asleep  bool // the machine is not started
	yields  bool // of Remove: a machine of another group needs what it has
	why     string
}

// isWaitedFor reports whether the service is busy until the act is carried out. A removal at an unreachable worker is
// done when the worker is back, and so is a stop of a command that must not run any more.
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

// docket turns the todos of stages into orders, in the steward's term, and asks for a term if there is none.
type docket struct {
	look   *look
	out    Next
	wants  bool // there is something to do, now or later
	outbid bool // it begins no term yet, as another member has outbid it
}

// give turns a todo into orders, as far as they can be given now.
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

// nextEpoch returns the epoch of a slot's next machine; false: the term has none left.
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

// order orders an act on an existing machine, if its worker can be reached.
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

// full reports whether the bound of orders in progress is reached.
func (d *docket) full() bool { return d.look.memory.under+len(d.out.Orders) >= mostOrders }

// begun reports whether there is a term for orders, and asks for one otherwise.
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

// tell asks for the notes to be written, and reports whether there is a term to do so.
func (d *docket) tell() bool {
	d.out.Tell = d.begun()
	return d.out.Tell
}

// tellProgress asks for the rollout's progress to be written.
func (d *docket) tellProgress(next release.Progress) {
	next.At = d.look.clock.now.UTC()
	if d.tell() {
		d.look.course.progress = next
	}
}

// close returns the steward's next actions.
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
