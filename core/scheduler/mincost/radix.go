package mincost

import "math/bits"

type item struct {
	key  int64
	node int32
}

// radix is a monotone priority queue: no key pushed is below the last one popped. Equal keys are popped in the order
// of their arrival, so that a search over tight arcs is breadth first.
type radix struct {
	last    int64
	head    int // in buckets[0]
	size    int
	buckets [65][]item
}

func (r *radix) reset() {
	for i := range r.buckets {
		r.buckets[i] = r.buckets[i][:0]
	}
	r.last, r.head, r.size = 0, 0, 0
}

func (r *radix) pushNode(key int64, node int32) {
	b := bits.Len64(uint64(key ^ r.last))
	r.buckets[b] = append(r.buckets[b], item{key, node})
	r.size++
}

// popLeast removes and returns the item with the lowest key; the queue must not be empty.
func (r *radix) popLeast() item {
	if r.head == len(r.buckets[0]) {
		r.refillBucket()
	}
	it := r.buckets[0][r.head]
	r.head++
	r.size--
	return it
}

func (r *radix) refillBucket() {
	r.buckets[0], r.head = r.buckets[0][:0], 0
	b := 1
	for len(r.buckets[b]) == 0 {
		b++
	}
	least := r.buckets[b][0].key
	for _, it := range r.buckets[b] {
		least = min(least, it.key)
	}
	r.last = least
	for _, it := range r.buckets[b] {
		k := bits.Len64(uint64(it.key ^ least))
		r.buckets[k] = append(r.buckets[k], it)
	}
	r.buckets[b] = r.buckets[b][:0]
}
