package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Observation is what the caller that drives a buyer knows once the purchase has ended.
type Observation struct {
	ID       string
	At       time.Time // when the view was read
	Why      string    // Create, Start, ...
	Strategy string    // "" is direct
	Purchase market.Purchase
	Err      error     // the buyer's error; nil: the machine is placed
	Asked    []float64 // milliseconds of each ask of the purchase
	Holds    []Hold    // made during the purchase, in order
	Took     Timings

	// If an index decided, the purchase's View and Ranked hold only the workers to keep, and these are the totals.
	// Zero values stand for the purchase's own counts.
	Workers   int // of the fleet
	Fitting   int // workers that fit, as far as known
	Evaluated int // workers that were examined
}

// From makes the record of a purchase that has ended. Its time is proportional to the number of workers in the view.
func From(t Observation) *Decision {
	d := &Decision{ID: t.ID, At: t.At, Why: t.Why, Request: t.Purchase.Request, Strategy: t.Strategy, Took: t.Took,
		Holds:  t.Holds,
		Policy: Policy{t.Purchase.Policy.Name, t.Purchase.Policy.Version}, Workers: len(t.Purchase.View.Workers)}
	if d.Strategy == "" {
		d.Strategy = Direct
	}
	kept := min(len(t.Purchase.Ranked), max(KeepAll, KeepLosers+1)) // the records of asked workers come on top
	d.Considered = make([]Considered, 0, kept)
	d.Records = make([]*cluster.Record, 0, kept+2*len(t.Purchase.Asks))
	k := newKeeper(d, &t)
	k.keepAsks()
	k.keepOutcome()
	k.keepConsidered()
	if t.Purchase.Fleet > 0 {
		d.Workers, d.Candidates = t.Purchase.Fleet, len(t.Purchase.View.Workers)
	}
	d.Workers, d.Fitting, d.Evaluated = max(d.Workers, t.Workers), max(d.Fitting, t.Fitting), t.Evaluated
	if d.Reason = t.Purchase.Consent; d.Reason == "" || d.Winner == "" {
		d.Reason = reasonSentence(d)
		if n := t.Purchase.Policy.Best; n > 1 && d.Winner != "" && d.Strategy == Direct && d.Fitting > 1 {
			d.Reason += fmt.Sprintf("; chosen at random among the best %d", min(n, d.Fitting))
		}
	}
	return d
}

// Direct is the strategy of market.Buyer: ask the best, and the next best after a refusal.
const Direct = "direct"

// keeper gathers the records that a decision refers to.
type keeper struct {
	d *Decision
	t *Observation
	// narrow: the view has only the few workers that an index left. The decision owns it, so its records are used
	// without a copy. A record of a whole view is copied, since the log's queue would otherwise keep whole views
	// alive.
	narrow bool
	byID   map[cluster.WorkerID]int // index in the view; nil: the view is narrow, and is searched
}

func newKeeper(d *Decision, t *Observation) *keeper {
	view := t.Purchase.View.Workers
	k := &keeper{d: d, t: t, narrow: t.Purchase.Fleet > 0}
	if k.narrow {
		return k
	}
	k.byID = make(map[cluster.WorkerID]int, len(view))
	for i := range view {
		k.byID[view[i].Worker] = i
	}
	return k
}

// knownRecord returns the view's record of a worker, or nil if it has none.
func (k *keeper) knownRecord(id string) *cluster.Record {
	view := k.t.Purchase.View.Workers
	if k.narrow {
		for i := range view {
			if string(view[i].Worker) == id {
				return &view[i]
			}
		}
		return nil
	}
	if i, known := k.byID[cluster.WorkerID(id)]; known {
		return &view[i]
	}
	return nil
}

// keepRecord adds a record to those that the log writes, and returns its version. There are some tens of them at most.
func (k *keeper) keepRecord(r *cluster.Record) Ref {
	ref := RefOf(r)
	for _, x := range k.d.Records {
		if x.Worker == r.Worker && RefOf(x) == ref {
			return ref
		}
	}
	if !k.narrow {
		r = new(*r)
	}
	k.d.Records = append(k.d.Records, r)
	return ref
}

func (k *keeper) keepAsks() {
	for i := range k.t.Purchase.Asks {
		a := &k.t.Purchase.Asks[i]
		ask := Ask{Worker: a.Worker, Ref: k.keepRecord(&a.Before), Result: a.Result, Evict: a.Evict}
		if i < len(k.t.Asked) {
			ask.Millis = k.t.Asked[i]
		}
		if a.Refusal != nil {
			healed := k.keepRecord(&a.Refusal.Record)
			ask.Failing, ask.Healed = a.Refusal.Verdict.Failing, &healed
		}
		k.d.Asks = append(k.d.Asks, ask)
	}
}

