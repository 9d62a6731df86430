package rollout

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/backoff"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of a steward.
const (
	mostOrders = 64          // of one service under way
	mostMakes  = 3           // of one slot: what is wanted can change while one waits for its image
	believe    = time.Minute // that what was ordered is so, where the fleet has not told of it yet
	upFor      = time.Minute // that a machine must run so that its next death is a first one
	// soakFor is for how long a machine without checks must be up before the one goes whose place it takes: longer than a
	// program runs that cannot.
	soakFor = 3 * time.Second
)

// The times until something is tried again that failed.
var (
	makeAgain  = backoff.Doubling{Base: time.Second, Most: 15 * time.Second}
	startAgain = backoff.Doubling{Base: time.Second, Most: time.Minute}
)

// Want is what is wanted of the service of an app.
type Want struct {
	App     string // the app's own id
	Head    *Head
	Release *Release // the head's
	Held    []Held   // as the steward has last written
	// LostAfter is Group.LostAfter of the groups that do not say it; 0: DefaultLostAfter. It follows from the pace at
	// which members miss each other.
	LostAfter time.Duration
	// Workers are all workers of the cluster, where the release fences (Release.Fences).
	Workers []Peer
}

// Standing is a machine of a service, as the fleet knows it.
type Standing struct {
	ID, Instance string
	machine.Replica
	Worker   cluster.WorkerID
	State    machine.State
	Updated  time.Time // when its worker last told of it, by that one's clock
	Unheard  bool      // its worker cannot be asked
	Silent   time.Time // since when it has not been heard, where it is not
	Ready    bool      // it is up, and the checks that requests depend on have passed
	Died     bool      // it ended by itself, and its worker does not start it again
	Loops    bool      // when it last ended by itself, that was the fifth time in 5 minutes
	Cordoned bool      // no request goes there
}

// slot returns which slot it stands for.
func (m *Standing) slot() Slot { return Slot{m.Group, m.Index} }

// leaves reports whether the machine is going, or gone.
func (m *Standing) leaves() bool {
	return m.State == machine.Destroying || m.State == machine.Destroyed
}

// up reports whether its program runs, or has just been told to end.
func (m *Standing) up() bool {
	return m.State == machine.Started || m.State == machine.Stopping || m.State == machine.Restarting ||
		m.State == machine.Suspending
}

// asleep reports whether the machine is down and may be: somebody stopped it, or it rests until a request comes.
func (m *Standing) asleep() bool {
	return (m.State == machine.Stopped || m.State == machine.Suspended) && !m.Died
}

// Verb is what is to be done to a machine of a service.
type Verb string

// The verbs of orders.
const (
	Make   Verb = "make"   // a machine for a slot, at whichever worker takes it
	Remove Verb = "remove" // destroy one; requests that it has are answered before
	Start  Verb = "start"  // one that died
	Hold   Verb = "hold"   // stop one that dies again and again, and let no request start it
)

// Order is one thing to be done, by the steward's term.
type Order struct {
	Verb     Verb
	Term     cluster.Term
	Machine  string
	Replica  machine.Replica
	Worker   cluster.WorkerID // that has it; of Make ""
	Instance string           // that it must still have; of Make ""
	Kill     bool             // of Remove: it is not up, so nothing is waited for
	Why      string           // one sentence
}

// Slot returns which slot an order is for.
func (o *Order) Slot() Slot { return Slot{o.Replica.Group, o.Replica.Index} }

// Next is what a steward does next.
type Next struct {
	Orders []Order
	// Obey lists the workers that are to obey the steward's term and to tell what machines of the service they have.
	// Each is under way until Obeyed is told how that ended.
	Obey []cluster.WorkerID
	// Term is the least number of a term that the steward must begin first, then to look again; 0: it has one, or needs
	// none.
	Term uint64
	// Held is what the steward must write before it looks again, where Hold says so: which machines are held.
	Held  []Held
	Hold  bool
	Busy  bool      // there is something to do, or under way
	Again time.Time // when to look again where nothing changes; zero: there is no need
}

// Steward carries one service. It holds no truth: another one that begins with nothing does the same. It is not safe for
// concurrent use.
type Steward struct {
	term     cluster.Term
	resting  bool   // it has said that it has done all
	least    uint64 // the number of its next term
	slots    map[Slot]*slotWork
	floor    uint64 // above the epochs that it asked for of slots that it has forgotten
	machines map[string]*machineWork
	under    int // orders under way, and workers that are to obey
	fence    fence
}

