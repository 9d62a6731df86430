package backfill

import "slices"

// reserve brings the profile and the reservations to now: it extends what runs past its estimate, compresses if
// something became free, and reserves for new jobs.
func (p *Planner) reserve(now int64) {
	p.profile.Forget(now)
	for i := range p.running {
		r := &p.running[i]
		if r.end > now {
			break
		}
		p.profile.Take(max(now, r.occupied), now+1, r.need)
		r.occupied = now + 1
	}
	late := p.soonest < now // Start was not asked in time
	switch {
	case p.unplanned || late || slices.Min(p.profile.FreeAt(now)) < 0:
		for i := range p.queue {
			p.unreserve(&p.queue[i])
		}
		p.unplanned, p.compress, p.moved = false, false, false
		p.soonest, p.fresh = Never, len(p.queue)
	case p.compress:
		p.compressOnce(now)
	}
	for i := len(p.queue) - p.fresh; i < len(p.queue); i++ {
		if w := &p.queue[i]; p.capacity.covers(w.Need) {
			p.reserveOne(now, w)
		}
	}
	p.fresh = 0
}

// compressOnce moves each reservation, in the order of the queue, to the earliest time that the others leave it.
func (p *Planner) compressOnce(now int64) {
	p.compress, p.moved = false, false
	for i := range p.queue {
		w := &p.queue[i]
		if before := w.start; before > now && before != Never {
			p.unreserve(w)
			p.reserveOne(now, w)
			p.moved = p.moved || w.start != before
		}
	}
}

func (p *Planner) unreserve(w *waiting) {
	if w.start != Never {
		p.profile.Release(w.start, after(w.start, w.Estimate), w.Need)
		w.start = Never
	}
}

// reserveOne reserves the earliest time for a job.
func (p *Planner) reserveOne(now int64, w *waiting) {
	if w.start = p.profile.Earliest(now, w.Estimate, w.Need); w.start != Never {
		p.profile.Take(w.start, after(w.start, w.Estimate), w.Need)
		p.soonest = min(p.soonest, w.start)
	}
}

// decideConservative starts the jobs whose reservation begins by now. They fit: the profile has what runs now.
func (p *Planner) decideConservative(now int64) func(*waiting) (starts, last bool) {
	p.soonest = Never
	return func(w *waiting) (starts, last bool) {
		if w.start <= now {
			return true, false
		}
		p.soonest = min(p.soonest, w.start)
		return false, false
	}
}
