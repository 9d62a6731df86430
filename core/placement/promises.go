package placement

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// judgePromises refuses a machine that requests may wake where the worker has no more to promise: it counts what would
// be used if all such machines were awake. Disk is not promised, since a machine keeps it while it sleeps. A machine
// that is already there is judged by a record without a limit.
func judgePromises(r *Request, w *cluster.Record, out *judging) {
	if !r.Wakes || w.PromiseLimit <= 0 {
		return
	}
	for _, d := range r.Resources.Dims() {
		most := w.Promisable(d.Name)
		left := most - w.Used.Get(d.Name) - w.Promised.Get(d.Name)
		switch {
		case d.Name == "disk" || d.Amount <= max(0, left):
			// it can be promised
		case !out.refuseClause():
			return
		default:
			out.addRefusal(d.Amount > most, CodePromised, d.Name+" "+d.Format(d.Amount),
				d.Format(max(0, left))+" left to promise of "+d.Format(most))
		}
	}
}

// Promises returns the clauses by which a worker refuses to promise a machine what r wants; nil if it promises.
func Promises(r *Request, w *cluster.Record) []machine.Clause {
	var j judging
	judgePromises(r, w, &j)
	return j.Failing
}
