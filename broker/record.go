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

// recorder keeps the facts for a decision's record that its buyer does not know: times, and which holds were taken.
type recorder struct {
	id     string
	why    string
	began  time.Time
	viewed time.Time     // when the view was read
	asks   []float64     // milliseconds of each ask
	waited time.Duration // time that counts into the next entry of asks
	last   cluster.WorkerID
	looked int // workers that the index looked at; 0: no index
	holds  []decision.Hold

	expected *decision.Decision // of a gang's member: made before its grant
}

// decisionIDs draws ascending decision ids.
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

// enterAsk enters what a worker answered to an ask of a batch, in the purchase and in its record. An undo is not
// recorded.
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
			return // a hold: its grant follows, or it is released
		}
	}
	p.Asks = append(p.Asks, x)
	r.asks, r.waited = append(r.asks, decision.Millis(r.waited)), 0
}

// noteReleased notes that room held at a worker was given back.
func (r *recorder) noteReleased(w cluster.WorkerID, in market.Answer) {
	for i := range slices.Backward(r.holds) {
		if h := &r.holds[i]; h.Worker == w && in.Done && h.Result == string(market.ResultGranted) {
			h.Result = "released"
			return
		}
	}
}

// timingsOf returns how long each step took.
func (r *recorder) timingsOf() decision.Timings {
	took := decision.Timings{View: decision.Millis(r.viewed.Sub(r.began)), Total: decision.Millis(time.Since(r.began))}
	for _, ms := range r.asks {
		took.Ask += ms
	}
	took.Rank = max(0, took.Total-took.View-took.Ask)
	return took
}

// finishDecision adds the times of the worker's answers to a decision that was made beforehand.
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

// recordAll records the outcome of an order, and returns the error for the caller.
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

// logDecision logs a decision, and counts a failed one by its reason.
func (b *Broker) logDecision(d *decision.Decision) {
	if b.log != nil {
		b.log.Append(d)
	}
	if d.Outcome != decision.Placed {
		b.metrics.refused.WithLabelValues(string(d.Pending)).Inc()
	}
}

// Unplaced is the Detail of the error of a decision that ended without a worker.
type Unplaced struct {
	Decision   string // its id
	Pending    decision.Pending
	Candidates []machine.Candidate
	Clauses    []machine.Clause // if only one worker could be asked: why it refused
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

// explainError attaches the decision to an error. If a volume pins the machine it prefixes the words that clients look
// for.
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

// AskOwner starts or updates a machine at its own worker, and records the decision if the worker refuses: no other
// worker can be asked, so its answer is the whole explanation. A success is recorded in the machine's events.
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

// Ended records in the decision log that a machine is over, so that the log shows machine lifetimes.
func (b *Broker) Ended(app, id string) {
	if b.log != nil {
		b.log.End(decision.End{App: app, Machine: id, At: time.Now()})
	}
}
