package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/machine"
)

// Bounds of a steward.
const (
	mostOrders = release.MaxBooked // of one service under way
	mostMakes  = 3                 // of one slot: what is wanted can change while one waits for its image
	believe    = time.Minute       // that what was ordered is so, where the fleet has not told of it yet
	upFor      = time.Minute       // that a machine must run so that its next death is a first one
)

// The times until something is tried again that failed.
var (
	makeAgain  = backoff.Doubling{Base: time.Second, Most: 15 * time.Second}
	startAgain = backoff.Doubling{Base: time.Second, Most: time.Minute}
)

// Want is what is wanted of the service of an app.
type Want struct {
	App           string // the app's own id
	Head          *release.Head
	Release       *release.Release // the head's
	Before        *release.Release // that of Head.Before; nil: there is none, or it is not here
	release.Notes                  // as the steward has last written
	// LostAfter is Group.LostAfter of the groups that do not say it; 0: DefaultLostAfter. It follows from the pace at
	// which members miss each other.
	LostAfter time.Duration
	// Places are the workers at which machines can be made; nil: those that take the place of others are made where those are.
	Places Places
	// Workers are all workers of the cluster, where a release that may be in force fences (Release.Fences).
	Workers []Peer
}

// WantOf returns what a steward reads of a service, whose app has an id of its own.
func WantOf(s *release.Service, id string) *Want {
	return &Want{App: id, Head: s.Head, Release: s.Release, Before: s.Before, Notes: s.Notes}
}

// Verb is what is to be done to a machine of a service.
type Verb string

// The verbs of orders.
const (
	Make   Verb = "make"   // a machine for a slot, at whichever worker takes it
	Remove Verb = "remove" // destroy one; requests that it has are answered before
	Start  Verb = "start"  // one that died
	Hold   Verb = "hold"   // stop one that dies again and again, and let no request start it
	Try    Verb = "try"    // start one that is held, and let requests go there
	Admit  Verb = "admit"  // let requests go to one that was made without any
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
	Home     cluster.WorkerID // of Make: the worker where it is liked best; "": none
	Only     bool             // of Make: it is made at Home or not at all
	Booked   cluster.WorkerID // of Make: the worker that holds room for it under Token; "": none
	Token    string
	Asleep   bool   // of Make: it is not started
	Apart    bool   // of Make: no request goes there before it is admitted
	Yields   bool   // of Remove: a machine of another group needs what it has
	Why      string // one sentence
}

// Slot returns which slot an order is for.
func (o *Order) Slot() release.Slot {
	return release.Slot{Group: o.Replica.Group, Index: o.Replica.Index}
}

// Next is what a steward does next.
type Next struct {
	Orders []Order
	// Obey lists the workers that are to obey the steward's term and to tell what machines of the service they have.
	// Each is under way until Obeyed is told how that ended.
	Obey []cluster.WorkerID
	// Term is the least number of a term that the steward must begin first, then to look again; 0: it has one, or needs
	// none.
	Term uint64
	// Notes are what the steward must write before it looks again, where Tell says so.
	release.Notes
	Tell  bool
	Busy  bool      // there is something to do, or under way
	Again time.Time // when to look again where nothing changes; zero: there is no need
}

// Steward carries one service. It holds no truth: another one that begins with nothing does the same. It is not safe for
// concurrent use.
type Steward struct {
	office   office
	reasoned time.Time // when Next.Unmade was last another one
	slots    map[release.Slot]*slotWork
	floor    uint64 // above the epochs that it asked for of slots that it has forgotten
	machines map[string]*machineWork
	runs     runMemory
	under    int // orders under way, and workers that are to obey
	ofRuns   int // those of them that are orders of runs
	fence    fence
	stage    stage
	scalers  map[string]*scaler // by group
	chosen   map[string][]int   // the numbers of the slots that are wanted, by group
}

// stage is what a steward remembers of the rollout, beside its slots and machines.
type stage struct {
	rollout uint64
	release string
	undo    bool
	step    int
	reached time.Time // since when the machines of the step are there; zero: they are not
}

