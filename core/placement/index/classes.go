package index

import (
	"encoding/binary"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// policyCache holds the classes of requests that one policy has decided for.
type policyCache struct {
	policy  *placement.Policy
	classes map[string]*class
	sets    map[string]*set
	orders  int // cells and scores of all orders together
	age     int // the index's age when the orders were made
	image   interest
	ownApp  bool // its terms read only the request's app of a worker's Apps, and it has no filters
}

// interest is whether a policy depends on something; the index finds out by scoring.
type interest uint8

const (
	unknown interest = iota
	minds
	ignores
)

// class is the requests that judge and policy treat alike, except for what is looked up for each worker: the machine,
// the app, the image, volumes, and neighbours.
type class struct {
	set   *set
	order order
	want  placement.Request // represents them, without conditions
}

// set is the workers that could ever take a class of requests, by the fixed part of their records: state, region,
// attributes, and the conditions of both sides. Requests of different sizes share it.
type set struct {
	tiers []tier // by bonus, largest first
	count int
	seen  int // entries of the index's log that are included
	fresh bool
	base  map[int32]float64
	want  placement.Request
}

// tier is the workers of a set with about the same bonus: how much higher the policy scores a worker than its group's
// representative, because of attributes and conditions.
type tier struct {
	bonus   float64
	members []uint64 // a bit for each row
	count   int
}

// maxTiers bounds the tiers of a set. If there are more bonuses, near ones share a tier.
const maxTiers = 8

// scratch is memory for reuse.
type scratch struct {
	key     []byte
	found   []Choice
	rows    []int32
	order   scoredHeap
	rec     cluster.Record
	won     int32
	bounds  []skewBound
	app     string   // the app that was looked up last
	appRows *appRows // nil: it runs nowhere, or no app was looked up
	oneApp  map[string]int
}

// cacheOf returns the policy's cache.
func (x *Index) cacheOf(p *placement.Policy) *policyCache {
	for _, b := range x.caches {
		if b.policy == p {
			return b
		}
	}
	if len(x.caches) == maxPolicies {
		x.caches = slices.Delete(x.caches, 0, 1)
	}
	b := &policyCache{policy: p, ownApp: p.ReadsOwnAppOnly()}
	b.reset(x.age)
	x.caches = append(x.caches, b)
	return b
}

func (b *policyCache) reset(age int) {
	b.classes, b.sets, b.orders, b.age = map[string]*class{}, map[string]*set{}, 0, age
}

// classOf returns the class of a request, updated to the present fleet.
func (x *Index) classOf(r *placement.Request, p *placement.Policy) *class {
	b := x.cacheOf(p)
	if b.age != x.age || b.orders > maxScores || len(b.classes) > maxClasses || len(b.sets) > maxSets {
		b.reset(x.age)
	}
	key := x.setKey(r)
	fixed := len(key)
	key = appendResources(key, r.Resources)
	if r.Start {
		key = append(key, 1)
	}
	x.scratch.key = key
	c, ok := b.classes[string(key)]
	if !ok {
		s, ok := b.sets[string(key[:fixed])]
		if !ok {
			s = x.newSet(r)
			b.sets[string(key[:fixed])] = s
		}
		c = &class{set: s, want: x.classRequest(r)}
		c.want.Resources, c.want.GPUKind = r.Resources, r.GPUKind
		c.want.Scheduling.Require, c.want.Scheduling.Prefer = nil, nil
		if len(r.Resources.Named) > 0 {
			c.want.Resources.Named = maps.Clone(r.Resources.Named)
		}
		b.classes[string(key)] = c
	}
	x.refreshSet(c.set, p)
	b.orders += len(x.cells) - c.order.seen
	x.extendClass(c, p)
	return c
}

// classRequest returns a request without its size and without what is looked up for each worker.
func (x *Index) classRequest(r *placement.Request) placement.Request {
	out := placement.Request{Regions: slices.Clone(r.Regions), Namespace: r.Namespace, GPUKind: r.GPUKind,
		UnixUser: r.UnixUser, Scheduling: r.Scheduling}
	out.Scheduling.Affinity, out.Scheduling.Spread = nil, nil
	out.Scheduling.Require, out.Scheduling.Prefer = slices.Clone(r.Scheduling.Require),
		slices.Clone(r.Scheduling.Prefer)
	out.Scheduling.Tolerate, out.Scheduling.Labels = slices.Clone(r.Scheduling.Tolerate),
		maps.Clone(r.Scheduling.Labels)
	if x.appReaders > 0 {
		out.App = r.App
	}
	if x.imageReaders > 0 {
		out.Image = r.Image
	}
	return out
}

// setKey encodes classRequest(r), so that different requests have different keys.
func (x *Index) setKey(r *placement.Request) []byte {
	b := x.scratch.key[:0]
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	value := func(v cluster.Value) {
		b = append(b, v.Type()[0])
		text(v.String())
	}
	require := func(q *cluster.Requirement) {
		text(q.Attribute)
		text(string(q.Op))
		b = binary.AppendUvarint(b, uint64(len(q.Values)))
		for _, v := range q.Values {
			value(v)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(r.Regions)))
	for _, g := range r.Regions {
		text(string(g))
	}
	text(r.Namespace)
	text(r.GPUKind)
	text(r.UnixUser)
	if x.appReaders > 0 {
		text(r.App)
	}
	if x.imageReaders > 0 {
		text(r.Image)
	}
	s := &r.Scheduling
	text(string(s.Band))
	b = binary.AppendVarint(b, int64(s.Priority))
	b = binary.AppendUvarint(b, uint64(len(s.Require)))
	for i := range s.Require {
		require(&s.Require[i])
	}
	b = binary.AppendUvarint(b, uint64(len(s.Prefer)))
	for i := range s.Prefer {
		require(&s.Prefer[i].Requirement)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Prefer[i].Weight))
	}
	b = binary.AppendUvarint(b, uint64(len(s.Tolerate)))
	for _, t := range s.Tolerate {
		text(t)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Labels)))
	if len(s.Labels) > 0 {
		for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
			text(k)
			value(s.Labels[k])
		}
	}
	return b
}

