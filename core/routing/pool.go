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
	MaxHeld       = 2048        // requests that wait
	MaxHeldSource = MaxHeld / 2 // of them, of one source
	// times that an owner may send one back whose machine had just been stopped, or is full
	MaxCorrected = 64
	fullFor      = 50 * time.Millisecond // a machine that had no place for another request gets none for so long
	// a machine that was woken counts as awake, whatever the fleet tells meanwhile
	believeFor = 10 * time.Second
	// an owner's word that a machine does not run, or is not ready, counts for so long where the fleet says that it is
	// up: it may be ready soon after, and the fleet has nothing to tell of that
	notReadyFor = 250 * time.Millisecond
	// requests wait for so long for a machine of a service that has none
	expectFor = 30 * time.Second
)

// avoidFor is for how long a machine that could not be reached gets nothing, wakeAgain the time until one is woken again
// whose wake failed: by how often that came in a row.
var (
	avoidFor  = backoff.Doubling{Base: time.Second, Most: 5 * time.Second}
	wakeAgain = backoff.Doubling{Base: 500 * time.Millisecond, Most: 30 * time.Second}
)

// Where is where a machine is, seen from the entry.
type Where uint8

// Where a machine is.
const (
	Here Where = iota
	InRegion
	Elsewhere
)

// Power is what a machine can do for a request.
type Power uint8

// What a machine can do for a request.
const (
	Gone   Power = iota // nothing: it is being destroyed, or nobody can say
	Asleep              // it can be woken: created, stopped or suspended
	Coming              // an operation has it on the way up; what is asked of it waits
	Up
)

// Backend is what the fleet tells of one machine behind a service.
type Backend struct {
	Machine   string
	Worker    cluster.WorkerID
	Region    cluster.Region
	Where     Where
	Power     Power
	Unheard   bool // its worker cannot be asked
	Failing   bool // a check that counts does not pass
	Cordoned  bool // nothing is to be sent there
	Load      int  // that its owner told: of all entries, a moment ago
	Autostart bool // it may be woken
	// Unproven says that it is up, or about to be started again, and has not passed its checks since. No request is sent
	// there; where one waits the owner is asked, which waits for the first pass, or says why there is none.
	Unproven bool
	Held     error     // it is kept down, and why; nil: it is not
	HeldTill time.Time // when it is tried again
	// Moved is when its state last changed, as its worker tells: another time says that marks of an earlier one are
	// void.
	Moved time.Time
}

// Ticket names a request of one entry.
type Ticket uint64

// Ask is a request that wants a machine.
type Ask struct {
	Ticket Ticket
	Source string         // whom the request is from, for the bound of those that wait
	Only   string         // the one machine that is to serve it; "": any
	Not    string         // a machine that is not to serve it; "": any may
	Region cluster.Region // preferred before the nearest; "": none is
}

// Action is what an Out says is to be done.
type Action uint8

// What is to be done.
const (
	Send   Action = iota // the request to the machine; Done or Corrected follows
	Wake                 // the machine; Woken follows
	Create               // another machine, like the one named; Made follows
	Refuse               // the request
)

// Out is something for the driver to do.
type Out struct {
	Do      Action
	Ticket  Ticket
	Machine string
	Reason  Reason
	After   time.Duration // of Refuse: when to come again; 0: nobody knows
	Cause   error         // of Refuse, where something that failed is the reason
	Wanted  bool          // of Refuse: machines of the service are kept, see Expect
}

// Reason is why a request is refused.
type Reason uint8

// Why a request is refused.
const (
	NoMachine   Reason = iota + 1 // there is none behind the service
	NotThere                      // the one machine that was asked for is not there
	Sleeping                      // all are asleep, and may not be woken for requests
	Unhealthy                     // those that are up fail their checks
	Unreachable                   // those there are cannot be reached
	WakeFailed                    // those that are asleep could not be woken
	Full                          // too many requests wait already
	HeldDown                      // those there are kept down, as they end again and again
)

// Pool is one entry's picture of the machines behind one service. It is not safe for concurrent use. What a method
// returns is valid until the next call.
type Pool struct {
	policy Policy
	list   []*backend // by id
	byID   map[string]*backend
	held   []*held // oldest first; those that are gone are passed over
	waits  map[Ticket]*held
	source map[string]int // how many of waits each source has
	sent   map[Ticket]*sent
	choosy int // how many of waits may not be served by just any machine
	sends  uint64
	create making // of another machine for the load
	out    []Out
	wanted bool      // machines are kept of the service: where none is, one is about to come
	lacks  time.Time // since when that is waited for; zero: there is one
}

