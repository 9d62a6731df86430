package placement

import (
	"math"
	"math/bits"
)

// order is the buckets for one class of requests, best first, as far as they are not empty: a binary heap. A bucket that
// is met empty leaves it, and waits to be taken in again when a worker comes to it. A score is worked out once for a
// bucket, since a bucket's room never changes.
type order struct {
	heap    []scored
	waiting []int32   // buckets to take in before the next decision
	scores  []float32 // for each bucket; NaN: not known, -Inf: refused
	out     []scored  // taken off the heap by the decision under way
	number  int       // of the class in its book
}

// listing says, for each bucket, which classes of a book have it in their heap or among those that wait: a bit for each
// class. When a bucket gets its first worker, a few words tell who has to hear of it, which is nearly always nobody: an
// empty bucket stays in a heap until it comes to the top.
type listing struct {
	rows  [][]uint64 // by bucket
	mask  []uint64   // the classes there are
	class []*class
}

func (l *listing) add(c *class) {
	c.order.number = len(l.class)
	if l.class = append(l.class, c); len(l.class) > 64*len(l.mask) {
		l.mask = append(l.mask, 0)
	}
	l.mask[c.order.number>>6] |= 1 << (c.order.number & 63)
}

// row gives the bits of a bucket, as long as the mask.
func (l *listing) row(b int32) []uint64 {
	for int(b) >= len(l.rows) {
		l.rows = append(l.rows, nil)
	}
	for len(l.rows[b]) < len(l.mask) {
		l.rows[b] = append(l.rows[b], 0)
	}
	return l.rows[b]
}

// bear tells the classes that have not got it that a bucket has a worker.
func (x *Index) bear(b int32) {
	for _, bk := range x.books {
		l := &bk.listing
		row := l.row(b)
		for w, mask := range l.mask {
			for missing := mask &^ row[w]; missing != 0; missing &= missing - 1 {
				o := &l.class[w<<6+bits.TrailingZeros64(missing)].order
				o.waiting = append(o.waiting, b)
			}
			row[w] |= mask
		}
	}
}

// begin has a new class wait for all buckets that are not empty.
func (x *Index) begin(l *listing, c *class) {
	l.add(c)
	k := c.order.number
	for b := range int32(len(x.buckets)) {
		if x.sizes[b] > 0 {
			l.row(b)[k>>6] |= 1 << (k & 63)
			c.order.waiting = append(c.order.waiting, b)
		}
	}
}

type scored struct {
	bucket int32 // or a slot
	score  float32
}

// extend takes in the buckets that wait. One that has too little for the class at its most, as the judge says, is left
// out for ever: none of its members fits, now or later.
func (x *Index) extend(c *class, p *Policy) {
	o := &c.order
	for len(o.scores) < len(x.buckets) {
		o.scores = append(o.scores, float32(math.NaN()))
	}
	for _, b := range o.waiting {
		s := o.scores[b]
		if s != s { // NaN
			s = x.promise(c, p, b)
			o.scores[b] = s
		}
		if s >= -math.MaxFloat32 {
			o.push(scored{b, s})
		}
	}
	o.waiting = o.waiting[:0]
}

// promise is what a bucket's workers score, about; -Inf where none of them can fit.
func (x *Index) promise(c *class, p *Policy, b int32) float32 {
	recs := x.buckets[b].recs
	if !JudgeAt(&c.want, &recs.most).Fits {
		return float32(math.Inf(-1))
	}
	if v := p.ScoreAt(&c.want, &recs.middle); v > -math.MaxFloat32 { // false for what is not a number
		return float32(min(v, math.MaxFloat32))
	}
	return -math.MaxFloat32
}

// nth gives the bucket at place k of those that are not empty; ok is false when there are no more.
func (o *order) nth(x *Index, l *listing, k int) (scored, bool) {
	for k >= len(o.out) {
		if len(o.heap) == 0 {
			return scored{}, false
		}
		top := o.pop()
		if x.sizes[top.bucket] == 0 {
			l.rows[top.bucket][o.number>>6] &^= 1 << (o.number & 63)
			continue
		}
		o.out = append(o.out, top)
	}
	return o.out[k], true
}

// restore ends a decision: what was taken off goes back.
func (o *order) restore() {
	for _, s := range o.out {
		o.push(s)
	}
	o.out = o.out[:0]
}

func (s scored) before(t scored) bool {
	return s.score > t.score || (s.score == t.score && s.bucket < t.bucket)
}

func (o *order) push(s scored) {
	h := append(o.heap, s)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !s.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i], o.heap = s, h
}

func (o *order) pop() scored {
	h := o.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	o.heap = h
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = last
	}
	return top
}
