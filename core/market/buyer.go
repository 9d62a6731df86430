package market

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/machine"
)

// Bounds of one purchase.
const (
	MaxAsked = 16                     // workers asked before the buyer gives up
	MaxLost  = 5                      // times the same worker is asked again after a lost answer
	LostWait = 100 * time.Millisecond // before the first repeat; doubles
)

// lostPause returns how long to wait after lost answers of one worker in a row.
func lostPause(lost int) time.Duration {
	return backoff.Doubling{Base: LostWait, Most: LostWait << MaxLost}.After(lost - 1)
}

// Buyer places one machine. It relies on no central state: it ranks a view that may be stale, asks the best worker,
// and updates the view from each refusal. In the common case that is one round trip.
//
// An answer that was lost is ambiguous: the machine may exist. The buyer has chosen the ID beforehand, so it asks the
// same worker again; it turns to another one only after a refusal.
//
// The owner carries out each Out and steps the buyer with the result, until Done.
type Buyer struct {
	req       placement.Request
	policy    placement.Policy
	view      cluster.View
	size      int                 // of the fleet, if view has only an index's candidates; else 0
	fleet     func() cluster.View // returns all workers, if view has only an index's candidates
	asked     map[cluster.WorkerID]bool
	lost      int
	trips     int
	refusals  []string
	last      *Refusal
	decided   []machine.Candidate // the ranking behind the newest ask
	purchased []Asked             // see Purchase.Asks

	evicted map[cluster.WorkerID]bool // workers asked to evict
	consent string                    // why the newest ask consents to evictions; "": it does not
}

// NewBuyer makes a buyer of r with a view of the fleet. The view is read, never written.
func NewBuyer(r placement.Request, view cluster.View, p placement.Policy) *Buyer {
	view.Workers = slices.Clone(view.Workers)
	return &Buyer{req: r, view: view, policy: p, asked: map[cluster.WorkerID]bool{}}
}

// NewNarrowBuyer makes a buyer of r that ranks only the few candidates that an index picked from a fleet of size
// workers. If none of them takes the machine, the buyer reads the whole fleet and continues with it: to ask, to evict,
// and to explain a failure. The buyer owns few from now on.
func NewNarrowBuyer(r placement.Request, few cluster.View, size int, fleet func() cluster.View,
	p placement.Policy) *Buyer {
	return &Buyer{req: r, view: few, policy: p, asked: map[cluster.WorkerID]bool{}, size: size, fleet: fleet}
}

// widenView switches to the whole fleet, updated by the refusals so far; false if the view is whole already.
func (b *Buyer) widenView() bool {
	if b.fleet == nil {
		return false
	}
	known := make(map[cluster.WorkerID]cluster.Record, len(b.view.Workers))
	for _, w := range b.view.Workers {
		known[w.Worker] = w
	}
	whole := b.fleet()
	whole.Workers = slices.Clone(whole.Workers)
	for i := range whole.Workers {
		if w, ok := known[whole.Workers[i].Worker]; ok && w.Newer(whole.Workers[i]) {
			whole.Workers[i] = w
		}
	}
	b.view, b.size, b.fleet = whole, 0, nil
	return true
}

// In is the outcome of an ask. Exactly one field besides Worker is set; the zero In begins.
type In struct {
	Granted bool     // the worker has the machine
	Refused *Refusal // the worker refused, with its present record
	Lost    bool     // no answer: the worker may or may not have the machine
	NotSent bool     // no answer, and the worker was certainly not asked: it was unreachable
	Failed  error    // neither accepted nor refused: the request itself is wrong
	Worker  cluster.WorkerID
}

// Out is the owner's next action: Ask a worker, After a wait, or end.
type Out struct {
	Ask   cluster.WorkerID
	Evict bool // with Ask: consent to evict machines of lower rank (lifecycle.Grant.Evict)
	After time.Duration
	Done  bool
	Err   error // with Done: the failure; nil: the machine is placed
}

// Step takes the outcome of the last ask and returns the next action. It is pure.
func (b *Buyer) Step(in In) Out {
	in = in.resolveUnsent(&b.view, b.lost)
	b.noteAnswer(in)
	switch {
	case in.Granted:
		return Out{Done: true}
	case in.Failed != nil:
		return Out{Done: true, Err: in.Failed}
	case in.Lost:
		if b.lost++; b.lost > MaxLost {
			return Out{Done: true, Err: Ambiguous(in.Worker, b.req.Machine)}
		}
		return Out{Ask: in.Worker, Evict: b.consent != "", After: lostPause(b.lost)}
	case in.Refused != nil:
		b.healRecord(in.Worker, *in.Refused)
	}
	return b.askNext()
}

func (b *Buyer) healRecord(w cluster.WorkerID, r Refusal) {
	b.lost, b.last = 0, &r
	healView(&b.view, w, r)
}

