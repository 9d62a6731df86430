package market

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Bounds of a buyer's search for a worker that evicts.
const (
	MaxEvictAsks = 8  // workers asked before it gives up: each no was one trip
	MaxProspects = 64 // workers that could, of which it takes the cheapest
)

// prospect is a worker that could take the request by evicting, as its record sums up what ranks lower.
type prospect struct {
	worker   cluster.WorkerID
	rank     int     // the highest that must go
	machines int     // of that rank, about
	score    float64 // the policy's, with them gone
}

// nextToEvict gives the worker to be asked next to evict for the request, where none has room; ok is false when there is
// none, or the request may not preempt. The order is that of the cheapest eviction, as the view has it: lowest rank
// first, then fewest machines, then the policy's score. It looks until it has MaxProspects, from a place in the view
// that its machine's id decides, so that buyers of one view differ. The worker chooses whom, anew.
func (b *Buyer) nextToEvict() (cluster.WorkerID, bool) {
	if !b.req.Scheduling.MayPreempt() || !b.req.Start || len(b.evicted) >= MaxEvictAsks {
		return "", false
	}
	var found []prospect
	all := b.view.Workers
	h := fnv.New32a()
	h.Write([]byte(b.req.Machine))
	for i := 0; i < len(all) && len(found) < MaxProspects; i++ {
		w := &all[(i+int(h.Sum32()>>1))%len(all)]
		if b.evicted[w.Worker] {
			continue
		}
		if p, ok := prospectOf(&b.req, *w, &b.policy); ok {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return "", false
	}
	best := slices.MinFunc(found, func(x, y prospect) int {
		// else the first found
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.machines, y.machines), cmp.Compare(y.score, x.score))
	})
	if b.evicted == nil {
		b.evicted = map[cluster.WorkerID]bool{}
	}
	b.evicted[best.worker] = true
	b.consent = fmt.Sprintf("no worker has room; evicts here, where it costs least: rank %d (its own is %d), "+
		"about %s",
		best.rank, b.req.Scheduling.Rank(), machinesText(best.machines))
	return best.worker, true
}

func machinesText(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}

// prospectOf takes ranks away from a record, lowest first, until the judge and the policy let the request in. Which
// device a GPU would come from the summary does not tell, so it supposes the best: a wrong guess costs a refusal.
func prospectOf(r *placement.Request, w cluster.Record, p *placement.Policy) (prospect, bool) {
	rank := r.Scheduling.Rank()
	for _, e := range w.Evictable {
		if e.Rank >= rank {
			break
		}
		short := r.Resources.Sub(w.Free())
		w.Used = w.Used.Sub(e.Resources)
		if e.Resources.GPU > 0 {
			w.GPUs = slices.Clone(w.GPUs)
			for i := range w.GPUs {
				if w.GPUs[i].Health == "" {
					w.GPUs[i].Free = 1000
				}
			}
		}
		if !p.Judge(r, &w).Fits {
			continue
		}
		n := int64(1)
		for _, d := range short.Dims() {
			if has := e.Resources.Get(d.Name); d.Amount > 0 && has > 0 {
				// as many as it takes of the size they have on average
				n = max(n, (d.Amount*int64(e.Machines)+has-1)/has)
			}
		}
		return prospect{w.Worker, e.Rank, int(n), p.ScoreAt(r, &w)}, true
	}
	return prospect{}, false
}
