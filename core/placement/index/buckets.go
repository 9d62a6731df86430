package index

import (
	"encoding/binary"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/soukhq/souk/cluster"
)

// Levels of free room by which cells and buckets differ. More levels find better workers and make more buckets. Level
// l of n of a capacity c ends at c*(l/n)^2: the levels are finer for the little room left on a full worker than for
// that on an empty one.
const (
	fine   = 32 // levels of CPU and of memory, in buckets
	inCell = 4  // of those levels, in one cell
	coarse = 4  // levels of disk, ports, and each named resource
)

// group is the workers that differ only in attributes and conditions: they share region, state, capacity, headroom and
// kinds of GPU.
type group struct {
	rec cluster.Record // represents them: nothing used, no attributes, no conditions
}

// cellKey distinguishes the cells of a group by free room: each number is a level, 0 for none.
type cellKey struct {
	group            int32
	named            uint32
	cpu, memory      uint8
	disk, ports      uint8
	whole, part      uint8 // devices that are free whole, and the free parts of others in halves
	gpu              uint16
	backlog, startup uint8
}

// cell is the workers with one key. It is divided into buckets by finer levels of CPU and memory: bucket b is number
// b%perCell of cell b/perCell. There are few cells, so each class of requests can keep them sorted, and new ones are
// rare.
type cell struct {
	key  cellKey
	recs *standIns
}

const perCell = inCell * inCell

// standIns are the two records that represent the workers of a cell.
type standIns struct {
	middle cluster.Record // about what they have, to score
	most   cluster.Record // at least what each of them has free, to judge
}

// groupOf returns the group of a record.
func (x *Index) groupOf(rec *cluster.Record) int32 {
	b := append(x.scratch.key[:0], rec.Region...)
	b = append(append(b, 0), rec.State...)
	b = append(b, 0)
	b = appendResources(b, rec.Capacity)
	b = appendResources(b, rec.Headroom)
	for _, g := range rec.GPUs {
		b = append(append(b, g.Kind...), 0)
	}
	x.scratch.key = b
	if g, ok := x.groups[string(b)]; ok {
		return g
	}
	rep := cluster.Record{Region: rec.Region, State: rec.State, Capacity: rec.Capacity, Headroom: rec.Headroom,
		GPUs: slices.Clone(rec.GPUs)}
	for i := range rep.GPUs { // it represents many workers
		rep.GPUs[i] = cluster.GPU{Kind: rep.GPUs[i].Kind, Free: 1000}
	}
	g := int32(len(x.reps))
	x.reps, x.groups[string(b)] = append(x.reps, group{rec: rep}), g
	return g
}

func appendResources(b []byte, r cluster.Resources) []byte {
	for _, n := range [...]int64{r.CPU, r.Memory, r.Disk, r.Ports, r.GPU, int64(len(r.Named))} {
		b = binary.AppendVarint(b, n)
	}
	if len(r.Named) > 0 {
		for _, k := range slices.Sorted(maps.Keys(r.Named)) {
			b = binary.AppendVarint(append(append(b, k...), 0), r.Named[k])
		}
	}
	return b
}

// levelOf returns the first of n levels of capacity c that free does not exceed, 0 if nothing is free.
func levelOf(free, c, n int64) int64 {
	if free <= 0 || c <= 0 {
		return 0
	}
	l := min(n, int64(float64(n)*math.Sqrt(float64(free)/float64(c))))
	for l < n && upTo(l, c, n) < free { // at most twice: float error, and rounding up
		l++
	}
	return l
}

// upTo returns the largest free amount of a level. c is at most cluster.MaxAmount, so nothing overflows.
func upTo(l, c, n int64) int64 { return l * l * c / (n * n) }

// isSound reports whether a record's amounts can be divided into levels.
func isSound(rec *cluster.Record, free *cluster.Resources) bool {
	c := &rec.Capacity
	ok := func(c, f int64) bool { return c >= 0 && c <= cluster.MaxAmount && f <= c && f >= -cluster.MaxAmount }
	if !ok(c.CPU, free.CPU) || !ok(c.Memory, free.Memory) || !ok(c.Disk, free.Disk) || !ok(c.Ports, free.Ports) ||
		!ok(c.GPU, free.GPU) {
		return false
	}
	for k, f := range free.Named {
		if !ok(c.Named[k], f) {
			return false
		}
	}
	for _, g := range rec.GPUs {
		if g.Free < 0 || g.Free > 1000 {
			return false
		}
	}
	return true
}

// cellOf returns the cell of a worker, and its bucket in the cell.
func (s *row) cellOf(f *cluster.Resources) (k cellKey, bucket int32) {
	c := &s.rec.Capacity
	cpu, memory := levelOf(f.CPU, c.CPU, fine)+inCell-1, levelOf(f.Memory, c.Memory, fine)+inCell-1
	k = cellKey{group: s.group, cpu: uint8(cpu / inCell), memory: uint8(memory / inCell),
		disk: uint8(levelOf(f.Disk, c.Disk, coarse)), ports: uint8(levelOf(f.Ports, c.Ports, coarse)),
		backlog: uint8(bits.Len64(uint64(max(0, s.rec.Backlog)))), startup: uint8(min(7, max(0, s.rec.Starting)))}
	if c.GPU > 0 {
		k.gpu = uint16(min(1<<15, (max(0, f.GPU)+249)/250))
		part := int64(0)
		for i := range s.rec.GPUs {
			if g := s.rec.GPUs[i].Free; g >= 1000 {
				k.whole++
			} else {
				part = max(part, g)
			}
		}
		k.part = uint8((part + 249) / 250)
	}
	if len(c.Named) > 0 {
		h := uint32(2166136261)
		for _, name := range slices.Sorted(maps.Keys(c.Named)) {
			h = (h ^ uint32(levelOf(f.Named[name], c.Named[name], coarse))) * 16777619
		}
		k.named = h
	}
	return k, int32(cpu%inCell*inCell + memory%inCell)
}