func (b *Buyer) askNext() Out {
	b.decided, b.consent = placement.Rank(b.req, b.view, b.policy), ""
	if len(b.asked) < MaxAsked {
		for _, c := range b.decided {
			if id := cluster.WorkerID(c.Worker); c.Fits && !b.asked[id] {
				b.noteAsk(id)
				return Out{Ask: id}
			}
		}
	}
	if b.widenView() {
		return b.askNext()
	}
	if id, ok := b.nextToEvict(); ok {
		b.noteAsk(id)
		return Out{Ask: id, Evict: true}
	}
	return Out{Done: true, Err: b.exhaustedError()}
}

// refusedFor reports whether workers were asked, and every one refused for this clause alone.
func (b *Buyer) refusedFor(code string) bool {
	for _, a := range b.purchased {
		if a.Refusal == nil || len(a.Refusal.Verdict.Failing) == 0 {
			return false
		}
		for _, c := range a.Refusal.Verdict.Failing {
			if c.Code != code {
				return false
			}
		}
	}
	return len(b.purchased) > 0
}

// networkError turns e into the error for a port that is taken everywhere, or for a network that no worker has.
func networkError(e *fault.Error, port bool) *fault.Error {
	e.Scope, e.Kind, e.Code = "", fault.Precondition, fault.CodeNetwork
	if port {
		e.Kind, e.Code = fault.Conflict, fault.CodePortInUse
		e.Text += "; use another port, destroy what has this one, or add a worker"
	}
	return e
}

// bandWouldHelp reports whether a request without a band would fit, by evicting, in the band of services.
func (b *Buyer) bandWouldHelp() bool {
	r := b.req
	if r.Scheduling.Band != "" || r.Scheduling.Lent {
		return false
	}
	r.Scheduling.Band = machine.BandService
	for i := range b.view.Workers {
		if _, fits := prospectOf(&r, b.view.Workers[i], &b.policy); fits {
			return true
		}
	}
	return false
}

// noWorkerError returns the error for a request that no worker takes; no are the workers that were asked and refused.
func noWorkerError(r placement.Request, view cluster.View, p placement.Policy, no []Asked) error {
	b := NewBuyer(r, view, p)
	b.purchased = no
	return b.exhaustedError()
}

// exhaustedError returns the error for a machine that no worker takes, with the failed clauses and their counts.
func (b *Buyer) exhaustedError() error {
	e := &fault.Error{Kind: fault.Exhausted, Code: fault.CodeNoCapacity, Scope: fault.ScopeRegion, Op: "market.buyer"}
	if len(b.view.Workers) == 0 {
		e.Text = "could not find a candidate host: no worker is known; start one"
		e.Kind = fault.Unavailable
		return e
	}
	count, example := map[string]int{}, map[string]machine.Clause{}
	differs, where := map[string]bool{}, map[string]cluster.WorkerID{}
	var order []string
	never, volume := true, false
	verdicts := make([]placement.Verdict, len(b.view.Workers))
	for i, w := range b.view.Workers {
		v := b.policy.Judge(&b.req, &w)
		verdicts[i] = v
		never = never && v.Never
		for _, c := range v.Failing {
			code := c.Code
			if code == placement.CodePolicy {
				code = c.Wanted // count each filter separately
			}
			if count[code]++; count[code] == 1 {
				order, example[code], where[code] = append(order, code), c, w.Worker
			}
			differs[code] = differs[code] || example[code].Had != c.Had
			volume = volume || (len(b.req.Volumes) > 0 && c.Code != placement.CodeVolume)
		}
	}
	parts := make([]string, 0, len(order))
	for _, code := range order {
		text := placement.ClauseText(example[code])
		if differs[code] {
			text += " on " + string(where[code])
		}
		parts = append(parts, fmt.Sprintf("%s (%d of %d workers)", text, count[code], len(b.view.Workers)))
		if e.Resource == "" && b.req.Resources.Get(code) > 0 {
			e.Resource = code
		}
	}
	unseen := b.refusedFor(placement.CodePort) || b.refusedFor(placement.CodeNetwork) // no record shows it
	if len(parts) == 0 || unseen {
		parts = append(parts, fmt.Sprintf("every worker asked refused: %s", strings.Join(describeRefusals(b.purchased),
			" | ")))
	}
	e.Text = "could not find a candidate host: " + strings.Join(parts, "; ")
	if unseen {
		return networkError(e, b.refusedFor(placement.CodePort))
	}
	advice := ConstraintAdvice(&b.req, b.view, verdicts)
	if never {
		e.Code = fault.CodeNeverFits
	} else {
		e.RetryAfter = 5 * time.Second
	}
	switch {
	case advice != "":
		e.Text += "; " + advice
	case never:
		e.Text += "; no worker could take it even if it were empty, so ask for less or add a larger worker"
	case b.bandWouldHelp():
		e.Text += "; machines of a lower band have that room, and with band \"service\" (--band service) " +
			"it may evict them"
	default:
		e.Text += "; ask for less, or try again when something has stopped"
	}
	if volume {
		e.Scope = fault.ScopeVolume
	}
	e.Detail = b.decided
	return e
}
