package backfill

// decideEASY starts jobs until one does not fit, which is the head, and reserves for it: the shadow time is when the
// head fits by the estimates of what runs, and extra is what is free beside it then. A job behind it starts if it fits
// now, and either ends by the shadow time or needs no more than extra.
func (p *Planner) decideEASY(now int64) func(*waiting) (starts, last bool) {
	blocked := false
	shadow := int64(0)
	return func(w *waiting) (starts, last bool) {
		switch fits := p.free.covers(w.Need); {
		case blocked && p.free.isEmpty():
			return false, true
		case !blocked && fits:
			return true, false
		case !blocked && p.capacity.covers(w.Need):
			blocked = true
			shadow = p.shadow(now, w.Need)
			w.start = shadow
			return false, false
		case !blocked || !fits:
			return false, false
		case after(now, w.Estimate) <= shadow:
			return true, false
		case !p.extra.covers(w.Need):
			return false, false
		}
		p.extra.addScaled(w.Need, -1)
		return true, false
	}
}

// shadow returns when a job that does not fit now, but in the capacity, fits by the estimates, and leaves in p.extra what
// is free beside it then.
func (p *Planner) shadow(now int64, need Vector) int64 {
	p.extra = append(p.extra[:0], p.free...)
	at := int64(Never)
	for _, r := range p.running {
		end := max(r.end, now+1)
		if end > at {
			break
		}
		p.extra.addScaled(r.need, 1)
		if p.extra.covers(need) {
			at = end // and what ends at the same time is free too
		}
	}
	p.extra.addScaled(need, -1)
	return at
}
