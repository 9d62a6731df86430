package placement

import (
	"cmp"
	"fmt"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// judgeFull refuses a machine more where the worker keeps as many as it may. Who asks for one that is there already
// judges by a record without Full.
func judgeFull(r *Request, w *cluster.Record, out *judging) {
	for i := range w.Full {
		if f := &w.Full[i]; fullFor(f, r) && out.refuseClause() {
			c := FullClause(f)
			out.addRefusal(false, c.Code, c.Wanted, c.Had)
		}
	}
}

// fullFor reports whether f says anything of what the request asks for.
func fullFor(f *cluster.Full, r *Request) bool {
	return (f.App == "" || f.App == r.App) &&
		(f.Namespace == "" || f.Namespace == cmp.Or(r.Namespace, cluster.DefaultNamespace))
}

// FullClause returns the clause of a worker that takes no machine more: of whom there are too many, and how many.
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