// placeInBucket adds a worker to the bucket of its room.
func (x *Index) placeInBucket(i int32) {
	s := &x.rows[i]
	free := s.rec.Capacity.Sub(s.rec.Used)
	m := &x.vacancies[i]
	m.cpu, m.memory, m.disk, m.ports, m.gpu = free.CPU, free.Memory, free.Disk, free.Ports, free.GPU
	if !isSound(&s.rec, &free) {
		if m.bucket >= 0 || m.at < 0 {
			x.leaveBucket(i)
			m.at = int32(len(x.unsound))
			x.unsound = append(x.unsound, i)
		}
		return
	}
	k, sub := s.cellOf(&free)
	if m.bucket >= 0 && m.bucket%perCell == sub && x.cells[m.bucket/perCell].key == k {
		return
	}
	x.leaveBucket(i)
	n, ok := x.byKey[k]
	if !ok {
		n = x.newCell(k, s, &free)
	}
	if x.live[n] == 0 {
		x.filled++
	}
	x.live[n] |= 1 << sub
	b := n*perCell + sub
	m.bucket, m.at = b, int32(len(x.members[b]))
	x.members[b] = append(x.members[b], i)
}

// leaveBucket removes a worker from its bucket.
func (x *Index) leaveBucket(i int32) {
	m := &x.vacancies[i]
	if m.at < 0 {
		return
	}
	list := &x.unsound
	if m.bucket >= 0 {
		list = &x.members[m.bucket]
	}
	last := (*list)[len(*list)-1]
	(*list)[m.at] = last
	x.vacancies[last].at = m.at
	*list = (*list)[:len(*list)-1]
	if m.bucket >= 0 && len(*list) == 0 {
		n := m.bucket / perCell
		if x.live[n] &^= 1 << (m.bucket % perCell); x.live[n] == 0 {
			x.filled--
		}
	}
	m.bucket, m.at = -1, -1
}

// newCell makes a cell for the room of worker s.
func (x *Index) newCell(k cellKey, s *row, free *cluster.Resources) int32 {
	if n := len(x.cells); n > 1<<14 && n > 4*x.filled {
		x.sweepEmptyCells()
	}
	g := &x.reps[k.group].rec
	most, middle := *g, *g
	c := g.Capacity
	at := func(l uint8, c, n int64) (upper, mid int64) {
		upper = upTo(int64(l), c, n)
		return upper, (upper + upTo(max(0, int64(l)-1), c, n)) / 2
	}
	var up, mid cluster.Resources
	up.CPU, mid.CPU = at(k.cpu, c.CPU, fine/inCell)
	up.Memory, mid.Memory = at(k.memory, c.Memory, fine/inCell)
	up.Disk, mid.Disk = at(k.disk, c.Disk, coarse)
	up.Ports, mid.Ports = at(k.ports, c.Ports, coarse)
	up.GPU, mid.GPU = min(c.GPU, int64(k.gpu)*250), max(0, free.GPU)
	if k.gpu >= 1<<15 {
		up.GPU = c.GPU
	}
	for name := range c.Named { // not exact: the key has only a hash of their levels
		if up.Named == nil {
			up.Named, mid.Named = map[string]int64{}, map[string]int64{}
		}
		up.Named[name], mid.Named[name] = c.Named[name], max(0, free.Named[name])
	}
	most.Used, middle.Used = c.Sub(up), c.Sub(mid)
	middle.GPUs, middle.Starting, middle.Backlog = slices.Clone(s.rec.GPUs), s.rec.Starting, s.rec.Backlog
	n := int32(len(x.cells))
	x.live, x.members = append(x.live, 0), append(x.members, make([][]int32, perCell)...)
	x.cells, x.byKey[k] = append(x.cells, cell{key: k, recs: &standIns{middle, most}}), n
	return n
}

// bucketLevels returns the levels of CPU and memory of a bucket.
func (x *Index) bucketLevels(b int32) (cpu, memory int64) {
	k := &x.cells[b/perCell].key
	sub := int64(b % perCell)
	return max(0, int64(k.cpu)*inCell+sub/inCell+1-inCell), max(0, int64(k.memory)*inCell+sub%inCell+1-inCell)
}

// sweepEmptyCells removes the empty cells, and with them the orders of all classes.
func (x *Index) sweepEmptyCells() {
	var cells []cell
	var live []uint16
	var members [][]int32
	clear(x.byKey)
	for n, c := range x.cells {
		if x.live[n] == 0 {
			continue
		}
		id := int32(len(cells))
		for sub, list := range x.members[n*perCell : (n+1)*perCell] {
			for _, m := range list {
				x.vacancies[m].bucket = id*perCell + int32(sub)
			}
		}
		cells, live, members = append(cells, c), append(live, x.live[n]),
			append(members, x.members[n*perCell:(n+1)*perCell]...)
		x.byKey[c.key] = id
	}
	x.cells, x.live, x.members = cells, live, members
	x.age++
	for _, b := range x.caches { // the caches refer to cells that have moved
		b.reset(x.age)
	}
}