// slotWork is what a steward remembers of a slot.
type slotWork struct {
	epoch    uint64    // the newest that it has asked for
	asked    bool      // it has asked for one
	making   int       // orders under way
	spec     string    // of the newest
	failures int       // of makes, in a row
	at       time.Time // it makes none before
	why      error     // the newest failure; nil: none since one was made
}

// makes reports whether a machine of a spec is being made.
func (w *slotWork) makes(spec string) bool { return w.making > 0 && w.spec == spec }

// machineWork is what it remembers of a machine.
type machineWork struct {
	busy    bool      // an order is under way
	done    time.Time // when the last one was carried out; zero: it failed, or there was none
	verb    Verb      // of that
	up      time.Time // since when it is seen ready; zero: it is not
	starts  int       // in a row
	started time.Time
	at      time.Time // nothing is tried before
}

// NewSteward returns a steward that has no term yet. seen is the highest that is known of the service.
func NewSteward(seen cluster.Term) *Steward {
	return &Steward{least: seen.Number + 1, slots: map[Slot]*slotWork{}, machines: map[string]*machineWork{},
		fence: newFence()}
}

// Begin takes the steward's term, which all can know of by now.
func (s *Steward) Begin(t cluster.Term) { s.term, s.resting = t, false }

// Rest takes that all can know that the steward has done all. It must begin again before its next order; its term may be
// the same.
func (s *Steward) Rest() { s.resting = true }

// Term returns the term; zero: it has begun none.
func (s *Steward) Term() cluster.Term { return s.term }

// Step says what to do for what is wanted, with the machines that stand. Each order is under way until Done is told how
// it ended.
func (s *Steward) Step(now time.Time, want *Want, standing []Standing) Next {
	p := pass{Steward: s, now: now, want: want, standing: standing, by: map[Slot][]*Standing{},
		lost: map[*Standing]bool{}}
	known := make(map[string]bool, len(standing))
	for i := range standing {
		m := &standing[i]
		known[m.ID] = true
		if !m.leaves() && !s.removed(now, m.ID) {
			p.by[m.slot()] = append(p.by[m.slot()], m)
		}
		if t := m.Epoch >> epochBits; t > s.term.Number { // a steward of a later term was here
			s.over(t)
		}
	}
	p.notice(standing)
	s.fence.note(standing, want.Workers)
	p.holds()
	p.groups()
	p.surplus()
	s.forget(now, known, &p)
	s.under += len(p.out.Obey)
	p.out.Busy = s.under > 0 || len(p.out.Orders) > 0 || p.out.Term > 0 || p.out.Hold || p.wants
	if p.out.Term > 0 || p.out.Hold {
		p.out.Orders = nil
		return p.out
	}
	for i := range p.out.Orders {
		s.enter(&p.out.Orders[i])
	}
	return p.out
}

// removed reports whether a machine was removed a moment ago, and the fleet has not told of that.
func (s *Steward) removed(now time.Time, id string) bool {
	w := s.machines[id]
	return w != nil && w.verb == Remove && !w.done.IsZero() && now.Before(w.done.Add(believe))
}

// forget drops what is remembered of machines and slots that are over.
func (s *Steward) forget(now time.Time, known map[string]bool, p *pass) {
	maps.DeleteFunc(s.machines, func(id string, w *machineWork) bool {
		return !w.busy && !known[id] && (w.done.IsZero() || !now.Before(w.done.Add(believe)))
	})
	maps.DeleteFunc(s.slots, func(slot Slot, w *slotWork) bool {
		over := w.making == 0 && !p.wanted[slot] && len(p.by[slot]) == 0
		if over && w.asked {
			s.floor = max(s.floor, w.epoch+1)
		}
		return over
	})
}

// enter notes that an order is under way.
func (s *Steward) enter(o *Order) {
	s.under++
	if o.Verb == Make {
		w := s.slot(o.Slot())
		w.making++
		w.asked, w.epoch, w.spec = true, o.Replica.Epoch, o.Replica.Spec
		return
	}
	w := s.machine(o.Machine)
	w.busy, w.verb, w.done = true, o.Verb, time.Time{}
}

func (s *Steward) slot(x Slot) *slotWork {
	w := s.slots[x]
	if w == nil {
		w = &slotWork{}
		s.slots[x] = w
	}
	return w
}

func (s *Steward) machine(id string) *machineWork {
	w := s.machines[id]
	if w == nil {
		w = &machineWork{}
		s.machines[id] = w
	}
	return w
}

