// Package whatif reports what another policy would place elsewhere: Compare for the present fleet, Replay for recorded
// decisions. It is pure, and uses policies only as placement.Policy.
package whatif

import (
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Placed is a machine and the worker it is on.
type Placed struct {
	Request placement.Request
	Worker  cluster.WorkerID
}

// Decided is a recorded decision: the request, the view it was made on, and the worker that won ("": none).
type Decided struct {
	Request placement.Request
	View    cluster.View
	Winner  cluster.WorkerID
}

// Move is a machine that another policy would place elsewhere.
type Move struct {
	Machine   string           `json:"machine"`
	App       string           `json:"app"`
	Is        cluster.WorkerID `json:"is"`         // its present worker, or the worker that the decision chose
	Old       cluster.WorkerID `json:"old"`        // where the present policy would place it now; "": nowhere
	New       cluster.WorkerID `json:"new"`        // where the other policy would place it; "": nowhere
	OldPolicy string           `json:"old_policy"` // name of the present policy
	// why the new policy refuses Old, if it does
	Why    []machine.Clause `json:"why,omitempty"`
	Gain   float64          `json:"gain,omitempty"` // otherwise: score of New less that of Old, both by the new policy
	Evicts []Evicted        `json:"evicts,omitempty"`
}

// Evicted is the evictions on one worker by which a machine that fits nowhere could start, if it may preempt.
type Evicted struct {
	Worker   cluster.WorkerID `json:"worker"`
	Rank     int              `json:"rank"` // machine.Scheduling.Rank
	Machines int              `json:"machines"`
}

// Comparison is what a policy would do differently. Applying a policy does not affect running machines: Moves are
// where machines would be placed if they were placed now.
type Comparison struct {
	Compared int    `json:"compared"`
	Same     int    `json:"same"`
	Moves    []Move `json:"moves"`   // placed elsewhere, in the order of the machines
	Nowhere  []Move `json:"nowhere"` // placed by the old policy, but not by the new one
}

// Chooser returns the policy for a request.
type Chooser func(r *placement.Request) *placement.Policy

// Best returns the worker that a policy ranks first for a resolved request; "" if none fits.
func Best(r placement.Request, view cluster.View, p placement.Policy) cluster.WorkerID {
	if ranked := placement.Rank(r, view, p); len(ranked) > 0 && ranked[0].Fits {
		return cluster.WorkerID(ranked[0].Worker)
	}
	return ""
}

// Compare reports for each machine where the old and the new policy would place it if it were placed now, with its own
// room counted as free. It moves one machine at a time: it shows how the policies differ, not how a fleet would be
// rebuilt. stop is called before each machine, and its error ends the comparison; a nil stop never ends it.
func Compare(stop func() error, view cluster.View, placed []Placed, old, then Chooser) (Comparison, error) {
	view.Workers = slices.Clone(view.Workers)
	home := make(map[string]cluster.WorkerID, len(placed))
	for i := range placed {
		home[placed[i].Request.Machine] = placed[i].Worker
	}
	where := func(m string) cluster.WorkerID { return home[m] }
	out := Comparison{Moves: []Move{}, Nowhere: []Move{}}
	for i := range placed {
		if stop != nil {
			if err := stop(); err != nil {
				return out, err
			}
		}
		p := &placed[i]
		at := slices.IndexFunc(view.Workers, func(w cluster.Record) bool { return w.Worker == p.Worker })
		if at < 0 {
			continue // its worker does not answer, so nothing is known
		}
		whole := view.Workers[at]
		view.Workers[at] = Without(whole, &p.Request)
		r := placement.Resolve(p.Request, view, where)
		out.addRequest(&r, view, p.Worker, old(&r), then(&r))
		view.Workers[at] = whole
	}
	return out, nil
}

// Replay reports which recorded decisions a policy would have made differently, each on the view of its time. Old is
// the worker that won.
func Replay(decisions []Decided, then Chooser) Comparison {
	out := Comparison{Moves: []Move{}, Nowhere: []Move{}}
	for i := range decisions {
		d := &decisions[i]
		out.judgeMove(&d.Request, d.View, Move{Machine: d.Request.Machine, App: d.Request.App, Is: d.Winner,
			Old: d.Winner},
			then(&d.Request))
	}
	return out
}

func (c *Comparison) addRequest(r *placement.Request, view cluster.View, is cluster.WorkerID, old,
	then *placement.Policy) {
	m := Move{Machine: r.Machine, App: r.App, Is: is, OldPolicy: old.Name, Old: Best(*r, view, *old)}
	c.judgeMove(r, view, m, then)
}

func (c *Comparison) judgeMove(r *placement.Request, view cluster.View, m Move, then *placement.Policy) {
	ranked := placement.Rank(*r, view, *then)
	c.Compared++
	score := map[string]float64{}
	for _, x := range ranked {
		if x.Fits {
			score[x.Worker] = x.Score
		}
		if x.Worker == string(m.Old) && !x.Fits {
			m.Why = x.Failing
		}
	}
	if len(score) > 0 {
		m.New = cluster.WorkerID(ranked[0].Worker)
	}
	switch {
	case m.New == m.Old:
		c.Same++
	case m.New == "":
		m.Evicts = evictedBy(r, view, then)
		c.Nowhere = append(c.Nowhere, m)
	default:
		if s, fits := score[string(m.Old)]; fits {
			m.Gain = score[string(m.New)] - s
		}
		c.Moves = append(c.Moves, m)
	}
}

// evictedBy returns the evictions by which the request could start under the policy: on the worker with the fewest
// machines to evict. Only a request whose band may preempt has any.
func evictedBy(r *placement.Request, view cluster.View, p *placement.Policy) []Evicted {
	if !r.Scheduling.MayPreempt() {
		return nil
	}
	rank, fewest := r.Scheduling.Rank(), -1
	var best []Evicted
	for _, w := range view.Workers {
		var goes []Evicted
		n := 0
		for _, e := range w.Evictable {
			if e.Rank >= rank {
				continue
			}
			w.Used = w.Used.Sub(e.Resources)
			goes, n = append(goes, Evicted{w.Worker, e.Rank, e.Machines}), n+e.Machines
			if p.Judge(r, &w).Fits {
				if fewest < 0 || n < fewest {
					best, fewest = goes, n
				}
				break
			}
		}
	}
	return best
}

// Without returns a worker's record without one of its machines. The record does not show which device a part of a GPU
// is on, so it is freed on the fullest possible one.
func Without(w cluster.Record, r *placement.Request) cluster.Record {
	w.Used = w.Used.Sub(r.Resources)
	w.Machines = max(0, w.Machines-1)
	if n := w.Apps[r.App]; n > 0 {
		w.Apps = maps.Clone(w.Apps)
		if w.Apps[r.App] = n - 1; n == 1 {
			delete(w.Apps, r.App)
		}
	}
	if want := r.Resources.GPU; want > 0 && len(w.GPUs) > 0 {
		w.GPUs = slices.Clone(w.GPUs)
		for want > 0 {
			part, at := min(want, 1000), -1
			for i, g := range w.GPUs {
				if (r.GPUKind == "" || g.Kind == r.GPUKind) && g.Free+part <= 1000 &&
					(at < 0 || g.Free < w.GPUs[at].Free) {
					at = i
				}
			}
			if at < 0 {
				break
			}
			w.GPUs[at].Free += part
			want -= part
		}
	}
	return w
}
