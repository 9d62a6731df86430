package decision

import (
	"fmt"
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// codeRecorded says that a replay repeats a recorded failure.
const codeRecorded fault.Code = "recorded"

// Recorded returns a version of a worker's record from the log.
type Recorded func(cluster.WorkerID, Ref) (cluster.Record, bool)

// Verify recomputes a decision: every clause, every score with its terms, the clauses of each refusal, and the order
// in which the buyer asks. It lists the differences from the record, and is empty if there are none. p must be the
// policy that the decision names.
func Verify(d *Decision, at Recorded, p placement.Policy) []string {
	v := verifier{d: d, at: at, p: p}
	if d.Own != nil {
		v.verifyOwnWorker()
		return v.wrong
	}
	for i := range d.Considered {
		v.verifyCandidate(&d.Considered[i])
	}
	for i := range d.Groups {
		g := &d.Groups[i]
		if w, ok := v.recordedVersion(g.Example, g.Ref); ok {
			v.compareClauses(string(g.Example), p.Judge(&d.Request, &w).Failing, g.Failing)
		}
	}
	for i := range d.Asks {
		a := &d.Asks[i]
		if a.Healed == nil || len(a.Failing) == 0 {
			continue
		}
		if w, ok := v.recordedVersion(a.Worker, *a.Healed); ok {
			v.compareClauses("the refusal of "+string(a.Worker), placement.JudgeAt(&d.Request, &w).Failing, a.Failing)
		}
	}
	if d.Strategy == Direct && d.Evaluated == 0 && d.Candidates == 0 && p.Best <= 1 && len(v.wrong) == 0 {
		v.replayDecision()
	}
	return v.wrong
}

// verifyOwnWorker recomputes the answer of a machine's own worker.
func (v *verifier) verifyOwnWorker() {
	for i := range v.d.Considered {
		c := &v.d.Considered[i]
		w, ok := v.recordedVersion(cluster.WorkerID(c.Worker), c.Ref)
		if !ok {
			continue
		}
		got := v.d.Own.Judge(v.d.Request, w)
		v.compareClauses(c.Worker, got.Failing, c.Failing)
		if got.Fits != c.Fits || got.Fits {
			v.addProblem("%s: fits is recorded as %v, and the judge says %v; a start that fits is not recorded",
				c.Worker,
				c.Fits, got.Fits)
		}
	}
}

type verifier struct {
	d     *Decision
	at    Recorded
	p     placement.Policy
	wrong []string
}

func (v *verifier) addProblem(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
}

func (v *verifier) recordedVersion(worker cluster.WorkerID, ref Ref) (cluster.Record, bool) {
	w, ok := v.at(worker, ref)
	if !ok {
		v.addProblem("the log has no record of %s at version %d of incarnation %d", worker, ref.Version,
			ref.Incarnation)
	}
	return w, ok
}

func (v *verifier) compareClauses(who string, got, recorded []machine.Clause) {
	if !slices.Equal(got, recorded) {
		v.addProblem("%s: recorded %v, and the judge says %v", who, recorded, got)
	}
}

func (v *verifier) verifyCandidate(c *Considered) {
	w, ok := v.recordedVersion(cluster.WorkerID(c.Worker), c.Ref)
	if !ok {
		return
	}
	verdict := v.p.Judge(&v.d.Request, &w)
	v.compareClauses(c.Worker, verdict.Failing, c.Failing)
	if verdict.Fits != c.Fits {
		v.addProblem("%s: fits is recorded as %v, and the judge says %v", c.Worker, c.Fits, verdict.Fits)
	}
	if !c.Fits || !verdict.Fits {
		return
	}
	score, terms := v.p.Score(v.d.Request, w)
	if score != c.Score || !slices.Equal(terms, c.Terms) {
		v.addProblem("%s: the score is recorded as %v %v, and is %v %v", c.Worker, c.Score, c.Terms, score, terms)
	}
}

// View returns the workers that a decision recorded, as the buyer knew them at its start, ordered by ID. It is the
// whole view if the decision is Complete.
func View(d *Decision, at Recorded) (cluster.View, bool) {
	refs := map[cluster.WorkerID]Ref{}
	for i := range d.Considered {
		refs[cluster.WorkerID(d.Considered[i].Worker)] = d.Considered[i].Ref
	}
	for i := range d.Groups {
		if _, there := refs[d.Groups[i].Example]; !there {
			refs[d.Groups[i].Example] = d.Groups[i].Ref
		}
	}
	for i := len(d.Asks) - 1; i >= 0; i-- { // the first ask of a worker counts: later ones know its refusal
		refs[d.Asks[i].Worker] = d.Asks[i].Ref
	}
	view := cluster.View{At: d.At}
	for _, id := range slices.Sorted(maps.Keys(refs)) {
		w, ok := at(id, refs[id])
		if !ok {
			return view, false
		}
		view.Workers = append(view.Workers, w)
	}
	return view, true
}

// replayDecision runs a buyer through the decision again, with the recorded answers.
func (v *verifier) replayDecision() {
	d := v.d
	view, ok := View(d, v.at)
	if !ok {
		v.addProblem("the log lacks records of workers that were asked")
		return
	}
	b := market.NewBuyer(d.Request, view, v.p)
	out := b.Step(market.In{})
	for i := range d.Asks {
		a := &d.Asks[i]
		if out.Done || out.Ask != a.Worker {
			v.addProblem("ask %d went to %s, and the buyer would ask %q", i+1, a.Worker, out.Ask)
			return
		}
		if out, ok = v.recordedAnswer(b, a); !ok {
			return
		}
	}
	switch {
	case d.Outcome == Broken:
	case !out.Done:
		v.addProblem("the decision ended, and the buyer would ask %s", out.Ask)
	case (out.Err == nil) != (d.Outcome == Placed):
		v.addProblem("the outcome is recorded as %s, and the buyer ends with: %v", d.Outcome, out.Err)
	case d.Outcome == Ambiguous && fault.CodeOf(out.Err) != fault.CodeAmbiguous:
		v.addProblem("the outcome is recorded as ambiguous, and the buyer ends with: %v", out.Err)
	}
}

// recordedAnswer passes the recorded answer of an ask to the buyer.
func (v *verifier) recordedAnswer(b *market.Buyer, a *Ask) (market.Out, bool) {
	in := market.In{Worker: a.Worker}
	switch a.Result {
	case market.ResultGranted:
		in.Granted = true
	case market.ResultRefused:
		in.Refused = &market.Refusal{Verdict: placement.Verdict{Failing: a.Failing}}
		if a.Healed != nil {
			w, ok := v.recordedVersion(a.Worker, *a.Healed)
			if !ok {
				return market.Out{}, false
			}
			in.Refused.Record = w
		}
	case market.ResultLost:
		in.Lost = true
		for range market.MaxLost {
			if out := b.Step(in); out.Done {
				return out, true
			}
		}
	default:
		in.Failed = fault.New(fault.Invalid, codeRecorded, "the step failed, as it did when it was recorded")
	}
	return b.Step(in), true
}
