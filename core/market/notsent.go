package market

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// CodeUnreachable is the clause of a worker that could not be asked.
const CodeUnreachable = "unreachable"

// standIn returns a refusal in place of an answer from a worker that was certainly not asked, so that the buyer goes
// on to the next at once. Its record is the view's own, so the view does not change.
func standIn(v *cluster.View, w cluster.WorkerID) *Refusal {
	r := &Refusal{Verdict: placement.Verdict{Failing: []machine.Clause{{Code: CodeUnreachable, Wanted: "an answer",
		Had: "no connection"}}}}
	for i := range v.Workers {
		if v.Workers[i].Worker == w {
			r.Record = v.Workers[i]
		}
	}
	return r
}

// resolveUnsent turns an ask that was certainly not delivered into a refusal. If an earlier ask to the same worker was
// lost, it becomes another lost answer, since the earlier one may have arrived.
func (in In) resolveUnsent(v *cluster.View, lost int) In {
	switch {
	case !in.NotSent:
		return in
	case lost > 0:
		return In{Lost: true, Worker: in.Worker}
	}
	return In{Refused: standIn(v, in.Worker), Worker: in.Worker}
}

func (a Answer) resolveUnsent(v *cluster.View, w cluster.WorkerID, lost int) Answer {
	switch {
	case !a.NotSent:
		return a
	case lost > 0:
		return Answer{Lost: true}
	}
	return Answer{Refused: standIn(v, w)}
}
