package jobs

import "github.com/soukhq/souk/cluster"

// maxKeepers bounds the jobs of one worker's Keepers.
const maxKeepers = 10_000

// Keepers is what a worker knows of the members that have taken over jobs: it obeys the one whose claim ranks highest.
// Its zero value knows nothing, and obeys every buyer. It is in memory alone: after a restart the worker obeys whom it
// hears first, until it hears of a larger epoch.
type Keepers struct {
	of map[string]Claim // by job
}

// Hear notes what a buyer claims as it connects. It returns the claims of others that rank above the buyer's, whose jobs
// are not the buyer's any more.
func (k *Keepers) Hear(h *Hello) (rivals []Claim) {
	for _, id := range h.Jobs {
		if r := k.rivalOf(Claim{Job: id, Epoch: h.Epochs[id], By: h.Buyer}); r != nil {
			rivals = append(rivals, *r)
		}
	}
	return rivals
}

// RivalOf returns the claim that ranks above that of a buyer which grants an attempt; nil: there is none.
func (k *Keepers) RivalOf(buyer cluster.WorkerID, l Life) *Claim {
	return k.rivalOf(Claim{Job: l.Job, Epoch: EpochOf(l.Attempt), By: buyer})
}

func (k *Keepers) rivalOf(c Claim) *Claim {
	old, known := k.of[c.Job]
	switch {
	case known && old.By != c.By && old.Outranks(&c):
		return &old
	case c.Epoch == 0 || known && !c.Outranks(&old):
		return nil
	}
	if k.of == nil || !known && len(k.of) >= maxKeepers {
		k.of = map[string]Claim{}
	}
	k.of[c.Job] = c
	return nil
}
