package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/decisionlog"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// taking is one placement while it is made: what its record will need that the buyer does not know.
type taking struct {
	g      *Gateway
	id     string
	why    string
	begin  time.Time
	viewed time.Time
	asks   []float64     // milliseconds
	waited time.Duration // for answers that the next of asks will count
	last   cluster.WorkerID
	looked int // workers that an index looked at; 0: there was none
	holds  []decision.Hold
}

// decisionIDs draws the ids of decisions, each above the one before.
type decisionIDs struct {
	mu   sync.Mutex
	last string
}

func (d *decisionIDs) next(now time.Time, chance machine.Entropy) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = machine.NextULID(d.last, now, chance)
	return d.last
}

// taken begins the record of a placement.
func (g *Gateway) taken(why string) *taking {
	now := time.Now()
	return &taking{g: g, id: g.decided.next(now, entropy{g.rand}), why: why, begin: now}
}

// asked notes how long a worker took to answer. Repeats of one ask add up.
func (t *taking) asked(w cluster.WorkerID, took time.Duration) {
	if n := len(t.asks); n > 0 && t.last == w {
		t.asks[n-1] += decision.Millis(took)
		return
	}
	t.asks, t.last = append(t.asks, decision.Millis(took)), w
}

// released notes that room which was held at a worker has been given back.
func (t *taking) released(w cluster.WorkerID, in market.Answer) {
	for i := range slices.Backward(t.holds) {
		if h := &t.holds[i]; h.Worker == w && in.Done && h.Result == string(market.ResultGranted) {
			h.Result = "released"
			return
		}
	}
}

// end records what came of the placement, and gives the error that whoever asked is told.
func (t *taking) end(trail market.Purchase, shadow *machine.Shadow, err error) error {
	if t.g.decisions == nil && err == nil {
		return nil
	}
	d := decision.From(t.taken(trail, trail.Request.Scheduling.Strategy, err))
	d.Shadow = shadow
	return t.told(d, trail.Request, err)
}

// taken is what a decision's record is made of.
func (t *taking) taken(trail market.Purchase, strategy string, err error) decision.Taken {
	took := decision.Timings{View: decision.Millis(t.viewed.Sub(t.begin)), Total: decision.Millis(time.Since(t.begin))}
	for _, ms := range t.asks {
		took.Ask += ms
	}
	took.Rank = max(0, took.Total-took.View-took.Ask)
	return decision.Taken{ID: t.id, Evaluated: t.looked, At: t.viewed, Why: t.why, Strategy: strategy, Purchase: trail, Err: err, Asked: t.asks, Holds: t.holds, Took: took}
}

// noteDecision logs a decision, and counts it by its reason where nothing came of it.
func (g *Gateway) noteDecision(d *decision.Decision) {
	if g.decisions != nil {
		g.decisions.Append(d)
	}
	if d.Outcome != decision.Placed {
		g.metrics.refused.WithLabelValues(string(d.Pending)).Inc()
	}
}

// told logs a decision, and gives the error that whoever asked is told.
func (t *taking) told(d *decision.Decision, req placement.Request, err error) error {
	t.g.noteDecision(d)
	if err == nil {
		return nil
	}
	f := *fault.As(placeFault(err, req))
	if _, candidates := f.Detail.([]machine.Candidate); candidates || f.Detail == nil {
		f.Detail = unplaced(d)
	}
	return &f
}

// askOwner has a machine's own worker start or update it, and records the decision where the worker says no: there is nobody
// else to ask, so what it says is all there is to explain. What goes well is in the machine's events.
func (g *Gateway) askOwner(why string, do func() (lifecycle.Outcome, error)) (lifecycle.Outcome, error) {
	t := g.taken(why)
	out, err := do()
	f := fault.As(err)
	if f == nil || f.Kind != fault.Exhausted {
		return out, err
	}
	refusal, ok := f.Detail.(market.Refusal)
	if !ok {
		return out, err
	}
	took := decision.Millis(time.Since(t.begin))
	d, ok := decision.FromOwner(t.id, t.begin, why, &refusal, decision.Timings{Ask: took, Total: took})
	if !ok {
		return out, err
	}
	g.noteDecision(d)
	told := *f
	told.Detail = unplaced(d)
	return out, &told
}

// ended notes in the log that a machine is over, so that the log is a trace of how long machines live.
func (g *Gateway) ended(app, id string) {
	if g.decisions != nil {
		g.decisions.End(decision.End{App: app, Machine: id, At: time.Now()})
	}
}

// unplacedDetail is why a decision ended without a worker, as the error's answer tells it.
type unplacedDetail struct {
	id         string
	pending    decision.Pending
	candidates []machine.Candidate
	clauses    []machine.Clause // where there is one worker alone to ask: what it said no to
}

