package chaos

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/sim/ticks"
)

// evictionBudget returns the budget of all machines: small, so that it runs out.
func evictionBudget() *machine.EvictionBudget {
	return &machine.EvictionBudget{Max: 3, Window: machine.Duration{Duration: 5 * time.Second}}
}

func tenantOf(q placement.Request, evicted bool) market.Tenant {
	return market.Tenant{Rank: q.Scheduling.Rank(), Budget: q.Scheduling.Budget(), Evicted: evicted}
}

// isLeaving reports whether a machine is already being evicted.
func (w *worker) isLeaving(id string) bool { return w.leaving[id] != "" }

// beginEvictions begins to stop the machines evicted for another. The evictions and their count are durable with the
// grant.
func (r *run) beginEvictions(w *worker, list []machine.Preemption) {
	r.rep.Evicted += len(list)
	w.evicted = append(w.evicted, list...)
	for _, p := range list {
		w.leaving[p.Machine] = p.By
		q := w.durable[p.Machine]
		w.seller.Describe(p.Machine, tenantOf(q, true))
		r.endAfterGrace(w, p.Machine)
	}
}

// endAfterGrace ends a machine after its grace. A worker that is down then does it when it is back.
func (r *run) endAfterGrace(w *worker, id string) {
	r.heap.Push(r.now+r.rng.Int64N(2*ticks.Second), func() error {
		if w.down || w.leaving[id] == "" {
			return nil
		}
		delete(w.leaving, id)
		w.stopped[id] = true
		if err := w.seller.SetUp(r.clockTime(), id, false); err != nil {
			return err
		}
		w.seller.Ready()
		r.comeBack(w, id, 5)
		return nil
	})
}

// comeBack starts an evicted machine again: in free room, or, once it has run again, also by evicting others.
func (r *run) comeBack(w *worker, id string, tries int) {
	r.heap.Push(r.now+r.rng.Int64N(4*ticks.Second), func() error {
		if q, here := w.durable[id]; here && w.stopped[id] && !w.down {
			if list, err := w.seller.Claim(r.clockTime(), q, ""); err == nil {
				if len(list) > 0 && !r.ranAgain(w, id) {
					return fmt.Errorf(broken, 7, fmt.Sprintf("%s evicts %s, and was evicted and has not run since", id,
						list[0].Machine))
				}
				delete(w.stopped, id)
				w.seller.Describe(id, tenantOf(q, false))
				r.beginEvictions(w, list)
				return nil
			}
		}
		if tries > 0 {
			r.comeBack(w, id, tries-1)
		}
		return nil
	})
}

// ranAgain reports whether an evicted machine has been up since. Here only evicted machines are down.
func (r *run) ranAgain(w *worker, id string) bool { return !w.stopped[id] }

// changeRank changes a machine's rank: only that could close a cycle of evictions.
func (r *run) changeRank() error {
	w := r.workers[r.rng.IntN(len(r.workers))]
	ids := slices.Sorted(maps.Keys(w.durable))
	if w.down || len(ids) == 0 {
		return nil
	}
	id := ids[r.rng.IntN(len(ids))]
	q := w.durable[id]
	q.Scheduling.Band = []machine.Band{machine.BandFree, machine.BandBatch, machine.BandService,
		machine.BandSystem}[r.rng.IntN(4)]
	w.durable[id] = q
	w.seller.Describe(id, tenantOf(q, w.stopped[id] || w.leaving[id] != ""))
	return nil
}

// destroyMachine destroys a machine. Machines being evicted for it still stop.
func (w *worker) destroyMachine(id string) {
	w.seller.Free(id)
	w.seller.Ready()
	delete(w.durable, id)
	delete(w.stopped, id)
	delete(w.leaving, id)
}

// recoverEvictions continues the evictions that a crash interrupted.
func (r *run) recoverEvictions(w *worker) {
	byApp, waits := map[string][]machine.Preemption{}, map[string][]string{}
	for _, p := range w.evicted {
		byApp[p.App] = append(byApp[p.App], p)
	}
	for app, list := range byApp {
		w.seller.RestoreEvictions(app, list)
	}
	for _, id := range slices.Sorted(maps.Keys(w.leaving)) {
		waits[w.leaving[id]] = append(waits[w.leaving[id]], id)
		r.endAfterGrace(w, id)
	}
	for _, id := range slices.Sorted(maps.Keys(waits)) {
		w.seller.RestoreClaim(id, waits[id])
	}
	w.seller.Ready()
	for _, id := range slices.Sorted(maps.Keys(w.stopped)) {
		r.comeBack(w, id, 5)
	}
}

// unjustEviction describes what is wrong with a worker's evictions: one that is not of lower rank, an overdrawn
// budget, a missing time stamp, or two that evict each other. It checks the newest, as earlier ones were checked
// before.
func unjustEviction(all []machine.Preemption) string {
	if len(all) == 0 {
		return ""
	}
	p, n := all[len(all)-1], 0
	for _, q := range all {
		if q.App == p.App && q.At.After(p.At.Add(-evictionBudget().Window.Duration)) {
			n++
		}
		if p.By == q.Machine && p.App == q.ByApp && q.At.After(p.At.Add(-market.NoReturn)) {
			return fmt.Sprintf("the eviction of %s for %s answers that of %s for %s", p.Machine, p.By, q.Machine, q.By)
		}
	}
	switch {
	case p.Rank >= p.ByRank:
		return fmt.Sprintf("%s of rank %d was evicted for %s of rank %d", p.Machine, p.Rank, p.By, p.ByRank)
	case n > evictionBudget().Max:
		return fmt.Sprintf("app %s lost %d machines within %v, and its budget is %d", p.App, n, evictionBudget().Window,
			evictionBudget().Max)
	case p.Rule == "" || p.By == "" || p.ByApp == "" || p.Why == "":
		return fmt.Sprintf("the eviction of %s is not stamped: %+v", p.Machine, p)
	}
	return ""
}