func (k *keeper) keepOutcome() {
	d, err := k.d, k.t.Err
	switch {
	case err == nil:
		d.Outcome = Placed
		if n := len(d.Asks); n > 0 {
			d.Winner = d.Asks[n-1].Worker
		}
	case fault.CodeOf(err) == fault.CodeAmbiguous:
		d.Outcome, d.Pending = Ambiguous, PendingEvaluation
	case fault.Is(err, fault.Exhausted), len(k.t.Purchase.View.Workers) == 0:
		d.Outcome, d.Pending = Refused, Classify(&d.Request, k.t.Purchase.View, &k.t.Purchase.Policy)
	case fault.CodeOf(err) == fault.CodePortInUse:
		d.Outcome, d.Pending = Refused, Held
	case fault.CodeOf(err) == fault.CodeNetwork:
		d.Outcome, d.Pending = Refused, NoMatch
	default:
		d.Outcome, d.Pending = Broken, Misconfigured
	}
}

// keepConsidered keeps the ranking's workers up to the bounds, and counts the rest in groups.
func (k *keeper) keepConsidered() {
	d, ranked := k.d, k.t.Purchase.Ranked
	groups := groupList{index: map[string]int{}}
	losers := 0
	for i := range ranked {
		c := &ranked[i]
		w := k.knownRecord(c.Worker)
		if w == nil {
			continue
		}
		won := c.Worker == string(d.Winner)
		keep, never := len(ranked) <= KeepAll || won, false
		if c.Fits {
			d.Fitting++
			if !won && losers < KeepLosers {
				losers++
				keep = true
			}
		} else {
			never = placement.JudgeAt(&d.Request, w).Never
			groups.addFailing(c, w, never, &d.Request)
		}
		if keep {
			d.Considered = append(d.Considered, Considered{Candidate: *c, Ref: k.keepRecord(w), Age: ageOf(k.t.At, w),
				Never: never})
		}
	}
	for i := range groups.list {
		groups.list[i].Ref = k.keepRecord(groups.examples[i])
	}
	d.Groups = groups.list
}

func ageOf(at time.Time, w *cluster.Record) float64 {
	if w.At.IsZero() {
		return 0
	}
	return max(0, Millis(at.Sub(w.At)))
}

// groupList is workers grouped by the clauses they fail on, at most MaxGroups groups.
type groupList struct {
	list     []Group
	examples []*cluster.Record
	index    map[string]int
}

// addFailing counts a worker that fails. The example of its group is the worker with the most of the resource that the
// first clause names still free.
func (g *groupList) addFailing(c *machine.Candidate, w *cluster.Record, never bool, r *placement.Request) {
	key := groupKey(c.Failing, never)
	if i, there := g.index[key]; there {
		g.list[i].Count++
		if code := c.Failing[0].Code; r.Resources.Get(code) > 0 && w.Free().Get(code) > g.examples[i].Free().Get(code) {
			g.list[i].Example, g.list[i].Failing, g.examples[i] = w.Worker, c.Failing, w
		}
		return
	}
	if len(g.list) >= MaxGroups {
		last := &g.list[MaxGroups-1]
		if last.Codes[0] != Other {
			*last = Group{Codes: []string{Other}, Count: last.Count, Example: last.Example, Failing: last.Failing}
		}
		last.Count++
		return
	}
	g.index[key] = len(g.list)
	codes := make([]string, 0, len(c.Failing))
	for _, f := range c.Failing {
		if !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	g.list = append(g.list, Group{Codes: codes, Count: 1, Example: w.Worker, Failing: c.Failing, Never: never})
	g.examples = append(g.examples, w)
}

// Other is the code of the last group, which counts the workers that have no group of their own.
const Other = "other"

// groupKey returns a key that is equal for workers that fail on the same clauses, whatever amounts they had.
func groupKey(cs []machine.Clause, never bool) string {
	var b strings.Builder
	if never {
		b.WriteByte('!')
	}
	for _, c := range cs {
		b.WriteString(c.Code)
		switch c.Code {
		case placement.CodeHeadroom, placement.CodeStartRate: // their numbers differ by worker
		default:
			b.WriteByte(0)
			b.WriteString(c.Wanted)
		}
		b.WriteByte(1)
	}
	return b.String()
}
