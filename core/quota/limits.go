package quota

import (
	"time"

	"github.com/soukhq/souk/cluster"
)

// Default is the namespace of an app that names none.
const Default = cluster.DefaultNamespace

// MaxNamespaces bounds the namespaces of a cluster: each adds a few numbers to the record of every worker where it
// runs.
const MaxNamespaces = 1000

// Limits is the budgets of the catalog, and the spending of all other workers.
type Limits struct {
	Price   Price
	Budgets map[string]Budget           // by namespace; a missing one is unlimited
	Caps    map[string]Caps             // by namespace: what it may occupy at once
	Weights map[string]float64          // by namespace: of its fair share; a missing one is 1
	Others  map[string]cluster.Spending // by namespace: sum over all other workers, as of its At
}

// Fold sums up several workers' spending as of now, in the form of one worker's.
func Fold(b Budget, told []cluster.Spending, now time.Time) cluster.Spending {
	a := Of(b, told, now)
	out := cluster.Spending{Spent: a.Spent, Lent: a.Lent, Owed: a.Owed, Rate: a.Rate, Used: a.Used, At: now}
	for _, s := range told {
		out.LentRate += s.LentRate
		out.Machines += s.Machines
	}
	return out
}
