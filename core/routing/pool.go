package routing

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
)

// Bounds of one pool.
const (
	MaxHeld       = 2048        // waiting requests
	MaxHeldSource = MaxHeld / 2 // waiting requests of one source
	// how often owners may send back one request because a machine had just stopped, or was full
	MaxCorrected = 64
	fullFor      = 50 * time.Millisecond // how long a machine that was full gets no request
	// how long a woken machine counts as awake, whatever the fleet reports
	believeFor = 10 * time.Second
	// how long an owner's answer that a machine does not run, or is not ready, overrides the fleet's view that it is
	// up: it may become ready soon, without any report of that
	notReadyFor = 250 * time.Millisecond
	// how long requests wait for a machine of a service that has none
	expectFor = 30 * time.Second
)

// avoidFor is how long an unreachable machine gets no request, wakeAgain how long after a failed wake the next
// follows: by the number of failures in a row.
var (
	avoidFor  = backoff.Doubling{Base: time.Second, Most: 5 * time.Second}
	wakeAgain = backoff.Doubling{Base: 500 * time.Millisecond, Most: 30 * time.Second}
)

// Where is a machine's location relative to the entry.
type Where uint8

// Locations of a machine.
const (
	Here Where = iota
	InRegion
	Elsewhere
)

// Power is what a machine can do for a request.
type Power uint8

// The values of Power.
const (
	Gone   Power = iota // nothing: it is being destroyed, or its state is unknown
	Asleep              // it can be woken: created, stopped or suspended
	Coming              // an operation is starting it; requests to it wait
	Up
)

// Backend is the fleet's report on one machine behind a service.
type Backend struct {
	Machine   string
	Worker    cluster.WorkerID
	Region    cluster.Region
	Where     Where
	Power     Power
	Unheard   bool // its worker cannot be reached
	Failing   bool // a check that counts fails
	Cordoned  bool // it gets no requests
	Load      int  // as its owner last reported it: of all entries
	Autostart bool // it may be woken
	// Unproven says that the machine is up, or about to restart, and has not passed its checks since. It gets no
	// requests; for a waiting request its owner is asked, which waits for the first pass or says why there is none.
	Unproven bool
	Held     error     // why it is kept down; nil: it is not
	HeldTill time.Time // when it is tried again
	// Moved is when its state last changed, by its worker's clock: a new value voids the marks of an earlier one.
	Moved time.Time
}

// Ticket identifies a request of one entry.
type Ticket uint64

// Ask is a request that needs a machine.
type Ask struct {
	Ticket Ticket
	Source string         // sender of the request, for the bound MaxHeldSource
	Only   string         // the only machine that may serve it; "": any
	Not    string         // a machine that must not serve it; "": none
	Region cluster.Region // preferred over the nearest region; "": none
}

// Action is the kind of an Out.
type Action uint8

// The actions.
const (
	Send   Action = iota // send the request to the machine; Done or Corrected follows
	Wake                 // wake the machine; Woken follows
	Create               // make another machine, like the one named; Made follows
	Refuse               // refuse the request
)

// Out is an action for the driver.
type Out struct {
	Do      Action
	Ticket  Ticket
	Machine string
	Reason  Reason
	After   time.Duration // of Refuse: when to retry; 0: unknown
	Cause   error         // of Refuse: the failure that is the reason, if any
	Wanted  bool          // of Refuse: a steward keeps machines of the service, see Expect
}

// Reason is why a request is refused.
type Reason uint8

// The reasons.
const (
	NoMachine   Reason = iota + 1 // no machine is behind the service
	NotThere                      // the machine that was asked for does not exist
	Sleeping                      // all are asleep, and requests may not wake them
	Unhealthy                     // those that are up fail their checks
	Unreachable                   // none can be reached
	WakeFailed                    // the sleeping ones could not be woken
	Full                          // too many requests wait already
	HeldDown                      // they are kept down, as they end again and again
)

// Pool is one entry's view of the machines behind one service. It is not safe for concurrent use. A method's result is
// valid until the next call.
type Pool struct {
	policy Policy
	list   []*backend // by ID
	byID   map[string]*backend
	held   []*held // oldest first; those no longer waiting are skipped
	waits  map[Ticket]*held
	source map[string]int // number of waits by source
	sent   map[Ticket]*sent
	choosy int // number of waits that not just any machine may serve
	sends  uint64
	create making // creation of another machine for the load
	out    []Out
	wanted bool      // a steward keeps machines of the service: if there is none, one is expected
	lacks  time.Time // since when one is expected; zero: there is one
}

type backend struct {
	Backend
	listed     bool      // the fleet reports it
	sent       int       // requests of this entry in progress at it
	waking     bool      // a Wake is in progress
	awakeUntil time.Time // it was woken: overrides the fleet's view
	asleepTill time.Time // its owner said that it does not run: overrides the fleet's view for a moment
	avoidUntil time.Time // it could not be reached
	missed     int       // number of failures to reach it, in a row
	last       uint64    // when it last got a request: smaller is longer ago
	fullUntil  time.Time // its owner said that it is at its hard limit
	wakeAt     time.Time // no wake before then
	failures   int       // failed wakes in a row
	cause      error     // of the last failure
	lookAt     time.Time // its owner is not asked before then whether it is coming up
	looks      int       // negative answers in a row
	looked     bool      // waking is only a question: it was up, and its owner was asked
	provenTill time.Time // its owner said that it passes its checks: overrides the fleet's view
}

