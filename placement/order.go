package placement

import (
	"math"
)

// order is the buckets for one class of requests, best first, as far as they are not empty: a binary heap. A bucket that
// is met empty leaves it, and comes back when a worker comes to it, which the index's log of births tells. A score is
// worked out once for a bucket, since a bucket's room never changes.
type order struct {
	heap   []scored
	listed []uint64  // a bit for each bucket: it is in the heap
	scores []float32 // for each bucket; NaN: not known, -Inf: refused
	seen   int       // births known, counted from the index's beginning
	begun  bool
	out    []scored // taken off the heap by the decision under way
}

type scored struct {
	bucket int32 // or a slot
	score  float32
}

// extend takes in the buckets that have got a worker since. One that has too little for the class at its most, as the
// judge says, is left out: none of its members fits, now or later.
func (x *Index) extend(c *class, p *Policy) {
	o := &c.order
	for len(o.scores) < len(x.buckets) {
		o.scores = append(o.scores, float32(math.NaN()))
	}
	for len(o.listed)*64 < len(x.buckets) {
		o.listed = append(o.listed, 0)
	}
	if !o.begun || o.seen < x.bornBase {
		for b := range x.buckets {
			x.list(c, p, int32(b))
		}
		o.begun = true
	} else {
		for _, b := range x.born[o.seen-x.bornBase:] {
			x.list(c, p, b)
		}
	}
	o.seen = x.bornBase + len(x.born)
}

func (x *Index) list(c *class, p *Policy, b int32) {
	o := &c.order
	if o.listed[b>>6]&(1<<(b&63)) != 0 || x.sizes[b] == 0 {
		return
	}
	s := o.scores[b]
	if s != s { // NaN
		s = float32(math.Inf(-1))
		if JudgeAt(&c.want, &x.buckets[b].recs.most).Fits {
			if v := p.ScoreAt(&c.want, &x.buckets[b].recs.middle); v == v {
				s = float32(max(v, -math.MaxFloat32))
			} else {
				s = -math.MaxFloat32
			}
		}
		o.scores[b] = s
	}
	if s < -math.MaxFloat32 {
		return
	}
	o.listed[b>>6] |= 1 << (b & 63)
	o.push(scored{b, s})
}

// nth gives the bucket at place k of those that are not empty; ok is false when there are no more.
func (o *order) nth(x *Index, k int) (scored, bool) {
	for k >= len(o.out) {
		if len(o.heap) == 0 {
			return scored{}, false
		}
		top := o.pop()
		if x.sizes[top.bucket] == 0 {
			o.listed[top.bucket>>6] &^= 1 << (top.bucket & 63)
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

// bear notes that a bucket has a worker again.
func (x *Index) bear(b int32) {
	if x.born = append(x.born, b); len(x.born) > 2*len(x.buckets)+8192 {
		half := len(x.born) / 2
		x.bornBase += half
		x.born = append(x.born[:0], x.born[half:]...)
	}
}
