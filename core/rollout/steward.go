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
	mostOrders = release.MaxBooked // orders of one service in progress
	mostMakes  = 3                 // of one slot: the target can change while a machine waits for its image
	believe    = time.Minute       // how long a carried-out order counts before it is reported
	upFor      = time.Minute       // how long a machine must run so that its next death counts as a first one
)

// The pauses before a failed action is retried.
var (
	makeAgain  = backoff.Doubling{Base: time.Second, Most: 15 * time.Second}
	startAgain = backoff.Doubling{Base: time.Second, Most: time.Minute}
)

// Want is the wanted state of an app's service.
type Want struct {
	App           string // the app's own id
	Head          *release.Head
	Release       *release.Release // the head's
	Before        *release.Release // that of Head.Before; nil: there is none, or this member lacks it
	release.Notes                  // as the steward has last written them
	// LostAfter is the default of Group.LostAfter; 0: DefaultLostAfter. It follows from the pace at which members
	// detect each other's failure.
	LostAfter time.Duration
	// Places are the workers at which machines can be made; nil: replacements are made where the old machines are.
	Places Places
	// Workers are all workers of the cluster, if a release that may be in force fences (Release.Fences).
	Workers []Peer
}

// WantOf returns a steward's input for a service; id is its app's own ID.
func WantOf(s *release.Service, id string) *Want {
	return &Want{App: id, Head: s.Head, Release: s.Release, Before: s.Before, Notes: s.Notes}
}

// Verb is an action on a machine of a service.
type Verb string

// The verbs of orders.
const (
	Make   Verb = "make"   // a machine for a slot, at any worker that accepts it
	Remove Verb = "remove" // destroy one, after it has answered its requests
	Start  Verb = "start"  // start one that died
	Hold   Verb = "hold"   // stop one that dies again and again, and block requests to it
	Try    Verb = "try"    // start one that is held, and allow requests to it
	Admit  Verb = "admit"  // allow requests to one that was made without any
)

// Order is one action, in the steward's term.
type Order struct {
	Verb     Verb
	Term     cluster.Term
	Machine  string
	Replica  machine.Replica
	Worker   cluster.WorkerID // the machine's worker; "" for Make
	Instance string           // the instance that it must still have; "" for Make
	Kill     bool             // of Remove: it is down, so do not wait for requests
	Home     cluster.WorkerID // of Make: the preferred worker; "": none
	Only     bool             // of Make: only at Home
	Booked   cluster.WorkerID // of Make: the worker that holds room for it under Token; "": none
	Token    string
	Asleep   bool   // of Make: do not start it
	Apart    bool   // of Make: no requests before it is admitted
	Yields   bool   // of Remove: a machine of another group needs what it has
	Why      string // one sentence
}

// Slot returns which slot an order is for.
func (o *Order) Slot() release.Slot {
	return release.Slot{Group: o.Replica.Group, Index: o.Replica.Index}
}

// Next is a steward's next actions.
type Next struct {
	Orders []Order
	// Obey lists the workers that must obey the steward's term and report their machines of the service. Call Obeyed
	// with each result.
	Obey []cluster.WorkerID
	// Term is the lowest number of a term that the steward must begin before it looks again; 0: it has one, or needs
	// none.
	Term uint64
	// Notes are what the steward must write before it looks again, if Tell is set.
	release.Notes
	Tell  bool
	Busy  bool      // there is something to do, or in progress
	Again time.Time // when to look again if nothing changes; zero: no need to
}

// Steward runs one service. Its memory is not essential: another steward without it decides the same. It is not safe
// for concurrent use.
type Steward struct {
	office   office
	reasoned time.Time // when Next.Unmade last changed
	slots    map[release.Slot]*slotWork
	floor    uint64 // above the epochs used for forgotten slots
	machines map[string]*machineWork
	runs     runMemory
	under    int // orders in progress, and workers that are to obey
	ofRuns   int // those of under that are orders of runs
	fence    fence
	stage    stage
	scalers  map[string]*scaler // by group
	chosen   map[string][]int   // the numbers of the wanted slots, by group
}

// stage is a steward's memory of the rollout, besides slots and machines.
type stage struct {
	rollout uint64
	release string
	undo    bool
	step    int
	reached time.Time // since when the machines of the step are there; zero: they are not
}