type held struct {
	Ask
	tries     []string // machines that it was sent to
	corrected int
	gone      bool
}

type sent struct {
	held
	to *backend
}

// NewPool returns a pool without machines.
func NewPool() *Pool {
	return &Pool{byID: map[string]*backend{}, waits: map[Ticket]*held{}, source: map[string]int{},
		sent: map[Ticket]*sent{}}
}

// View sets the fleet's present report, completely.
func (p *Pool) View(now time.Time, rng *rand.Rand, policy Policy, list []Backend) []Out {
	p.out = p.out[:0]
	p.policy = policy
	seen := make(map[string]bool, len(list))
	for _, x := range list {
		seen[x.Machine] = true
		b := p.byID[x.Machine]
		if b == nil {
			b = &backend{}
			p.byID[x.Machine] = b
		}
		if !b.listed {
			b.listed, p.create.until = true, time.Time{}
			p.list = append(p.list, b)
		}
		if b.Power != x.Power || !b.Moved.Equal(x.Moved) { // the report is newer than the owner's correction
			b.asleepTill, b.avoidUntil, b.missed = time.Time{}, time.Time{}, 0
			b.lookAt, b.looks = time.Time{}, 0
		}
		if !x.Failing && !x.Unproven { // a later report is newer than the owner's answer
			b.provenTill = time.Time{}
		}
		if x.Able() || x.Unproven {
			p.lacks = time.Time{}
		}
		b.Backend = x
	}
	p.list = slices.DeleteFunc(p.list, func(b *backend) bool {
		if seen[b.Machine] {
			return false
		}
		b.listed, b.Power = false, Gone
		p.forgetBackend(b)
		return true
	})
	slices.SortFunc(p.list, func(a, b *backend) int { return cmp.Compare(a.Machine, b.Machine) })
	p.releaseHeld(now, rng)
	return p.out
}

// Arrive handles a new request: it is sent, held (then no Out has its ticket) or refused.
func (p *Pool) Arrive(now time.Time, rng *rand.Rand, a Ask) []Out {
	p.out = p.out[:0]
	p.placeRequest(now, rng, &held{Ask: a})
	return p.out
}

// Done handles the end of a request that was sent.
func (p *Pool) Done(now time.Time, rng *rand.Rand, t Ticket) []Out {
	p.out = p.out[:0]
	if s := p.sent[t]; s != nil {
		s.to.missed = 0
		p.removeSent(s)
		p.releaseHeld(now, rng)
	}
	return p.out
}

// Correction is an owner's reason for not taking a request.
type Correction uint8

// The corrections.
const (
	NoAnswer   Correction = iota // the owner, or the machine, could not be reached
	DoesNotRun                   // the machine is asleep
	AtItsLimit                   // the machine is at its hard limit
	NotHere                      // the machine is at another worker
)

// Corrected takes back a request that was sent and certainly not carried out, and tries another machine. cause is the
// reason to report if there is none.
func (p *Pool) Corrected(now time.Time, rng *rand.Rand, t Ticket, c Correction, cause error) []Out {
	p.out = p.out[:0]
	s := p.sent[t]
	if s == nil {
		return p.out
	}
	p.removeSent(s)
	b := s.to
	switch c {
	case DoesNotRun:
		b.asleepTill, b.awakeUntil, b.provenTill = now.Add(notReadyFor), time.Time{}, time.Time{}
	case AtItsLimit:
		b.fullUntil = now.Add(fullFor)
	default:
		b.avoidUntil, b.cause = now.Add(avoidFor.After(b.missed)), cause
		b.missed++
	}
	h := s.held
	if c == DoesNotRun || c == AtItsLimit { // the machine may be woken for it, or have room later
		h.corrected++
	} else {
		h.tries = append(h.tries, b.Machine)
	}
	if h.corrected >= MaxCorrected { // unreachable machines are tried only once each
		p.refuseRequest(h.Ticket, Unreachable, avoidFor.Base, cause)
		return p.out
	}
	p.placeRequest(now, rng, &h)
	return p.out
}

// Tick handles the passing of time: held requests are sent or refused. Call it now and then while requests are held.
func (p *Pool) Tick(now time.Time, rng *rand.Rand) []Out {
	p.out = p.out[:0]
	p.releaseHeld(now, rng)
	return p.out
}

// Left handles a held request whose client has gone. A wake in progress continues.
func (p *Pool) Left(t Ticket) {
	if h := p.waits[t]; h != nil {
		p.removeHeld(h)
	}
}

