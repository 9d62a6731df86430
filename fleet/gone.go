package fleet

import "time"

// How long, and for how many machines, the fleet remembers that they are gone: as long as a machine may be known by its
// grant alone.
const (
	keepGone = time.Minute
	maxGone  = 8192
)

// departed are the machines that recently went. Without this list a late grant from another member would bring such a
// machine back.
type departed struct {
	at    map[string]time.Time
	order []string // oldest first
}

func (d *departed) addDeparted(id string, now time.Time) {
	if d.at == nil {
		d.at = map[string]time.Time{}
	}
	if _, known := d.at[id]; !known {
		d.order = append(d.order, id)
	}
	d.at[id] = now
	for len(d.order) > maxGone || len(d.order) > 0 && now.Sub(d.at[d.order[0]]) >= keepGone {
		delete(d.at, d.order[0])
		d.order = d.order[1:]
	}
}

// noteBack records that a worker has reported the machine again.
func (d *departed) noteBack(id string) {
	if _, known := d.at[id]; known {
		d.at[id] = time.Time{} // it keeps its place in order
	}
}

func (d *departed) hasDeparted(id string, now time.Time) bool {
	at, known := d.at[id]
	return known && now.Sub(at) < keepGone
}

// Gone reports whether a worker has reported within the last minute that it no longer has a machine.
func (f *Fleet) Gone(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone.hasDeparted(id, time.Now())
}
