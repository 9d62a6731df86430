// Package ticks is the simulator's clock: a heap of future events, ordered by time and then by insertion, so that a
// run is repeatable by its seed.
//
// Times are whole microseconds. Once the backing arrays have grown to the largest number of waiting ticks, nothing is
// allocated.
package ticks

// Time is a moment of simulated time: microseconds since the run began.
type Time = int64

// Microseconds in the larger units.
const (
	Millisecond Time = 1000
	Second      Time = 1000 * Millisecond
)

// Seconds converts t to seconds.
func Seconds(t Time) float64 { return float64(t) / float64(Second) }

type entry[T any] struct {
	at   Time
	seq  uint64
	what T
}

func (e *entry[T]) isBefore(f *entry[T]) bool {
	return e.at < f.at || (e.at == f.at && e.seq < f.seq)
}

// Heap keeps ticks of type T. The zero Heap is empty and ready. It is for one goroutine.
//
// Most events are messages with equal delays: they arrive in the order of sending, and are kept in a ring at constant
// cost. All others go to a 4-ary heap. Pop takes the earlier of the two, so the choice affects only the speed, never
// the order.
type Heap[T any] struct {
	tree []entry[T]
	ring []entry[T] // its length is a power of two
	head int        // index of the ring's first tick
	size int        // ticks in the ring
	seq  uint64
}

// Len returns the number of waiting ticks.
func (h *Heap[T]) Len() int { return len(h.tree) + h.size }

// Push adds a tick.
func (h *Heap[T]) Push(at Time, what T) {
	h.seq++
	h.tree = append(h.tree, entry[T]{at, h.seq, what})
	h.siftUp(len(h.tree) - 1)
}

// Send is Push for ticks that are mostly added in the order of their times, such as messages with one delay.
func (h *Heap[T]) Send(at Time, what T) {
	if h.size > 0 && at < h.ring[(h.head+h.size-1)&(len(h.ring)-1)].at {
		h.Push(at, what)
		return
	}
	if h.size == len(h.ring) {
		h.growHeap()
	}
	h.seq++
	h.ring[(h.head+h.size)&(len(h.ring)-1)] = entry[T]{at, h.seq, what}
	h.size++
}

// Next returns the time of the earliest tick; ok is false if there is none.
func (h *Heap[T]) Next() (at Time, ok bool) {
	switch {
	case h.Len() == 0:
		return 0, false
	case h.ringFirst():
		return h.ring[h.head].at, true
	default:
		return h.tree[0].at, true
	}
}

// Pop removes and returns the earliest tick; ok is false if there is none.
func (h *Heap[T]) Pop() (at Time, what T, ok bool) {
	if h.ringFirst() {
		e := &h.ring[h.head]
		h.head = (h.head + 1) & (len(h.ring) - 1)
		h.size--
		return e.at, e.what, true
	}
	n := len(h.tree) - 1
	if n < 0 {
		return 0, what, false
	}
	at, what = h.tree[0].at, h.tree[0].what
	last := h.tree[n]
	h.tree[n] = entry[T]{} // release what it points to
	h.tree = h.tree[:n]
	if n > 0 {
		h.siftDown(last)
	}
	return at, what, true
}

func (h *Heap[T]) ringFirst() bool {
	return h.size > 0 && (len(h.tree) == 0 || h.ring[h.head].isBefore(&h.tree[0]))
}

func (h *Heap[T]) growHeap() {
	bigger := make([]entry[T], max(64, 2*len(h.ring)))
	n := copy(bigger, h.ring[h.head:])
	copy(bigger[n:], h.ring[:h.head])
	h.ring, h.head = bigger, 0
}

func (h *Heap[T]) siftUp(i int) {
	e := h.tree[i]
	for i > 0 {
		p := (i - 1) / 4
		if !e.isBefore(&h.tree[p]) {
			break
		}
		h.tree[i] = h.tree[p]
		i = p
	}
	h.tree[i] = e
}

// siftDown moves e from the root to its place.
func (h *Heap[T]) siftDown(e entry[T]) {
	i, n := 0, len(h.tree)
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, n); c++ {
			if h.tree[c].isBefore(&h.tree[least]) {
				least = c
			}
		}
		if !h.tree[least].isBefore(&e) {
			break
		}
		h.tree[i] = h.tree[least]
		i = least
	}
	h.tree[i] = e
}