// Done tells how an order ended: nil is that it was carried out.
func (s *Steward) Done(now time.Time, o *Order, err error) {
	s.under--
	if e := fault.As(err); e != nil && e.Code == CodeOldTerm {
		s.outbid(e)
	}
	if o.Verb == Make {
		s.ended(o, err)
		w := s.slot(o.Slot())
		if w.making--; o.Replica.Spec != w.spec {
			return // what is wanted now is another thing
		}
		w.why = err
		if err == nil {
			w.failures, w.at = 0, time.Time{}
			return
		}
		w.at = now.Add(after(err, makeAgain, w.failures))
		w.failures++
		return
	}
	w := s.machine(o.Machine)
	w.busy = false
	if err == nil {
		w.done = now
		if o.Verb == Start {
			w.started = now
		}
		return
	}
	w.at = now.Add(after(err, startAgain, w.starts))
	w.starts++
}

// after returns the time until something is tried again.
func after(err error, d backoff.Doubling, failures int) time.Duration {
	wait := d.After(failures)
	if e := fault.As(err); e != nil {
		wait = max(wait, e.RetryAfter)
	}
	return wait
}

// Why returns why the last machine for a slot could not be made; nil: none failed, or one was made since.
func (s *Steward) Why(slot Slot) error {
	if w := s.slots[slot]; w != nil {
		return w.why
	}
	return nil
}

// pass is one look at a service.
type pass struct {
	*Steward
	now      time.Time
	want     *Want
	standing []Standing
	by       map[Slot][]*Standing // machines that stay, by slot
	held     map[string]*Held     // by machine
	lost     map[*Standing]bool   // machines that others take the places of
	wanted   map[Slot]bool
	soak     time.Duration // of the group that is looked at
	stalled  bool          // a machine of that group is held, and no other is replaced until that is over
	wants    bool          // something is to be done, now or later
	out      Next
}

// groups looks at each slot that is wanted.
func (p *pass) groups() {
	p.wanted = map[Slot]bool{}
	for i := range p.want.Release.Groups {
		g := &p.want.Release.Groups[i]
		spec := g.Spec(p.want.Release.Secrets, p.want.Head.Restarted)
		n := p.want.Head.Count(g)
		p.lose(g, n)
		p.soak = soakFor
		if g.Config.HasChecks() {
			p.soak = 0
		}
		p.stalled = false
		replacing := p.settling(g, spec, n)
		for index := range n {
			slot := Slot{g.Name, index}
			p.wanted[slot] = true
			p.look(slot, g, spec, &replacing)
		}
	}
}

// settling counts the slots of a group whose machine of the wanted spec is not up yet, beside one of another: their
// number bounds how many more are replaced.
func (p *pass) settling(g *Group, spec string, n int) (count int) {
	for index := range n {
		best, old := p.split(Slot{g.Name, index}, g, spec)
		w := p.slots[Slot{g.Name, index}]
		if w != nil && w.makes(spec) && len(old) > 0 || len(best) > 0 && !p.replaces(best[0], len(old) > 0) {
			count++
			p.stalled = p.stalled || len(best) > 0 && p.held[best[0].ID] != nil
		}
	}
	return count
}

// replaces reports whether a machine is what it is to be, so that others may go for it: it is not held, and if there are
// others it has been up for a while.
func (p *pass) replaces(m *Standing, others bool) bool {
	if p.held[m.ID] != nil || !settled(m) {
		return false
	}
	if !m.Ready || !others || p.soak == 0 {
		return true
	}
	return !p.waits(p.machine(m.ID).up.Add(p.soak))
}

// notice notes since when machines are ready.
func (p *pass) notice(standing []Standing) {
	for i := range standing {
		m := &standing[i]
		switch w := p.machines[m.ID]; {
		case !m.Ready && w != nil:
			w.up = time.Time{}
		case m.Ready && (w == nil || w.up.IsZero()):
			p.machine(m.ID).up = p.now
		}
	}
}

// settled reports whether a machine is what it is to be: it is up, or rests.
func settled(m *Standing) bool { return m.Ready || m.asleep() || m.Unheard }

// lose notes which machines of a group are lost: their worker has not been heard for long enough, and another may be made.
func (p *pass) lose(g *Group, n int) {
	if g.Lost() == Never {
		return
	}
	for index := range n {
		for _, m := range p.by[Slot{g.Name, index}] {
			if m.Unheard && !p.waits(m.Silent.Add(g.LostWithin(p.want.LostAfter))) {
				p.lost[m] = true
			}
		}
	}
}

