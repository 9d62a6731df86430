package backfill

import (
	"maps"
	"slices"
)

// Outlook says how long jobs really take, where their estimates are known to be wrong.
type Outlook interface {
	// Length returns how long a waiting job is expected to run.
	Length(Job) int64
	// End returns when a running job is expected to end, after now, by the time at which it ends by its estimate.
	End(now, id, end int64) int64
}

// Foresee returns when waiting jobs start if every job runs as long as expected, and no other job comes: by ids, in any
// order. It changes nothing. With a nil Outlook a job runs as long as it is estimated to, and one that has run for
// longer ends one unit from now. ids must wait; one that does not start within limit passes of the policy is left out of
// the result.
//
// Unlike Expected it knows of each job under every policy, and costs a pass of the policy for each job that ends until
// then.
func (p *Planner) Foresee(now int64, limit int, o Outlook, ids ...int64) map[int64]int64 {
	x := p.clone()
	if o != nil {
		x.expect(now, o)
	}
	want := map[int64]bool{}
	for _, id := range ids {
		want[id] = x.waits[id]
	}
	found := make(map[int64]int64, len(ids))
	for range limit {
		for _, j := range x.Start(now) {
			if want[j.ID] {
				found[j.ID] = now
			}
		}
		if len(found) == len(ids) {
			break
		}
		next := x.Wake(now)
		if len(x.running) > 0 {
			next = min(next, max(x.running[0].end, now+1))
		}
		if next == Never {
			break
		}
		now = next
		for len(x.running) > 0 && x.running[0].end <= now {
			x.End(now, x.running[0].id)
		}
	}
	return found
}

// expect replaces estimates by what is expected. A profile is made again.
func (p *Planner) expect(now int64, o Outlook) {
	for i := range p.queue {
		w := &p.queue[i]
		w.Estimate, w.start = max(1, o.Length(w.Job)), Never
	}
	for i := range p.running {
		r := &p.running[i]
		r.end = max(now+1, o.End(now, r.id, r.end))
		r.occupied = r.end
		p.ends[r.id] = r.end
	}
	slices.SortFunc(p.running, byEnd)
	if p.profile != nil {
		p.profile = NewProfile(now, p.capacity)
		for _, r := range p.running {
			p.profile.Take(now, r.end, r.need)
		}
		p.fresh, p.soonest, p.compress, p.moved, p.unplanned = len(p.queue), Never, false, false, false
	}
}

// clone returns a planner of its own that is in the same state.
func (p *Planner) clone() *Planner {
	x := *p
	x.capacity, x.free, x.extra = slices.Clone(p.capacity), slices.Clone(p.free), nil
	x.queue, x.running = slices.Clone(p.queue), slices.Clone(p.running)
	x.ends, x.waits = maps.Clone(p.ends), maps.Clone(p.waits)
	if p.profile != nil {
		x.profile = p.profile.clone()
	}
	return &x
}

func (p *Profile) clone() *Profile {
	x := &Profile{dims: p.dims}
	for _, b := range p.blocks {
		x.blocks = append(x.blocks, &block{slices.Clone(b.at), slices.Clone(b.free), slices.Clone(b.least),
			slices.Clone(b.most)})
	}
	return x
}