// slotWork is a steward's memory of a slot.
type slotWork struct {
	epoch    uint64           // the newest that it has ordered
	asked    bool             // it has ordered one
	making   int              // orders in progress
	spec     string           // of the newest order
	failures int              // failed makes in a row
	at       time.Time        // no make before then
	why      error            // the newest failure; nil: none since one was made
	began    time.Time        // since when a machine of a spec is wanted and none works; zero: one does
	beganFor string           // the spec for began
	slept    bool             // its machine was asleep, and was removed first
	home     cluster.WorkerID // its machine's worker, or the preferred one
	only     bool             // make it only at home
	gave     bool             // its machine was removed first in this rollout, and no other works yet
	took     string           // the machine of another group that was removed for it, until its own works; "": none
}

// begin records that a machine of a spec is wanted.
func (w *slotWork) begin(spec string, now time.Time) {
	if w.began.IsZero() || w.beganFor != spec {
		w.began, w.beganFor = now, spec
	}
}

// makes reports whether a machine of a spec is being made.
func (w *slotWork) makes(spec string) bool { return w.making > 0 && w.spec == spec }

// machineWork is a steward's memory of a machine.
type machineWork struct {
	deaths  int       // at the beginning of the rollout, or when it was first seen
	good    bool      // it has worked since then
	served  bool      // it has been ready since then, if only for a moment
	made    time.Time // when this steward ordered it; zero: it did not
	busy    bool      // an order is in progress
	done    time.Time // when the last order was carried out; zero: it failed, or there was none
	verb    Verb      // of the last order
	up      time.Time // since when it has been ready without interruption; zero: it is not ready
	missed  string    // Standing.Missed at that time
	breaks  string    // why it was not ready between two times when it was; "": never
	starts  int       // starts in a row
	started time.Time
	at      time.Time // no action before then
}

// NewSteward returns a steward without a term. seen is the highest known term of the service.
func NewSteward(seen cluster.Term) *Steward {
	return &Steward{office: office{least: seen.Number + 1}, slots: map[release.Slot]*slotWork{},
		machines: map[string]*machineWork{}, runs: newRunMemory(), fence: newFence(),
		scalers: map[string]*scaler{}, chosen: map[string][]int{}}
}

// Begin begins the steward's term, once all members can know of it.
func (s *Steward) Begin(t cluster.Term) {
	// Without a term it could give no orders, so the lack of machines meanwhile does not count against a release.
	if s.office.term.IsZero() {
		for _, w := range s.slots {
			w.began = time.Time{}
		}
	}
	s.office.term, s.office.resting, s.office.rivalry.self = t, false, t.Member
}

// Rest records that all members can know that the steward has done all. It must begin again before its next order; its
// term may be the same.
func (s *Steward) Rest() { s.office.resting = true }

// Blank reports whether the steward remembers nothing but its term.
func (s *Steward) Blank() bool {
	return s.under == 0 && len(s.slots)+len(s.machines)+len(s.runs.by)+len(s.scalers) == 0
}

// Term returns the present term; zero: there is none.
func (s *Steward) Term() cluster.Term { return s.office.term }

// Step returns the next actions for a wanted state and the given machines. Call Done with the result of each order.
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

// heedLaterTerms ends the steward's term if a machine is from a later one.
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

// decideGroups handles the wanted slots, and returns which replicas fail and how far the groups have come.
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

// removed reports whether a machine was removed recently and its removal is not reported yet.
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

// forget drops the memory of machines and slots that are gone.
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

// enter records that an order is in progress.
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
	case o.Verb == Remove: // its ID is never used again
		w := s.slot(o.Slot())
		w.epoch, w.asked = max(w.epoch, o.Replica.Epoch), true
	}
	w := s.machine(o.Machine)
	w.busy, w.verb, w.done = true, o.Verb, time.Time{}
}

func (s *Steward) slot(x release.Slot) *slotWork { return entry(s.slots, x) }

func (s *Steward) machine(id string) *machineWork { return entry(s.machines, id) }

// entry returns a map's value of a key, adding a zero value if there is none.
func entry[K comparable, V any](of map[K]*V, key K) *V {
	if of[key] == nil {
		of[key] = new(V)
	}
	return of[key]
}

// Done handles the result of an order; a nil err means that it was carried out.
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
			return // the target has changed meanwhile
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

// after returns the pause before a failed action is retried.
func after(err error, d backoff.Doubling, failures int) time.Duration {
	wait := d.After(failures)
	if e := fault.As(err); e != nil {
		wait = max(wait, e.RetryAfter)
	}
	return wait
}