func unplaced(d *decision.Decision) unplacedDetail {
	u := unplacedDetail{id: d.ID, pending: d.Pending, candidates: []machine.Candidate{}}
	for i := range d.Considered {
		u.candidates = append(u.candidates, d.Considered[i].Candidate)
	}
	if d.Own != nil {
		u.clauses = d.Considered[0].Failing
	}
	return u
}

// resolve fills in what a request needs to know of the fleet.
func (g *Gateway) resolve(ctx context.Context, r placement.Request, view cluster.View) placement.Request {
	var homes map[string]cluster.WorkerID
	return placement.Resolve(r, view, func(id string) cluster.WorkerID {
		if homes == nil {
			homes = map[string]cluster.WorkerID{}
			for i, list := range machinesOf(ctx, g.workers()) {
				for _, m := range list {
					homes[m.ID] = g.workers()[i].ID()
				}
			}
		}
		return homes[id]
	})
}

func machinesOf(ctx context.Context, workers []Worker) [][]*machine.Machine {
	lists, _ := fanOut(workers, func(w Worker) ([]*machine.Machine, error) { return w.Machines(ctx, "", false) })
	return lists // of a worker that does not answer: none, as nobody knows where its machines are
}

func (g *Gateway) listDecisions(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	q := decisionlog.Query{App: v.Get("app"), Machine: v.Get("machine"), Before: v.Get("cursor"), Outcome: decision.Outcome(v.Get("outcome"))}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > decisionlog.MaxFound {
			return fault.New(fault.Invalid, "limit", "limit is a number from 1 to %d, not %q", decisionlog.MaxFound, clip(text, 40))
		}
		q.Limit = n
	}
	if text := v.Get("since"); text != "" {
		var err error
		if q.Since, err = sinceText(text, time.Now()); err != nil {
			return err
		}
	}
	found, err := g.findDecisions(r.Context(), q)
	if err != nil {
		return err
	}
	page := api.DecisionPage{Decisions: append([]*decision.Decision{}, found.Decisions...), Notes: notesOf(found)}
	if found.More {
		page.NextCursor = found.Decisions[len(found.Decisions)-1].ID
	}
	answer(w, http.StatusOK, page)
	return nil
}

// sinceText reads an RFC 3339 time, or how long ago: 90s, 24h.
func sinceText(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fault.New(fault.Invalid, "since", "since is a time as 2026-01-02T15:04:05Z, or how long ago as 24h, not %q", clip(text, 40))
	}
	return t, nil
}

// findDecisions asks the log. Without one there is nothing to find.
func (g *Gateway) findDecisions(ctx context.Context, q decisionlog.Query) (decisionlog.Found, error) {
	if g.decisions == nil {
		return decisionlog.Found{}, nil
	}
	return g.decisions.Find(ctx, q)
}

// notesOf says what of the log was passed over. The paths are the operator's business, and are in the log.
func notesOf(f decisionlog.Found) (notes []string) {
	for _, t := range f.Torn {
		notes = append(notes, "the end of "+t.File+" was not written whole: "+strconv.FormatInt(t.Bytes, 10)+" bytes are passed over")
	}
	if f.Damage != nil {
		notes = append(notes, f.Damage.Error())
	}
	return notes
}

func (g *Gateway) getDecision(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("decision")
	found, err := g.findDecisions(r.Context(), decisionlog.Query{ID: id, Limit: 1})
	if err != nil {
		return err
	}
	if len(found.Decisions) == 0 {
		if found.Damage != nil {
			return found.Damage
		}
		return fault.New(fault.NotFound, "decision", "no decision has the id %s: it may have been too long ago for the log", clip(id, 40))
	}
	answer(w, http.StatusOK, api.ExplainedDecision{Decision: found.Decisions[0], Sentences: decision.Explain(found.Decisions[0])})
	return nil
}

func (g *Gateway) getView(w http.ResponseWriter, r *http.Request) error {
	view, byID := g.view(r.Context())
	out := api.FleetView{At: view.At, Workers: []api.AgedRecord{}, Unreachable: []api.UnreachableWorker{}}
	for _, k := range view.Workers {
		out.Workers = append(out.Workers, api.AgedRecord{Age: max(0, decision.Millis(view.At.Sub(k.At))), Record: k})
	}
	for _, k := range g.workers() {
		if byID[k.ID()] == nil {
			out.Unreachable = append(out.Unreachable, api.UnreachableWorker{Worker: k.ID(), Error: "it does not answer"})
		}
	}
	answer(w, http.StatusOK, out)
	return nil
}
