// Package ab replays the decisions of a log with two policies, each on the view of its time: which machines would be
// placed elsewhere or nowhere, and how that changes free room, regions and neighbours.
//
// Each decision is replayed alone, on the recorded view: it does not simulate the fleet that would result from the new
// policy. So it compares the policies decision by decision, and its intervals are over decisions.
package ab

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/placement"
)

// MaxMoves is how many moves a report lists; all are counted.
const MaxMoves = 1000

// Chooser returns the policy for a request.
type Chooser func(r *placement.Request) placement.Policy

// Report is the result of a replay.
type Report struct {
	Decisions int       `json:"decisions"` // replayed
	Skipped   int       `json:"skipped"`   // not replayed: their records have left the log, or they evicted
	Partial   int       `json:"partial"`   // replayed on the recorded part of a large fleet
	From      time.Time `json:"from,omitzero"`
	To        time.Time `json:"to,omitzero"`

	As       int     `json:"as_recorded"` // decisions for which the old policy chooses the recorded worker
	Same     int     `json:"same"`
	Moved    Share   `json:"moved"`         // placed elsewhere by the new policy
	OnlyBy   Refusal `json:"refused_by"`    // placed by only one of the policies
	Score    Paired  `json:"score"`         // by the new policy's own scores
	Headroom Paired  `json:"headroom"`      // free share of the scarcest dimension at the chosen worker
	Region   Paired  `json:"region"`        // index in the request's list of regions, 0 being the first
	Mates    Paired  `json:"neighbours"`    // other machines of the same app on the chosen worker
	Moves    []Move  `json:"moves"`         // the first MaxMoves
	Apps     []Count `json:"moves_by_app"`  // most first
	Into     []Count `json:"moves_to"`      // by worker, most first
	Lost     []Move  `json:"refused_moves"` // placed by the old policy but not by the new one
}

// Refusal counts what one policy places and the other does not.
type Refusal struct {
	New Share `json:"new_only"`
	Old Share `json:"old_only"`
}

// Move is one decision that differs.
type Move struct {
	Decision string           `json:"decision"`
	At       time.Time        `json:"at"`
	App      string           `json:"app"`
	Machine  string           `json:"machine"`
	From     cluster.WorkerID `json:"from,omitempty"` // by the old policy; "": nowhere
	To       cluster.WorkerID `json:"to,omitempty"`   // by the new policy; "": nowhere
	Gain     float64          `json:"gain"`           // score of To less that of From, both by the new policy
	Term     string           `json:"term,omitempty"` // the new policy's term that made the difference
	Why      string           `json:"why,omitempty"`  // why the new policy refuses From, if To is ""
}

// Count is how often something occurs.
type Count struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

// Run replays decisions one by one.
type Run struct {
	old, then Chooser
	out       Report
	moved     int
	lostNew   int
	lostOld   int
	score     pairs
	headroom  pairs
	region    pairs
	mates     pairs
	apps      map[string]int
	into      map[string]int
}

// New begins a replay of old against then.
func New(old, then Chooser) *Run {
	return &Run{old: old, then: then, apps: map[string]int{}, into: map[string]int{}}
}

// Add replays one decision. at returns the workers' records that it refers to.
func (r *Run) Add(d *decision.Decision, at decision.Recorded) {
	view, ok := decision.View(d, at)
	if !ok || d.Own != nil || len(d.Evictions) > 0 ||
		slices.ContainsFunc(d.Asks, func(a decision.Ask) bool { return a.Evict }) {
		r.out.Skipped++
		return
	}
	o := &r.out
	if o.Decisions++; o.Decisions == 1 || d.At.Before(o.From) {
		o.From = d.At
	}
	if d.At.After(o.To) {
		o.To = d.At
	}
	if !d.Complete() {
		o.Partial++
	}
	old, then := r.old(&d.Request), r.then(&d.Request)
	from, to := bestChoice(&d.Request, view, &old), bestChoice(&d.Request, view, &then)
	if first := d.Winner; from.workerID() == first || (len(d.Asks) > 0 && from.workerID() == d.Asks[0].Worker) {
		o.As++
	}
	switch {
	case from.workerID() == to.workerID():
		o.Same++
	case from.rec == nil:
		r.lostOld++
	case to.rec == nil:
		r.lostNew++
	default:
		r.moved++
	}
	if from.rec != nil && to.rec != nil {
		r.compareChoices(&d.Request, &then, from.rec, to.rec)
	}
	if from.workerID() != to.workerID() {
		r.noteDifference(d, &then, from, to)
	}
}

