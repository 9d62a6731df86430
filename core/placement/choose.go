package placement

import (
	"slices"

	"github.com/soukhq/souk/cluster"
)

// Choose returns the index of the worker that Rank puts first, or -1 if none fits, without ranking the others. It
// leaves out workers for which skip, which may be nil, is true. Callers use it to place many requests on a ledger of
// their own.
func Choose(r *Request, workers []cluster.Record, p *Policy, skip func(cluster.WorkerID) bool) int {
	type found struct {
		at     int
		worker cluster.WorkerID
		score  float64
	}
	before := func(a, b *found) bool { return Precedes(r.Machine, a.worker, a.score, b.worker, b.score) }
	var best []found // the best first, if Policy.Best is 1
	for i := range workers {
		w := &workers[i]
		if skip != nil && skip(w.Worker) || !p.Admits(r, w) {
			continue
		}
		f := found{i, w.Worker, p.ScoreAt(r, w)}
		switch {
		case p.Best > 1 || len(best) == 0:
			best = append(best, f)
		case before(&f, &best[0]):
			best[0] = f
		}
	}
	if len(best) == 0 {
		return -1
	}
	if p.Best > 1 {
		slices.SortFunc(best, func(a, b found) int {
			if before(&a, &b) {
				return -1
			}
			return 1
		})
		best = best[:min(p.Best, len(best))]
		SortByTieBreak(best, r.Machine, func(f *found) string { return string(f.worker) })
	}
	return best[0].at
}