// fixedPart returns a worker's record without the fields that grants change.
func fixedPart(w *cluster.Record) cluster.Record {
	out := *w
	out.Used, out.Machines, out.Starting, out.MaxStarting, out.Backlog = cluster.Resources{}, 0, 0, 0, 0
	out.Apps, out.Volumes, out.VolumesOf, out.Evictable, out.Full = nil, nil, nil, nil, nil
	return out
}

func (x *Index) newSet(r *placement.Request) *set {
	return &set{want: x.classRequest(r), base: map[int32]float64{}, fresh: true}
}

// rowBonus reports whether a row belongs to the set, and returns its bonus.
func (x *Index) rowBonus(s *set, p *placement.Policy, i int32) (float64, bool) {
	sl := &x.rows[i]
	if !sl.used {
		return 0, false
	}
	w := &x.scratch.rec
	*w = fixedPart(&sl.rec)
	w.Capacity, w.Headroom = cluster.Resources{}, cluster.Resources{} // a set ignores sizes
	if !placement.FitsAt(&s.want, w) {
		return 0, false
	}
	w.Capacity, w.Headroom = sl.rec.Capacity, sl.rec.Headroom
	base, ok := s.base[sl.group]
	if !ok {
		base = p.ScoreAt(&s.want, &x.reps[sl.group].rec)
		s.base[sl.group] = base
	}
	d := p.ScoreAt(&s.want, w) - base
	if math.IsNaN(d) || math.Abs(d) < 1e-9 {
		d = 0
	}
	return d, true
}

// refreshSet updates a set to the present fleet.
func (x *Index) refreshSet(s *set, p *placement.Policy) {
	if s.fresh || len(x.log)-s.seen > len(x.rows)/4+16 {
		x.fillSet(s, p)
		return
	}
	for ; s.seen < len(x.log); s.seen++ {
		i := x.log[s.seen]
		for t := range s.tiers {
			if s.tiers[t].hasRow(i) {
				s.tiers[t].members[i>>6] &^= 1 << (i & 63)
				s.tiers[t].count--
				s.count--
			}
		}
		bonus, ok := x.rowBonus(s, p, i)
		if !ok {
			continue
		}
		t := s.tierFor(bonus)
		if t < 0 {
			x.fillSet(s, p)
			return
		}
		s.tiers[t].addRow(i)
		s.count++
	}
}

// tierFor returns the nearest tier; -1 if the set must be rebuilt: it has no tier yet, or has room for a tier of a new
// bonus.
func (s *set) tierFor(bonus float64) int {
	best := -1
	for t := range s.tiers {
		if best < 0 || math.Abs(s.tiers[t].bonus-bonus) < math.Abs(s.tiers[best].bonus-bonus) {
			best = t
		}
	}
	if best >= 0 && s.tiers[best].bonus != bonus && len(s.tiers) < maxTiers {
		return -1
	}
	return best
}

// fillSet rebuilds a set.
func (x *Index) fillSet(s *set, p *placement.Policy) {
	s.fresh, s.tiers, s.count, s.seen = false, nil, 0, len(x.log)
	clear(s.base)
	in, bonuses := make([]int32, 0, len(x.rows)), make([]float64, 0, len(x.rows))
	distinct := map[float64]struct{}{}
	for i := range int32(len(x.rows)) {
		if b, ok := x.rowBonus(s, p, i); ok {
			in, bonuses = append(in, i), append(bonuses, b)
			distinct[b] = struct{}{}
		}
	}
	levels := slices.Sorted(maps.Keys(distinct))
	if n := len(levels); n > maxTiers { // then tiers of equal width
		low, high := levels[0], levels[n-1]
		levels = levels[:0]
		for k := range maxTiers {
			levels = append(levels, low+(high-low)*(float64(k)+0.5)/maxTiers)
		}
	}
	slices.Reverse(levels)
	for _, l := range levels {
		s.tiers = append(s.tiers, tier{bonus: l, members: make([]uint64, (len(x.rows)+63)/64)})
	}
	for k, i := range in {
		best := 0
		for t := range s.tiers {
			if math.Abs(s.tiers[t].bonus-bonuses[k]) < math.Abs(s.tiers[best].bonus-bonuses[k]) {
				best = t
			}
		}
		s.tiers[best].addRow(i)
	}
	s.count = len(in)
}

func (t *tier) hasRow(i int32) bool {
	w := int(i >> 6)
	return w < len(t.members) && t.members[w]&(1<<(i&63)) != 0
}

func (t *tier) addRow(i int32) {
	for int(i>>6) >= len(t.members) {
		t.members = append(t.members, 0)
	}
	t.members[i>>6] |= 1 << (i & 63)
	t.count++
}

// appendRows appends the rows of a tier.
func (t *tier) appendRows(out []int32) []int32 {
	for w, word := range t.members {
		for ; word != 0; word &= word - 1 {
			out = append(out, int32(w<<6+bits.TrailingZeros64(word)))
		}
	}
	return out
}
