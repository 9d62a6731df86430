package fleet

import (
	"math/rand/v2"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/index"
)

// Decider makes decisions over a fleet: it picks a worker, records the grant, and ends machines.
type Decider struct {
	Fleet      *Fleet
	Index      *index.Index
	Policy     *placement.Policy
	Placed     int
	Refused    int // requests that fitted nowhere
	Examined   int // total workers examined
	Candidates int // workers that a decision returns, best first; 0 is 1

	rng *rand.Rand
	r   placement.Request
}

// NewDecider indexes a fleet.
func NewDecider(f *Fleet, p *placement.Policy) *Decider {
	d := &Decider{Fleet: f, Index: index.New(), Policy: p, rng: rand.New(rand.NewPCG(1, 2))}
	for i := range f.Records {
		d.Index.Update(f.copyRecord(i))
	}
	return d
}

// Step makes a decision and records it. The request is resolved; it is valid until the next step.
func (d *Decider) Step() (r *placement.Request, choices []index.Choice) {
	r, choices, _ = d.Decide()
	d.Enter(r, choices)
	d.End(nil)
	return r, choices
}

// Decide is the first part of Step: choices are as PickN returns them, examined is how many workers were looked at.
func (d *Decider) Decide() (r *placement.Request, choices []index.Choice, examined int) {
	d.r = d.Index.Resolve(d.Fleet.Next(), nil)
	r = &d.r
	choices, examined = d.Index.PickN(r, d.Policy, max(1, d.Candidates), nil, d.rng)
	d.Examined += examined
	return r, choices, examined
}

// Enter is the second part: it places the machine on the best choice.
func (d *Decider) Enter(r *placement.Request, choices []index.Choice) {
	if len(choices) == 0 {
		d.Refused++
		return
	}
	d.Placed++
	d.Index.Reserve(choices[0].Worker, r)
	d.Fleet.Place(choices[0].Worker)
}

// End is the third: some machines end. gone is called with their workers; it may be nil.
func (d *Decider) End(gone func(cluster.WorkerID)) {
	for range 2 {
		id, r, ok := d.Fleet.Release()
		if !ok {
			continue
		}
		d.Index.Freed(id, &r)
		if gone != nil {
			gone(id)
		}
	}
}

// Idle does everything that Step does except deciding, to measure the cost of the request stream itself.
func (d *Decider) Idle() {
	_ = d.Fleet.Next()
	d.Fleet.Place(d.Fleet.Records[d.rng.IntN(len(d.Fleet.Records))].Worker)
	for range 2 {
		d.Fleet.Release()
	}
}

// Quality compares one choice with all workers.
type Quality struct {
	Fits   bool    // some worker fits, by a full scan
	Agrees bool    // the index agrees with the scan
	Regret float64 // (best - chosen) / best
	// (best - chosen) / (best - mean of those that fit): 0 is the best, 1 no better than a random choice
	Range  float64
	Better float64 // share of the fitting workers that score higher than the chosen one
}

// Judge makes a decision without recording it, and compares it with a scan of all workers.
func (d *Decider) Judge() Quality {
	r := d.Index.Resolve(d.Fleet.Next(), nil)
	got, _, ok := d.Index.Pick(&r, d.Policy, d.rng)
	var best, sum float64
	fit, better := 0, 0
	d.Index.Each(func(w *cluster.Record) bool {
		if d.Policy.Judge(&r, w).Fits {
			s := d.Policy.ScoreAt(&r, w)
			if fit == 0 || s > best {
				best = s
			}
			if fit++; s > got.Score {
				better++
			}
			sum += s
		}
		return true
	})
	q := Quality{Fits: fit > 0, Agrees: ok == (fit > 0)}
	if !q.Fits || !ok || best == got.Score {
		return q
	}
	mean := sum / float64(fit)
	q.Regret, q.Range, q.Better = (best-got.Score)/best, (best-got.Score)/(best-mean), float64(better)/float64(fit)
	return q
}
