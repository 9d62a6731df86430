package market

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Bounds of a buyer's search for a worker to evict on.
const (
	MaxEvictAsks = 8  // workers asked before it gives up: each refusal costs one round trip
	MaxProspects = 64 // candidate workers considered, of which it takes the cheapest
)

// prospect is a worker that could take the request by evicting, going by its record's summary of lower ranks.
type prospect struct {
	worker   cluster.WorkerID
	rank     int     // the highest rank to evict
	machines int     // of that rank, approximately
	score    float64 // by the policy, after the evictions
}

// nextToEvict returns the next worker to ask to evict for the request, when none has room; ok is false if there is
// none, or the request may not preempt. The cheapest eviction by the view comes first: lowest rank, then fewest
// machines, then the policy's score. The search stops at MaxProspects, and starts at a place in the view given by the
// machine's ID, so that buyers with the same view differ. The worker itself chooses the machines to evict.
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
		// otherwise the first found
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

// prospectOf removes ranks from a record, lowest first, until the judge and the policy accept the request. The summary
// does not say which devices a rank has, so it assumes the best case: a wrong guess costs a refusal.
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
				// as many machines of average size as are needed
				n = max(n, (d.Amount*int64(e.Machines)+has-1)/has)
			}
		}
		return prospect{w.Worker, e.Rank, int(n), p.ScoreAt(r, &w)}, true
	}
	return prospect{}, false
}
