package placement

import (
	"cmp"
	"fmt"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// judgeFull refuses one more machine if the worker has reached its bound. A machine that is already there is judged by
// a record without Full.
func judgeFull(r *Request, w *cluster.Record, out *judging) {
	for i := range w.Full {
		if f := &w.Full[i]; fullFor(f, r) && out.refuseClause() {
			c := FullClause(f)
			out.addRefusal(false, c.Code, c.Wanted, c.Had)
		}
	}
}

// fullFor reports whether f applies to the request.
func fullFor(f *cluster.Full, r *Request) bool {
	return (f.App == "" || f.App == r.App) &&
		(f.Namespace == "" || f.Namespace == cmp.Or(r.Namespace, cluster.DefaultNamespace))
}

// FullClause returns the clause of a worker that accepts no more machines: whose bound is reached, and how many there
// are.
func FullClause(f *cluster.Full) machine.Clause {
	c := machine.Clause{Code: CodeMachines, Wanted: "1 machine more"}
	c.Had = fmt.Sprintf("%d that are not started, with %d MiB of configs", f.Machines, f.Bytes>>20)
	switch {
	case f.App != "":
		c.Wanted += " of app " + f.App
		c.Had += ", the most of one app here: start or destroy some"
	case f.Namespace != "":
		c.Wanted += " of namespace " + f.Namespace
		c.Had += ", the most of one namespace here: start or destroy some"
	default:
		c.Had = fmt.Sprintf("%d, and %d MiB of configs that are not started, the most of one worker", f.Machines,
			f.Bytes>>20)
	}
	return c
}
