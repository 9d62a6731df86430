package broker

import (
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

const whyCreate = decision.Create

// recorder keeps what the record of a decision needs and its buyer does not know: when things happened, and which holds
// were taken on the way.
type recorder struct {
	id     string
	why    string
	began  time.Time
	viewed time.Time     // when the view was read
	asks   []float64     // milliseconds of each ask
	waited time.Duration // for answers that the next of asks will count
	last   cluster.WorkerID
	looked int // workers that an index looked at; 0: there was none
	holds  []decision.Hold

	expected *decision.Decision // of a gang's member: made when its grant was asked for
}

// decisionIDs draws the ids of decisions, each above the one before.
type decisionIDs struct {
	mu   sync.Mutex
	last string
}

func (d *decisionIDs) nextID(now time.Time, chance machine.Entropy) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = machine.NextULID(d.last, now, chance)
	return d.last
}

// newRecorder begins the record of a decision.
func (b *Broker) newRecorder(why string) *recorder {
	now := time.Now()
	return &recorder{id: b.decisions.nextID(now, entropy{b.rand}), why: why, began: now, viewed: now}
}

// noteTime notes how long a worker took to answer a grant. Repeats of one ask add up.
func (r *recorder) noteTime(w cluster.WorkerID, took time.Duration) {
	if n := len(r.asks); n > 0 && r.last == w {
		r.asks[n-1] += decision.Millis(took)
		return
	}
	r.asks, r.last = append(r.asks, decision.Millis(took)), w
}

// enterAsk enters what a worker answered to an ask of a batch, in the purchase and in its record. An undo is no
// decision.
func (p *Purchase) enterAsk(a market.Ask, got reply) {
	r, in := p.record, got.Answer
	switch a.Act {
	case market.ActUndo:
		return
	case market.ActRelease:
		r.noteReleased(a.Worker, in)
		return
	}
	r.waited += got.took
	p.noteQuotaRefusal(in.Refused)
	x := market.Asked{Worker: a.Worker, Before: p.viewedRecord(a.Worker)}
	switch {
	case in.Done:
		x.Result = market.ResultGranted
	case in.Failed != nil:
		x.Result = market.ResultFailed
	case in.Lost, in.NotSent:
		x.Result = market.ResultLost
	case in.Refused != nil:
		x.Result, x.Refusal = market.ResultRefused, in.Refused
	}
	if a.Act == market.ActHold {
		r.holds = append(r.holds, decision.Hold{Worker: a.Worker, Result: string(x.Result), Expires: in.Expires})
		if in.Done {
			return // its grant follows, or it was not needed
		}
	}
	p.Asks = append(p.Asks, x)
	r.asks, r.waited = append(r.asks, decision.Millis(r.waited)), 0
}

// noteReleased notes that room which was held at a worker has been given back.
func (r *recorder) noteReleased(w cluster.WorkerID, in market.Answer) {
	for i := range slices.Backward(r.holds) {
		if h := &r.holds[i]; h.Worker == w && in.Done && h.Result == string(market.ResultGranted) {
			h.Result = "released"
			return
		}
	}
}

// timingsOf says where the time went.
func (r *recorder) timingsOf() decision.Timings {
	took := decision.Timings{View: decision.Millis(r.viewed.Sub(r.began)), Total: decision.Millis(time.Since(r.began))}
	for _, ms := range r.asks {
		took.Ask += ms
	}
	took.Rank = max(0, took.Total-took.View-took.Ask)
	return took
}

// finishDecision enters in a decision that was made beforehand what the worker's answers took.
func (r *recorder) finishDecision(d *decision.Decision) {
	d.Holds, d.Took = r.holds, r.timingsOf()
	for i := range min(len(d.Asks), len(r.asks)) {
		d.Asks[i].Millis = r.asks[i]
	}
}

// makeDecision makes the record of a purchase that has ended.
func (p *Purchase) makeDecision(strategy string, err error) *decision.Decision {
	r := p.record
	d := decision.From(decision.Observation{ID: r.id, Evaluated: r.looked, At: r.viewed, Why: r.why, Strategy: strategy,
		Purchase: p.Purchase, Err: err,
		Asked: r.asks, Holds: r.holds, Took: r.timingsOf()})
	d.Shadow = p.Shadow
	return d
}

// recordAll records what came of an order, and returns the error that whoever asked is told.
func (b *Broker) recordAll(o *Order, err error) error {
	if o.Gang != nil {
		return b.recordGang(o, err)
	}
	p := o.Purchases[0]
	if b.log == nil && err == nil {
		return nil
	}
	d := p.makeDecision(p.Request.Scheduling.Strategy, err)
	if o.Bid != nil {
		d.Strategy = BidStrategy
	}
	b.logDecision(d)
	return explainError(d, err, &p.Request)
}

// logDecision logs a decision, and counts it by its reason where nothing came of it.
func (b *Broker) logDecision(d *decision.Decision) {
	if b.log != nil {
		b.log.Append(d)
	}
	if d.Outcome != decision.Placed {
		b.metrics.refused.WithLabelValues(string(d.Pending)).Inc()
	}
}

// Unplaced is why a decision ended without a worker: the Detail of the error that tells of it.
type Unplaced struct {
	Decision   string // its id
	Pending    decision.Pending
	Candidates []machine.Candidate
	Clauses    []machine.Clause // where there is one worker alone to ask: what it said no to
}

func unplacedOf(d *decision.Decision) Unplaced {
	u := Unplaced{Decision: d.ID, Pending: d.Pending, Candidates: []machine.Candidate{}}
	for i := range d.Considered {
		u.Candidates = append(u.Candidates, d.Considered[i].Candidate)
	}
	if d.Own != nil {
		u.Clauses = d.Considered[0].Failing
	}
	return u
}

// explainError gives an error the decision as its detail, and puts the words that clients look for in front of it where
// a volume pins the machine.
func explainError(d *decision.Decision, err error, req *placement.Request) error {
	if err == nil {
		return nil
	}
	f := *fault.As(err)
	if f.Kind == fault.Exhausted && len(req.Volumes) > 0 {
		f.Scope = fault.ScopeVolume
		f.Text = "insufficient resources to create new machine with existing volume '" + req.Volumes[0] + "': " + f.Text
	}
	if _, candidates := fault.Detail[[]machine.Candidate](err); candidates || f.Detail == nil {
		f.Detail = unplacedOf(d)
	}
	return &f
}

// AskOwner has a machine's own worker start or update it, and records the decision where the worker says no: there is
// nobody else to ask, so what it says is all there is to explain. What goes well is in the machine's events.
func (b *Broker) AskOwner(why string, do func() (lifecycle.Outcome, error)) (lifecycle.Outcome, error) {
	r := b.newRecorder(why)
	out, err := do()
	f := fault.As(err)
	if f == nil || f.Kind != fault.Exhausted {
		return out, err
	}
	refusal, ok := fault.Detail[market.Refusal](err)
	if !ok {
		return out, err
	}
	took := decision.Millis(time.Since(r.began))
	d, ok := decision.FromOwner(r.id, r.began, why, &refusal, decision.Timings{Ask: took, Total: took})
	if !ok {
		return out, err
	}
	b.logDecision(d)
	told := *f
	told.Detail = unplacedOf(d)
	return out, &told
}

// Ended notes in the log that a machine is over, so that the log is a trace of how long machines live.
func (b *Broker) Ended(app, id string) {
	if b.log != nil {
		b.log.End(decision.End{App: app, Machine: id, At: time.Now()})
	}
}