// slotWork is what a steward remembers of a slot.
type slotWork struct {
	epoch    uint64           // the newest that it has asked for
	asked    bool             // it has asked for one
	making   int              // orders under way
	spec     string           // of the newest
	failures int              // of makes, in a row
	at       time.Time        // it makes none before
	why      error            // the newest failure; nil: none since one was made
	began    time.Time        // since when there is to be a machine of a spec, and is none of use; zero: there is
	beganFor string           // that spec
	slept    bool             // its machine was asleep, and went first
	home     cluster.WorkerID // where it was, or is to be
	only     bool             // it is made there or not at all
	gave     bool             // its machine went first in this rollout, and no other of use has come
	took     string           // the machine of another group that went for it, until it has one of use; "": none did
}

// begin notes that there is to be a machine of a spec.
func (w *slotWork) begin(spec string, now time.Time) {
	if w.began.IsZero() || w.beganFor != spec {
		w.began, w.beganFor = now, spec
	}
}

// makes reports whether a machine of a spec is being made.
func (w *slotWork) makes(spec string) bool { return w.making > 0 && w.spec == spec }

// machineWork is what it remembers of a machine.
type machineWork struct {
	deaths  int       // that it had when the rollout began, or when it was seen first
	good    bool      // it has been of use since then
	served  bool      // it has been ready since then, if only for a moment
	made    time.Time // when it was ordered by this steward; zero: it was not
	busy    bool      // an order is under way
	done    time.Time // when the last one was carried out; zero: it failed, or there was none
	verb    Verb      // of that
	up      time.Time // since when it is seen ready without a break; zero: it is not
	missed  string    // Standing.Missed, as it was then
	breaks  string    // why it was not ready between two times that it was; "": it never was
	starts  int       // in a row
	started time.Time
	at      time.Time // nothing is tried before
}

// NewSteward returns a steward that has no term yet. seen is the highest that is known of the service.
func NewSteward(seen cluster.Term) *Steward {
	return &Steward{office: office{least: seen.Number + 1}, slots: map[release.Slot]*slotWork{},
		machines: map[string]*machineWork{}, runs: newRunMemory(), fence: newFence(),
		scalers: map[string]*scaler{}, chosen: map[string][]int{}}
}

// Begin takes the steward's term, which all can know of by now.
func (s *Steward) Begin(t cluster.Term) {
	// Without a term it could give no orders: that slots lacked a machine meanwhile says nothing of a release
	if s.office.term.IsZero() {
		for _, w := range s.slots {
			w.began = time.Time{}
		}
	}
	s.office.term, s.office.resting, s.office.rivalry.self = t, false, t.Member
}

// Rest takes that all can know that the steward has done all. It must begin again before its next order; its term may be
// the same.
func (s *Steward) Rest() { s.office.resting = true }

// Blank reports whether it remembers nothing but its term.
func (s *Steward) Blank() bool {
	return s.under == 0 && len(s.slots)+len(s.machines)+len(s.runs.by)+len(s.scalers) == 0
}

// Term returns the term; zero: it has begun none.
func (s *Steward) Term() cluster.Term { return s.office.term }

// Step says what to do for what is wanted, with the machines that stand. Each order is under way until Done is told how
// it ended.
func (s *Steward) Step(now time.Time, want *Want, standing []release.Standing) Next {
	l := newLook(s, now, want, standing)
	s.office.rivalry.app = want.App
	l.heedLaterTerms()
	l.followRollout()
	if l.awaitsRelease() {
		return Next{Notes: want.Notes, Busy: s.under > 0}
	}
	d := &docket{look: l}
	var changed bool
	if d.out.Held, changed = l.examine(); changed {
		d.tell()
	}
	s.fence.note(l.seen.kept, want.Workers)
	d.out.Scaled = l.scaleGroups(d)
	r := &runs{look: l, docket: d}
	r.tidyCommands()
	r.runCommand()
	d.out.Runs = r.runJobs()
	fails, all := l.decideGroups(d)
	d.give(l.removeUnwanted(all.whole))
	d.give(l.judge(d, fails, all))
	d.out.Unmade = l.tellUnmade(d)
	s.forget(now, standing, l)
	return d.close()
}

// heedLaterTerms ends the steward's term where a steward of a later one was here.
func (l *look) heedLaterTerms() {
	s := l.memory
	for i := range l.seen.kept {
		if t := l.seen.kept[i].Epoch >> epochBits; t > s.office.term.Number {
			if !s.office.term.IsZero() {
				s.office.rivalry.outbid(l.clock.now)
			}
			s.office.endTermsUpTo(t)
		}
	}
}