// chosen is the worker that a policy ranks first; rec is nil if none fits.
type chosen struct{ rec *cluster.Record }

func (c chosen) workerID() cluster.WorkerID {
	if c.rec == nil {
		return ""
	}
	return c.rec.Worker
}

func bestChoice(q *placement.Request, view cluster.View, p *placement.Policy) chosen {
	ranked := placement.Rank(*q, view, *p)
	if len(ranked) == 0 || !ranked[0].Fits {
		return chosen{}
	}
	i := slices.IndexFunc(view.Workers, func(w cluster.Record) bool { return string(w.Worker) == ranked[0].Worker })
	return chosen{&view.Workers[i]}
}

// compareChoices records the figures of both choices.
func (r *Run) compareChoices(q *placement.Request, then *placement.Policy, from, to *cluster.Record) {
	r.score.addPair(then.ScoreAt(q, from), then.ScoreAt(q, to))
	r.headroom.addPair(scarcestHeadroom(q, from), scarcestHeadroom(q, to))
	r.region.addPair(float64(placement.Nearness(*q, *from)), float64(placement.Nearness(*q, *to)))
	r.mates.addPair(float64(from.Apps[q.App]), float64(to.Apps[q.App]))
}

// scarcestHeadroom is the share of the scarcest dimension that the request leaves free.
func scarcestHeadroom(q *placement.Request, w *cluster.Record) float64 {
	least := 1.0
	free := w.Free()
	for _, d := range w.Capacity.Dims() {
		if d.Amount > 0 {
			least = min(least, float64(free.Get(d.Name)-q.Resources.Get(d.Name))/float64(d.Amount))
		}
	}
	return max(0, least)
}

func (r *Run) noteDifference(d *decision.Decision, then *placement.Policy, from, to chosen) {
	m := Move{Decision: d.ID, At: d.At, App: d.Request.App, Machine: d.Request.Machine, From: from.workerID(),
		To: to.workerID()}
	switch {
	case to.rec == nil:
		m.Why = placement.VerdictText(then.Judge(&d.Request, from.rec))
		if len(r.out.Lost) < MaxMoves {
			r.out.Lost = append(r.out.Lost, m)
		}
		return
	case from.rec != nil:
		m.Gain, m.Term = policyGain(&d.Request, then, from.rec, to.rec)
	}
	r.apps[m.App]++
	r.into[string(m.To)]++
	if len(r.out.Moves) < MaxMoves {
		r.out.Moves = append(r.out.Moves, m)
	}
}

// policyGain returns the new policy's score of to less that of from, and the term that contributes most.
func policyGain(q *placement.Request, p *placement.Policy, from, to *cluster.Record) (float64, string) {
	a, was := p.Score(*q, *from)
	b, is := p.Score(*q, *to)
	term, most := "", 0.0
	for _, t := range is { // in the order of their names: of equal ones the first counts
		before, _ := was.Get(t.Name)
		if by := t.Value - before; by > most {
			term, most = t.Name, by
		}
	}
	return b - a, term
}

// Report returns the result so far.
func (r *Run) Report() Report {
	o := r.out
	o.Moved = shareOf(r.moved, o.Decisions)
	o.OnlyBy = Refusal{New: shareOf(r.lostNew, o.Decisions), Old: shareOf(r.lostOld, o.Decisions)}
	o.Score, o.Headroom, o.Region, o.Mates = r.score.pairedResult(), r.headroom.pairedResult(), r.region.pairedResult(),
		r.mates.pairedResult()
	o.Apps, o.Into = sortedCounts(r.apps), sortedCounts(r.into)
	if o.Moves == nil {
		o.Moves = []Move{}
	}
	if o.Lost == nil {
		o.Lost = []Move{}
	}
	return o
}

func sortedCounts(of map[string]int) []Count {
	out := make([]Count, 0, len(of))
	for name, n := range of {
		out = append(out, Count{name, n})
	}
	slices.SortFunc(out, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	return out[:min(len(out), 20)]
}