// Woken handles the end of a wake.
func (p *Pool) Woken(now time.Time, rng *rand.Rand, machine string, err error) []Out {
	p.out = p.out[:0]
	b := p.byID[machine]
	if b == nil || !b.waking {
		return p.out
	}
	b.waking, b.cause = false, err
	if err == nil {
		b.awakeUntil, b.failures, b.asleepTill, b.avoidUntil = now.Add(believeFor), 0, time.Time{}, time.Time{}
		b.provenTill, b.looks = now.Add(believeFor), 0
	} else {
		if !b.looked {
			b.wakeAt = now.Add(wakeAgain.After(b.failures))
			b.failures++
		}
		b.lookAt = now.Add(wakeAgain.After(b.looks))
		if again := fault.As(err).RetryAfter; again > 0 { // then another member starts it
			b.lookAt = now.Add(min(again, wakeAgain.Most))
		}
		b.looks++
	}
	p.forgetBackend(b)
	p.releaseHeld(now, rng)
	return p.out
}

// Expect sets whether a steward keeps machines of the service: if there is none that can be started, requests then
// wait for a while, as one is expected.
func (p *Pool) Expect(wanted bool) { p.wanted = wanted }

// Made handles the end of a creation: id is the new machine, or "" if another entry has made it already; err is why
// none was made.
func (p *Pool) Made(now time.Time, rng *rand.Rand, id string, err error) []Out {
	p.out = p.out[:0]
	b := p.byID[id]
	p.create.end(now, b != nil && b.listed, err, wakeAgain, 0)
	p.releaseHeld(now, rng)
	return p.out
}

// Held returns how many requests wait.
func (p *Pool) Held() int { return len(p.waits) }

// Load returns how many requests of this entry are in progress.
func (p *Pool) Load() int { return len(p.sent) }

// placeRequest sends a request, holds it or refuses it.
func (p *Pool) placeRequest(now time.Time, rng *rand.Rand, h *held) {
	if b := p.chooseBackend(now, rng, h); b != nil {
		p.sendTo(b, h)
		p.wakeForLoad(now, h)
		return
	}
	if len(p.waits) >= MaxHeld || p.source[h.Source] >= MaxHeldSource {
		p.refuseRequest(h.Ticket, Full, time.Second, nil)
		return
	}
	p.holdRequest(h)
	p.wakeForLoad(now, h)
	if reason, after, cause := p.whyHopeless(now, h); reason != 0 {
		p.removeHeld(h)
		p.refuseRequest(h.Ticket, reason, after, cause)
	}
}

func (p *Pool) sendTo(b *backend, h *held) {
	b.sent++
	p.sends++
	b.last = p.sends
	p.sent[h.Ticket] = &sent{held: *h, to: b}
	p.out = append(p.out, Out{Do: Send, Ticket: h.Ticket, Machine: b.Machine})
}

func (p *Pool) removeSent(s *sent) {
	s.to.sent--
	delete(p.sent, s.Ticket)
	p.forgetBackend(s.to)
}

// forgetBackend drops a machine that the fleet does not report any more, once nothing is in progress at it.
func (p *Pool) forgetBackend(b *backend) {
	if !b.listed && b.sent == 0 && !b.waking {
		delete(p.byID, b.Machine)
	}
}

func (p *Pool) refuseRequest(t Ticket, why Reason, after time.Duration, cause error) {
	p.out = append(p.out, Out{Do: Refuse, Ticket: t, Reason: why, After: after, Cause: cause,
		Wanted: p.wanted})
}

func (p *Pool) holdRequest(h *held) {
	h.gone = false
	p.held = append(p.held, h)
	p.waits[h.Ticket] = h
	p.source[h.Source]++
	if h.isChoosy() {
		p.choosy++
	}
}

func (p *Pool) removeHeld(h *held) {
	h.gone = true
	delete(p.waits, h.Ticket)
	if h.isChoosy() {
		p.choosy--
	}
	if p.source[h.Source]--; p.source[h.Source] == 0 {
		delete(p.source, h.Source)
	}
}

// isChoosy reports whether only some machines may serve a request.
func (h *held) isChoosy() bool {
	return h.Only != "" || h.Not != "" || h.Region != "" || len(h.tries) > 0
}

// releaseHeld sends held requests, oldest first, as far as there are machines, and refuses those that wait in vain. A
// request for particular machines does not hold up the others.
func (p *Pool) releaseHeld(now time.Time, rng *rand.Rand) {
	keep := p.held[:0]
	full := false // no machine is left for requests without a wish
	for i, h := range p.held {
		if full && p.choosy == 0 {
			keep = append(keep, p.held[i:]...)
			break
		}
		if h.gone {
			continue
		}
		if full && !h.isChoosy() {
			keep = append(keep, h)
			continue
		}
		if b := p.chooseBackend(now, rng, h); b != nil {
			p.removeHeld(h)
			p.sendTo(b, h)
			continue
		}
		p.wakeForLoad(now, h)
		if reason, after, cause := p.whyHopeless(now, h); reason != 0 {
			p.removeHeld(h)
			p.refuseRequest(h.Ticket, reason, after, cause)
			continue
		}
		full = full || !h.isChoosy()
		keep = append(keep, h)
	}
	clear(p.held[len(keep):])
	p.held = keep
}