// decideGroups has done what is to be done for the slots that are wanted, and returns which replicas fail and what all groups
// have come to.
func (l *look) decideGroups(d *docket) (fails []failure, all reached) {
	surveys, fails := l.surveyGroups()
	whole := make(map[string]bool, len(surveys))
	all.whole = true
	for _, s := range surveys {
		after := s.goal.group.After
		gated := l.course.open && slices.ContainsFunc(after, func(name string) bool { return !whole[name] })
		t, is := l.decideGroup(s, gated)
		d.give(t)
		whole[s.goal.group.Name] = is.whole
		all.whole, all.short = all.whole && is.whole, all.short || is.short
	}
	return fails, all
}

// removed reports whether a machine was removed a moment ago, and the fleet has not told of that.
func (s *Steward) removed(now time.Time, id string) bool {
	w := s.machines[id]
	return w != nil && w.verb == Remove && !w.done.IsZero() && now.Before(w.done.Add(believe))
}

// removing reports whether a machine is being removed.
func (s *Steward) removing(id string) bool {
	w := s.machines[id]
	return w != nil && w.busy && w.verb == Remove
}

// makes reports whether a machine of a spec is being made for a slot.
func (s *Steward) makes(slot release.Slot, spec string) bool {
	w := s.slots[slot]
	return w != nil && w.makes(spec)
}

// forget drops what is remembered of machines and slots that are over.
func (s *Steward) forget(now time.Time, standing []release.Standing, l *look) {
	known := make(map[string]bool, len(standing))
	for i := range standing {
		known[standing[i].ID] = true
	}
	maps.DeleteFunc(s.machines, func(id string, w *machineWork) bool {
		return !w.busy && !known[id] && !now.Before(later(w.done, w.made).Add(believe))
	})
	maps.DeleteFunc(s.slots, func(slot release.Slot, w *slotWork) bool {
		over := w.making == 0 && !l.aim.wants(slot) && len(l.seen.by[slot]) == 0
		if over && w.asked {
			s.floor = max(s.floor, w.epoch+1)
		}
		return over
	})
}

// enter notes that an order is under way.
func (s *Steward) enter(now time.Time, o *Order) {
	s.under++
	if o.Replica.Run != "" {
		s.ofRuns++
	}
	switch {
	case o.Replica.Run != "" && o.Verb == Make:
		w := s.runs.of(o.Replica.Group, o.Replica.Run)
		w.making, w.epoch = true, o.Replica.Epoch
		return
	case o.Replica.Run != "":
	case o.Verb == Make:
		w := s.slot(o.Slot())
		w.making++
		w.asked, w.epoch, w.spec = true, o.Replica.Epoch, o.Replica.Spec
		s.machine(o.Machine).made = now
		return
	case o.Verb == Remove: // its id never comes back
		w := s.slot(o.Slot())
		w.epoch, w.asked = max(w.epoch, o.Replica.Epoch), true
	}
	w := s.machine(o.Machine)
	w.busy, w.verb, w.done = true, o.Verb, time.Time{}
}

func (s *Steward) slot(x release.Slot) *slotWork { return entry(s.slots, x) }

func (s *Steward) machine(id string) *machineWork { return entry(s.machines, id) }

// entry returns what a map has of a key, which it enters as zero where there is nothing.
func entry[K comparable, V any](of map[K]*V, key K) *V {
	if of[key] == nil {
		of[key] = new(V)
	}
	return of[key]
}

// Done tells how an order ended: nil is that it was carried out.
func (s *Steward) Done(now time.Time, o *Order, err error) {
	s.under--
	if fault.CodeOf(err) == cluster.CodeOldTerm {
		s.office.outbid(now, err)
	}
	if o.Replica.Run != "" {
		s.ofRuns--
	}
	if o.Replica.Run != "" && o.Verb == Make {
		s.ranOut(now, o, err)
		return
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
			s.machine(o.Machine).made = now
			return
		}
		w.at = now.Add(after(err, makeAgain, w.failures))
		w.failures++
		w.home, w.only = "", false
		return
	}
	w := s.machine(o.Machine)
	w.busy = false
	if err == nil {
		w.done = now
		if o.Verb == Start || o.Verb == Try {
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
