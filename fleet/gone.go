package fleet

import "time"

// How long, and of how many machines, it is remembered that they are gone: as long as what is known of a machine by its
// grant alone stands in for its worker's word.
const (
	keepGone = time.Minute
	maxGone  = 8192
)

// departed are the machines that were heard to be gone lately. Without them a machine that another member tells of,
// from its own making, would count again.
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

// noteBack notes that a worker has told of the machine since.
func (d *departed) noteBack(id string) {
	if _, known := d.at[id]; known {
		d.at[id] = time.Time{} // its place in the order stays
	}
}

func (d *departed) hasDeparted(id string, now time.Time) bool {
	at, known := d.at[id]
	return known && now.Sub(at) < keepGone
}

// Gone reports whether a worker has told, within the last minute, that it has a machine no more.
func (f *Fleet) Gone(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone.hasDeparted(id, time.Now())
}
