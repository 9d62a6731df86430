package placement

import (
	"slices"

	"github.com/soukhq/souk/cluster"
)

// CountFits returns how many machines of the request fit on a worker, one after the other, up to limit.
func CountFits(req Request, rec cluster.Record, limit int) int {
	rec.Starting = 0 // over time, not all at once
	n := 0
	for n < limit && Judge(req, rec).Fits {
		rec.Used = rec.Used.Add(req.Resources)
		n++
		if req.Resources.IsZero() {
			return limit
		}
	}
	return n
}

// Spread places count machines on copies of the records, as buyers would, and counts them by region. Machines that do
// not fit are not counted.
func Spread(req Request, view cluster.View, policy Policy, count int) map[cluster.Region]int {
	view.Workers = slices.Clone(view.Workers)
	counts := map[cluster.Region]int{}
	for range count {
		best := Rank(req, view, policy)
		if len(best) == 0 || !best[0].Fits {
			return counts
		}
		for i := range view.Workers {
			w := &view.Workers[i]
			if string(w.Worker) == best[0].Worker {
				w.Used = w.Used.Add(req.Resources)
				counts[w.Region]++
			}
		}
	}
	return counts
}
