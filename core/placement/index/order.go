package index

import (
	"cmp"
	"math"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// order is the cells for one class of requests, best first, without cells that have too little room for the class. It
// does not change when workers come and go: an empty cell is skipped, at the cost of reading one word that all classes
// share. A bucket's score is computed when a decision first needs it, and stays valid, since the room that a bucket
// represents never changes.
type order struct {
	cells  []ranked
	seen   int          // cells of the index that are in order or left out
	blocks []block      // by cell
	scores []scoreDelta // of buckets, relative to the middle of their cell
}

// block is where the scores of a cell's buckets begin (-1: none yet), and the cell's middle score.
type block struct {
	at     int32
	middle float32
}

// scoreDelta is the upper half of a float32: its full range, and a precision of a hundredth. Decisions read mostly
// bucket scores, so half the bytes are half the cache misses.
type scoreDelta uint16

// unknownScore is a NaN: the bucket's score is not computed yet.
const unknownScore = scoreDelta(0x7fc0)

func (h scoreDelta) float() float32 { return math.Float32frombits(uint32(h) << 16) }

// deltaOver returns v less middle. It is -Inf only if v is.
func deltaOver(v, middle float32) scoreDelta {
	d := v - middle
	if v >= -math.MaxFloat32 {
		d = max(d, -math.MaxFloat32)
	}
	return scoreDelta(math.Float32bits(d) >> 16)
}

// ranked is a cell, and the middle of its buckets' scores. Scores of cells overlap. A decision skips cells whose
// middle is below the best bucket so far: that is much cheaper than comparing each cell's best bucket, and costs
// little quality.
type ranked struct {
	cell   int32
	block  int32 // index in order.scores, or -1
	middle float32
}

// scored is a bucket, or a row, and its score.
type scored struct {
	bucket int32
	score  float32
}

// extendClass adds new cells to the order. A cell whose most room is too little for the class is left out for ever:
// none of its workers fits, now or later.
func (x *Index) extendClass(c *class, p *placement.Policy) {
	o := &c.order
	before, rec := len(o.cells), &x.scratch.rec
	for ; o.seen < len(x.cells); o.seen++ {
		n := int32(o.seen)
		o.blocks = append(o.blocks, block{at: -1})
		if !placement.FitsAt(&c.want, &x.cells[n].recs.most) {
			continue
		}
		low, high := float32(math.Inf(1)), float32(math.Inf(-1))
		*rec = x.cells[n].recs.middle
		for _, sub := range [...]int32{0, inCell - 1, perCell - inCell, perCell - 1} { // the corner buckets
			s := x.scoreBucket(c, p, rec, n*perCell+sub)
			low, high = min(low, s), max(high, s)
		}
		o.blocks[n].middle = low/2 + high/2
		o.cells = append(o.cells, ranked{n, -1, o.blocks[n].middle})
	}
	switch fresh := len(o.cells) - before; {
	case fresh > 8:
		slices.SortFunc(o.cells, compareRanked)
	case fresh > 0:
		for k := before; k < len(o.cells); k++ {
			r := o.cells[k]
			at, _ := slices.BinarySearchFunc(o.cells[:k], r, compareRanked)
			copy(o.cells[at+1:k+1], o.cells[at:k])
			o.cells[at] = r
		}
	}
}

func compareRanked(a, b ranked) int {
	return cmp.Or(cmp.Compare(b.middle, a.middle), cmp.Compare(a.cell, b.cell))
}

// scoreBucket returns the approximate score of a bucket's workers. It changes rec, a copy of the cell's middle record.
func (x *Index) scoreBucket(c *class, p *placement.Policy, rec *cluster.Record, b int32) float32 {
	cpu, memory := x.bucketLevels(b)
	middle := func(l, c int64) int64 { return c - (upTo(l, c, fine)+upTo(max(0, l-1), c, fine))/2 }
	rec.Used.CPU, rec.Used.Memory = middle(cpu, rec.Capacity.CPU), middle(memory, rec.Capacity.Memory)
	if v := p.ScoreAt(&c.want, rec); v > -math.MaxFloat32 { // false for a NaN
		return float32(min(v, math.MaxFloat32))
	}
	return -math.MaxFloat32
}

// cachedScore returns the score of a bucket for a class, and caches it; -Inf if none of the bucket's workers can fit.
func (x *Index) cachedScore(c *class, p *placement.Policy, b int32) float32 {
	at := c.order.blockOf(b / perCell)
	if s := c.order.scores[at+b%perCell]; s != unknownScore {
		return c.order.blocks[b/perCell].middle + s.float()
	}
	return x.learnScore(c, p, b)
}

// blockOf returns where the scores of a cell's buckets begin.
func (o *order) blockOf(n int32) int32 {
	at := o.blocks[n].at
	if at < 0 {
		at = int32(len(o.scores))
		o.blocks[n].at = at
		for range perCell {
			o.scores = append(o.scores, unknownScore)
		}
	}
	return at
}

func (x *Index) learnScore(c *class, p *placement.Policy, b int32) float32 {
	n := b / perCell
	rec := &x.scratch.rec
	*rec = x.cells[n].recs.most
	cpu, memory := x.bucketLevels(b)
	rec.Used.CPU, rec.Used.Memory = rec.Capacity.CPU-upTo(cpu, rec.Capacity.CPU, fine),
		rec.Capacity.Memory-upTo(memory, rec.Capacity.Memory, fine)
	v := float32(math.Inf(-1))
	if placement.FitsAt(&c.want, rec) {
		*rec = x.cells[n].recs.middle
		v = x.scoreBucket(c, p, rec, b)
	}
	at, middle := c.order.blockOf(n), c.order.blocks[n].middle
	h := deltaOver(v, middle)
	c.order.scores[at+b%perCell] = h
	return middle + h.float() // as the next decision reads it from the cache
}

func (s scored) isBefore(t scored) bool {
	return s.score > t.score || (s.score == t.score && s.bucket < t.bucket)
}

// scoredHeap is a binary heap of buckets or rows, best first.
type scoredHeap []scored

func (f *scoredHeap) pushScored(s scored) {
	h := append(*f, s)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !s.isBefore(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i], *f = s, h
}

func (f *scoredHeap) popScored() scored {
	h := *f
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*f = h
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].isBefore(h[child]) {
			child++
		}
		if !h[child].isBefore(last) {
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

// vacancy is a worker's free room in the dimensions that nearly every request wants, and its place. All vacancies are
// in one slice, so that refusing a worker for its size, or moving it, touches little memory.
type vacancy struct {
	cpu, memory, disk, ports, gpu int64
	bucket                        int32 // -1: in unsound, or nowhere
	at                            int32 // index in the bucket or in unsound; -1: in neither
}

// mayTake reports whether the worker could fit, so that the judge must be asked.
func (r *vacancy) mayTake(want *cluster.Resources) bool {
	return want.CPU <= r.cpu && want.Memory <= r.memory && want.Disk <= r.disk && want.Ports <= r.ports &&
		want.GPU <= r.gpu
}
