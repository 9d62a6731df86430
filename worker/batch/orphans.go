package batch

import (
	"time"

	"github.com/soukhq/souk/cluster"
)

// Tasks and results that no buyer claims: their job is gone with the member that kept it.
const (
	orphansEvery = 10 * time.Second
	orphanAfter  = 24 * time.Hour // a buyer that was not connected for so long has no claim any more
	heirAfter    = time.Minute    // the heir of a member that was removed claims the tasks within this time
)

// endOrphans ends the tasks, and drops the results, of buyers that do not come back: their member was removed from the
// cluster and no other has taken over their jobs, or they were not connected for orphanAfter.
func (r *Runner) endOrphans(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tasks {
		if r.isOrphan(now, t.buyer) {
			select {
			case t.end <- "the buyer of its job does not come back":
			default: // it is being ended already
			}
		}
	}
	for name, x := range r.held {
		if r.isOrphan(now, x.buyer) {
			delete(r.held, name)
			r.gone = append(r.gone, name)
		}
	}
	for id, since := range r.left {
		if now.Sub(since) > 2*orphanAfter {
			delete(r.left, id)
		}
	}
	wakeUp(r.drop)
}

// isOrphan reports whether a buyer does not come back. "" is a buyer that has not been connected since the runner was
// made. The runner's mu is held.
func (r *Runner) isOrphan(now time.Time, buyer cluster.WorkerID) bool {
	if r.buyers[buyer] != nil {
		return false
	}
	since, known := r.left[buyer]
	if !known {
		since = r.began
	}
	away := now.Sub(since)
	return away > orphanAfter || buyer != "" && away > heirAfter && r.o.Removed(buyer)
}