// split returns the machines of a slot that are of a spec, the one that stays first, and the others; those that are lost
// left out. What stays is the one that is up, and of several the oldest: it was there before others took it for lost.
// Where they are told apart by SOUK_FENCE the newest stays, since what they write to refuses the others.
func (p *pass) split(s Slot, g *Group, spec string) (of, others []*Standing) {
	for _, m := range p.by[s] {
		switch {
		case p.lost[m]:
		case m.Spec == spec:
			of = append(of, m)
		default:
			others = append(others, m)
		}
	}
	age := 1
	if g.Lost() == Fenced {
		age = -1
	}
	slices.SortFunc(of, func(a, b *Standing) int {
		return cmp.Or(-compareBool(a.Ready, b.Ready), compareBool(a.Unheard, b.Unheard), compareBool(a.Died, b.Died),
			compareBool(a.asleep(), b.asleep()), age*cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Worker, b.Worker))
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

// look looks at one slot. replacing counts the slots of its group that are being replaced.
func (p *pass) look(slot Slot, g *Group, spec string, replacing *int) {
	of, others := p.split(slot, g, spec)
	switch {
	case len(of) == 0 && len(others) == 0:
		p.make(slot, spec, "it has no machine")
	case len(of) == 0 && g.Single:
		p.vacate(slot, others)
	case len(of) == 0:
		p.wants = p.wants || !p.stalled
		ofUse := slices.ContainsFunc(others, settled)
		if *replacing == 0 || !ofUse {
			*replacing++
			p.make(slot, spec, "its machine is of another release")
		}
		p.revive(others[0])
	default:
		for _, twin := range of[1:] {
			p.remove(twin, "another machine stands for "+slot.String())
		}
		if p.hold(of[0]) {
			return
		}
		if p.replaces(of[0], len(others) > 0) {
			for _, m := range others {
				p.remove(m, "one of the newer release stands for "+slot.String())
			}
		} else {
			p.wants = p.wants || len(others) > 0
			for _, m := range others {
				p.revive(m)
			}
		}
		p.revive(of[0])
	}
}

// revive has a machine started that died.
func (p *pass) revive(m *Standing) {
	w := p.machines[m.ID]
	if !m.Died {
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
	p.order(m, Start, "it died")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// make orders a machine for a slot.
func (p *pass) make(slot Slot, spec, why string) {
	w := p.slot(slot)
	p.wants = true
	if w.makes(spec) || w.making == mostMakes || w.spec == spec && p.waits(w.at) || p.full() {
		return
	}
	seen, known := w.epoch, w.asked
	for _, m := range p.by[slot] {
		seen, known = max(seen, m.Epoch), true
	}
	if !known && p.floor > 0 {
		seen, known = p.floor-1, true
	}
	epoch, ok := nextEpoch(p.term, seen, known)
	if !ok && !p.term.IsZero() {
		p.over(p.term.Number)
	}
	if !p.begun() {
		return
	}
	g := p.want.Release.Group(slot.Group)
	if g.Lost() == Never && !p.empty(slot, g) {
		return
	}
	id := slot.MachineID(p.want.App, epoch)
	p.out.Orders = append(p.out.Orders, Order{Verb: Make, Term: p.term, Machine: id, Why: why,
		Replica: machine.Replica{Group: slot.Group, Index: slot.Index, Epoch: epoch, Spec: spec,
			Release: p.want.Head.Release, StopAfter: g.stopAfter()}})
}

// remove orders a machine to be destroyed.
func (p *pass) remove(m *Standing, why string) {
	p.wants = p.wants || !m.Unheard
	p.order(m, Remove, why)
}

// order orders something of a machine that stands, where its worker can be asked.
func (p *pass) order(m *Standing, v Verb, why string) {
	w := p.machine(m.ID)
	if m.Unheard || w.busy || p.waits(w.at) || p.full() {
		return
	}
	if !p.begun() {
		return
	}
	p.out.Orders = append(p.out.Orders, Order{Verb: v, Term: p.term, Machine: m.ID, Replica: m.Replica,
		Worker: m.Worker, Instance: m.Instance, Why: why, Kill: v == Remove && !m.up()})
}

// waits reports whether it is too early for something, and has it looked at then.
func (p *pass) waits(at time.Time) bool {
	if !p.now.Before(at) {
		return false
	}
	if p.out.Again.IsZero() || at.Before(p.out.Again) {
		p.out.Again = at
	}
	return true
}

// full reports whether as much is under way as may be.
func (p *pass) full() bool { return p.under+len(p.out.Orders) >= mostOrders }

// surplus removes the machines of slots that are not wanted.
func (p *pass) surplus() {
	for _, slot := range slices.SortedFunc(maps.Keys(p.by), Slot.Compare) {
		if p.wanted[slot] {
			continue
		}
		for _, m := range p.by[slot] {
			p.remove(m, slot.String()+" is not wanted any more")
		}
	}
}
