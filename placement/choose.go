package placement

import (
	"slices"

	"github.com/soukhq/souk/cluster"
)

// Choose gives the index of the worker that Rank puts first, or -1 where none fits, without ranking the others. Those that
// skip names are left out; it may be nil. It is for who places many requests on a ledger of his own, one after the other.
func Choose(r *Request, workers []cluster.Record, p *Policy, skip func(cluster.WorkerID) bool) int {
	type found struct {
		at int
		Choice
	}
	var best []found // first the best, as long as Policy.Best is 1
	for i := range workers {
		w := &workers[i]
		if skip != nil && skip(w.Worker) || !p.admits(r, w) {
			continue
		}
		f := found{i, Choice{Worker: w.Worker, Score: p.ScoreAt(r, w)}}
		switch {
		case p.Best > 1 || len(best) == 0:
			best = append(best, f)
		case f.before(&best[0].Choice, r.Machine):
			best[0] = f
		}
	}
	if len(best) == 0 {
		return -1
	}
	if p.Best > 1 {
		slices.SortFunc(best, func(a, b found) int {
			if a.before(&b.Choice, r.Machine) {
				return -1
			}
			return 1
		})
		best = best[:min(p.Best, len(best))]
		byLot(best, r.Machine, func(f *found) string { return string(f.Worker) })
	}
	return best[0].at
}