type backend struct {
	Backend
	listed     bool      // the fleet knows of it
	sent       int       // requests of this entry that it has
	waking     bool      // Wake is under way
	awakeUntil time.Time // it was woken: believed over the fleet's word
	asleepTill time.Time // its owner said that it does not run: believed over the fleet's word for a moment
	avoidUntil time.Time // it could not be reached
	missed     int       // so often in a row
	last       uint64    // when a request was last sent to it: smaller is longer ago
	fullUntil  time.Time // its owner said that it is at its hard limit
	wakeAt     time.Time // before, it is not woken again
	failures   int       // of wakes, in a row
	cause      error     // of the last of them
	lookAt     time.Time // before, its owner is not asked again whether it comes up
	looks      int       // that said no, in a row
	looked     bool      // what is under way as waking is no wake: it was up, and its owner was asked
	provenTill time.Time // its owner said that it passes its checks: believed over the fleet's word
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

// View takes what the fleet tells now, whole.
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
		if b.Power != x.Power || !b.Moved.Equal(x.Moved) { // the fleet's word is newer than the owner's correction
			b.asleepTill, b.avoidUntil, b.missed = time.Time{}, time.Time{}, 0
			b.lookAt, b.looks = time.Time{}, 0
		}
		if !x.Failing && !x.Unproven { // so what it says later is newer than the owner's word
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

// Arrive takes a request: it is sent, held (nothing of its ticket is returned) or refused.
func (p *Pool) Arrive(now time.Time, rng *rand.Rand, a Ask) []Out {
	p.out = p.out[:0]
	p.placeRequest(now, rng, &held{Ask: a})
	return p.out
}

// Done takes the end of a request that was sent.
func (p *Pool) Done(now time.Time, rng *rand.Rand, t Ticket) []Out {
	p.out = p.out[:0]
	if s := p.sent[t]; s != nil {
		s.to.missed = 0
		p.removeSent(s)
		p.releaseHeld(now, rng)
	}
	return p.out
}

// Correction is what the owner of a machine says when a request that was sent to it is not taken.
type Correction uint8

// What an owner says.
const (
	NoAnswer   Correction = iota // nothing: it, or the machine, could not be reached
	DoesNotRun                   // the machine is asleep
	AtItsLimit                   // the machine has as much as it may have
	NotHere                      // the machine is not at this worker
)

// Corrected takes back a request that was sent and surely not carried out: another machine is tried. cause is what is
// told when there is none.
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
	if c == DoesNotRun || c == AtItsLimit { // that one may be woken for it, or have a place later
		h.corrected++
	} else {
		h.tries = append(h.tries, b.Machine)
	}
	if h.corrected >= MaxCorrected { // what could not be reached is tried once each, and costs nothing but the next
		p.refuseRequest(h.Ticket, Unreachable, avoidFor.Base, cause)
		return p.out
	}
	p.placeRequest(now, rng, &h)
	return p.out
}

// Tick takes that time has passed: who is held is sent on, or refused. It is called now and then while some are.
func (p *Pool) Tick(now time.Time, rng *rand.Rand) []Out {
	p.out = p.out[:0]
	p.releaseHeld(now, rng)
	return p.out
}

// Left takes that the client of a request that is held has gone away. A wake that is under way goes on.
func (p *Pool) Left(t Ticket) {
	if h := p.waits[t]; h != nil {
		p.removeHeld(h)
	}
}

// Woken takes the end of a wake.
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
		if again := fault.As(err).RetryAfter; again > 0 { // then somebody else starts it
			b.lookAt = now.Add(min(again, wakeAgain.Most))
		}
		b.looks++
	}
	p.forgetBackend(b)
	p.releaseHeld(now, rng)
	return p.out
}

// Expect says whether machines of the service are kept by somebody: where there is none, or none that may be started,
// requests then wait for a while, as one is about to come.
func (p *Pool) Expect(wanted bool) { p.wanted = wanted }

// Made takes the end of a creation: the id of the new machine, or "" where another entry had made it already, or why
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

// Load returns how many requests of this entry are under way.
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

// forgetBackend drops a machine that the fleet does not know any more, once nothing of it is under way.
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

// isChoosy reports whether not just any machine may serve a request.
func (h *held) isChoosy() bool {
	return h.Only != "" || h.Not != "" || h.Region != "" || len(h.tries) > 0
}

// releaseHeld sends those that wait, oldest first, as far as there are machines for them, and refuses those that wait
// for nothing. Those that have a wish of their own are passed over by the others.
func (p *Pool) releaseHeld(now time.Time, rng *rand.Rand) {
	keep := p.held[:0]
	full := false // there is nothing for those without a wish
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
