package backfill

import (
	"math"
	"slices"
	"sort"
)

// Never is the time of what does not happen.
const Never = math.MaxInt64

// blockSteps is the length of a Profile's block that is split in two.
const blockSteps = 64

// Vector is an amount of each resource. All vectors of one Profile or Planner have the same dimensions, in an order of
// the caller's.
type Vector []int64

// covers reports whether v is at least need in every dimension.
func (v Vector) covers(need Vector) bool {
	for d, n := range need {
		if v[d] < n {
			return false
		}
	}
	return true
}

// isEmpty reports whether v is 0 or less in every dimension.
func (v Vector) isEmpty() bool {
	for _, n := range v {
		if n > 0 {
			return false
		}
	}
	return true
}

// addScaled adds sign times w.
func (v Vector) addScaled(w Vector, sign int64) {
	for d, n := range w {
		v[d] += sign * n
	}
}

// Profile is the free capacity over time: steps that begin at ascending times, the last of which has no end. Make one
// with NewProfile.
//
// Steps are kept in blocks that know the least and the most free capacity of theirs, so that a search skips the blocks
// in which a job fits nowhere or everywhere: with n steps an operation looks at about n/32 blocks and some of their
// steps.
type Profile struct {
	dims   int
	blocks []*block // each has a step at least
}

// block is a run of steps.
type block struct {
	at          []int64 // when each step begins
	free        []int64 // dims numbers a step
	least, most Vector  // of each dimension over the steps
}

// NewProfile makes a profile in which free is free from a time on.
func NewProfile(from int64, free Vector) *Profile {
	b := &block{at: []int64{from}, free: slices.Clone(free), least: make(Vector, len(free)),
		most: make(Vector, len(free))}
	b.measure()
	return &Profile{dims: len(free), blocks: []*block{b}}
}

// step returns what is free in a block's step, to be read and changed in place.
func (b *block) step(s int) Vector {
	d := len(b.least)
	return b.free[s*d : (s+1)*d : (s+1)*d]
}

// measure computes least and most again.
func (b *block) measure() {
	copy(b.least, b.step(0))
	copy(b.most, b.step(0))
	for s := 1; s < len(b.at); s++ {
		for d, n := range b.step(s) {
			b.least[d], b.most[d] = min(b.least[d], n), max(b.most[d], n)
		}
	}
}

// find returns block and step of a time; of one before the first step, the first step.
func (p *Profile) find(t int64) (int, int) {
	k := max(0, sort.Search(len(p.blocks), func(k int) bool { return p.blocks[k].at[0] > t })-1)
	at := p.blocks[k].at
	return k, max(0, sort.Search(len(at), func(s int) bool { return at[s] > t })-1)
}

// FreeAt returns what is free at a time, valid until the profile is changed.
func (p *Profile) FreeAt(t int64) Vector {
	k, s := p.find(t)
	return p.blocks[k].step(s)
}

// Steps returns the number of steps.
func (p *Profile) Steps() int {
	n := 0
	for _, b := range p.blocks {
		n += len(b.at)
	}
	return n
}

// Earliest returns the first time, from a time on, at which need is free for a duration, or Never.
func (p *Profile) Earliest(from, duration int64, need Vector) int64 {
	k, s := p.find(from)
	start, open := int64(0), false // a span of steps that cover need begins at start
	for ; k < len(p.blocks); k, s = k+1, 0 {
		b := p.blocks[k]
		if !open && !b.most.covers(need) || open && b.least.covers(need) {
			continue
		}
		for ; s < len(b.at); s++ {
			switch fits := b.step(s).covers(need); {
			case open && b.at[s]-start >= duration:
				return start
			case fits && !open:
				start, open = max(b.at[s], from), true
			case !fits:
				open = false
			}
		}
	}
	if !open {
		return Never
	}
	return start
}

// Until returns the first time, from a time on, at which need is not free; that time itself if it is not even then, and
// Never if it always is.
func (p *Profile) Until(from int64, need Vector) int64 {
	for k, s := p.find(from); k < len(p.blocks); k, s = k+1, 0 {
		b := p.blocks[k]
		if b.least.covers(need) {
			continue
		}
		for ; s < len(b.at); s++ {
			if !b.step(s).covers(need) {
				return max(from, b.at[s])
			}
		}
	}
	return Never
}

// Take takes need from what is free, from a time until another; until may be Never. What is free may go below 0.
func (p *Profile) Take(from, until int64, need Vector) { p.change(from, until, need, -1) }

// Release undoes Take for this time.
func (p *Profile) Release(from, until int64, need Vector) { p.change(from, until, need, 1) }

func (p *Profile) change(from, until int64, need Vector, sign int64) {
	if from = max(from, p.blocks[0].at[0]); from >= until {
		return
	}
	if until < Never {
		p.split(until)
	}
	p.split(from)
	for k, s := p.find(from); k < len(p.blocks); k, s = k+1, 0 {
		b := p.blocks[k]
		if b.at[s] >= until {
			break
		}
		for ; s < len(b.at) && b.at[s] < until; s++ {
			b.step(s).addScaled(need, sign)
		}
		b.measure()
	}
	if until < Never {
		p.merge(until)
	}
	p.merge(from)
}

// split makes a step begin at a time.
func (p *Profile) split(t int64) {
	k, s := p.find(t)
	b := p.blocks[k]
	if b.at[s] >= t {
		return
	}
	b.at = slices.Insert(b.at, s+1, t)
	d := p.dims
	b.free = slices.Insert(b.free, (s+1)*d, b.free[s*d:(s+1)*d]...)
	if len(b.at) < blockSteps {
		return
	}
	half := len(b.at) / 2
	second := &block{at: slices.Clone(b.at[half:]), free: slices.Clone(b.free[half*d:]), least: make(Vector, d),
		most: make(Vector, d)}
	b.at, b.free = b.at[:half], b.free[:half*d]
	b.measure()
	second.measure()
	p.blocks = slices.Insert(p.blocks, k+1, second)
}

// merge drops the step that begins at a time if what is free does not change there.
func (p *Profile) merge(t int64) {
	k, s := p.find(t)
	b := p.blocks[k]
	if b.at[s] != t || k+s == 0 {
		return
	}
	before := b
	last := s - 1
	if s == 0 {
		before = p.blocks[k-1]
		last = len(before.at) - 1
	}
	if !slices.Equal(before.step(last), b.step(s)) {
		return
	}
	if len(b.at) == 1 {
		p.blocks = slices.Delete(p.blocks, k, k+1)
		return
	}
	b.at = slices.Delete(b.at, s, s+1)
	b.free = slices.Delete(b.free, s*p.dims, (s+1)*p.dims)
	b.measure()
}

// Forget drops what was before a time: the profile begins there.
func (p *Profile) Forget(before int64) {
	k, s := p.find(before)
	p.blocks = slices.Delete(p.blocks, 0, k)
	b := p.blocks[0]
	if s > 0 {
		b.at = slices.Delete(b.at, 0, s)
		b.free = slices.Delete(b.free, 0, s*p.dims)
		b.measure()
	}
	b.at[0] = max(b.at[0], before)
}
