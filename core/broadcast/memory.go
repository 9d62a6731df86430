package broadcast

import "time"

// trip estimates the round-trip time from acknowledgements.
type trip struct {
	least        time.Duration
	mean, spread time.Duration
}

func (t *trip) addRoundTrip(d time.Duration) {
	if t.mean == 0 {
		t.mean, t.spread = d, d/2
		return
	}
	t.spread += ((d - t.mean).Abs() - t.spread) / 4
	t.mean += (d - t.mean) / 8
}

// ackPatience returns how long to wait for an acknowledgement.
func (t *trip) ackPatience() time.Duration { return min(max(t.mean+4*t.spread, t.least), maxPatience) }

// arcKey is a hash of a message together with its arc.
func (m Message) arcKey() uint64 {
	x := m.ID ^ (uint64(m.Arc.From)<<32|uint64(m.Arc.To))*0x9e3779b97f4a7c15
	return x ^ x>>29 ^ 1
}

// recent is a set of keys in two generations: when the newer one is full, the older one is dropped.
type recent struct{ now, before map[uint64]struct{} }

func (r *recent) addKey(x uint64) {
	if r.now == nil {
		r.now = map[uint64]struct{}{}
	}
	if r.now[x] = struct{}{}; len(r.now) >= maxRecent {
		r.now, r.before = nil, r.now
	}
}

func (r *recent) hasKey(x uint64) bool {
	_, now := r.now[x]
	_, before := r.before[x]
	return now || before
}
