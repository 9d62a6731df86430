package quota

import (
	"time"

	"github.com/soukhq/souk/cluster"
)

// Default is the namespace of an app that names none.
const Default = cluster.DefaultNamespace

// MaxNamespaces bounds the namespaces of a cluster: each is a few numbers in the record of every worker where it runs.
const MaxNamespaces = 1000

// Limits is what a worker is told of budgets: what there is in the catalog, and what all other workers spend.
type Limits struct {
	Price   Price
	Budgets map[string]Budget           // by namespace; one that is not named has no limit
	Caps    map[string]Caps             // by namespace: what it may occupy at once
	Others  map[string]cluster.Spending // by namespace: of all other workers together, as of its At
}

// Fold adds up what several workers told, as of now, so that it can be added to later as if it were one worker's.
func Fold(b Budget, told []cluster.Spending, now time.Time) cluster.Spending {
	a := Of(b, told, now)
	out := cluster.Spending{Spent: a.Spent, Lent: a.Lent, Owed: a.Owed, Rate: a.Rate, Used: a.Used, At: now}
	for _, s := range told {
		out.LentRate += s.LentRate
		out.Machines += s.Machines
	}
	return out
}
