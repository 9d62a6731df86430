package index

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Choice is a worker that fits.
type Choice struct {
	Worker cluster.WorkerID
	Score  float64
	row    int32
}

// goesBefore reports whether a goes before b for a machine: as placement.Rank has it.
func (c *Choice) goesBefore(b *Choice, machine string) bool {
	return placement.Precedes(machine, c.Worker, c.Score, b.Worker, b.Score)
}

// PickN returns up to n workers for a request, best first: a buyer that is refused by one asks the next. Those that
// skip names are left out; it may be nil. Where fewer than n come back there may be more; where none does, none fits.
//
// All have been judged whole and scored exactly. If few workers match, or the request names its worker, its volume or
// an app to be near to, these are all that fit; else they are the best of the first that were found in the best
// buckets, and of Policy.Sample instead of that many where it is set. The best Policy.Best are in the order of
// placement.SortByTieBreak. chance may be nil: then what is drawn depends on the machine's id only. The list is the
// index's own until it is asked again.
func (x *Index) PickN(r *placement.Request, p *placement.Policy, n int, skip func(cluster.WorkerID) bool,
	chance *rand.Rand) (best []Choice, examined int) {
	if !r.Funds.Enough() {
		return nil, 0 // no worker takes who cannot pay
	}
	d := search{x: x, r: r, p: p, skip: skip, wanted: max(examineMost, n, p.Best), found: x.scratch.found[:0]}
	if len(r.Scheduling.Affinity)+len(r.Scheduling.Spread) > 0 {
		d.wanted = max(4*examineMost, d.wanted) // neighbours are looked up worker by worker
	}
	if p.Sample > 0 {
		d.wanted = max(p.Sample, n)
	}
	if x.Exact {
		d.wanted = math.MaxInt
	}
	d.firstGood = d.wanted == examineMost && n == 1
	d.start = placement.TieBreak(r.Machine, "")
	if chance != nil {
		d.start = chance.Uint64()
	}
	if len(r.Scheduling.Spread) > 0 {
		d.bounds = x.skewBounds(r)
	}
	d.app, d.ownApp = x.appOf(r.App), len(r.Scheduling.Affinity) == 0 && x.cacheOf(p).ownApp
	d.runSearch()
	x.scratch.found = d.found
	if n == 1 && p.Best <= 1 { // the common case
		return x.bestFound(d.found, r.Machine), d.examined
	}
	slices.SortFunc(d.found, func(a, b Choice) int {
		switch {
		case a.Score != b.Score:
			return cmp.Compare(b.Score, a.Score)
		case a.goesBefore(&b, r.Machine):
			return -1
		}
		return 1
	})
	placement.SortByTieBreak(d.found[:min(p.Best, len(d.found))], r.Machine,
		func(c *Choice) string { return string(c.Worker) })
	if len(d.found) > 0 {
		x.scratch.won = d.found[0].row
	}
	return d.found[:min(n, len(d.found))], d.examined
}

// bestFound returns the best of what was found, in a list of one.
func (x *Index) bestFound(found []Choice, machine string) []Choice {
	if len(found) == 0 {
		return nil
	}
	best := &found[0]
	for k := range found[1:] {
		if c := &found[k+1]; c.goesBefore(best, machine) {
			best = c
		}
	}
	x.scratch.won = best.row
	found[0] = *best
	return found[:1]
}

// Chosen returns the record of a worker that PickN gave, as Record does, and sooner.
func (x *Index) Chosen(c *Choice) (*cluster.Record, bool) {
	if s := int(c.row); s < len(x.rows) && x.rows[s].used && x.rows[s].rec.Worker == c.Worker {
		return x.wholeRecord(int32(s)), true
	}
	return x.Record(c.Worker)
}

// search is one pick under way.
type search struct {
	x         *Index
	r         *placement.Request
	p         *placement.Policy
	skip      func(cluster.WorkerID) bool
	wanted    int  // workers that fit, of a tier
	firstGood bool // with one worker that is as good as its bucket promised
	start     uint64
	bounds    []skewBound
	app       *appRows // of the request
	ownApp    bool     // nothing is read of a worker's apps but the request's
	found     []Choice
	examined  int
}

func (d *search) runSearch() {
	if rows, all := d.x.workersNamed(d.r); all {
		d.examineRound(rows, 4*smallSet)
		return
	}
	for _, i := range d.x.unsound {
		d.examineWorker(i)
	}
	c := d.x.classOf(d.r, d.p)
	if c.set.count <= smallSet {
		for t := range c.set.tiers {
			d.x.scratch.rows = c.set.tiers[t].appendRows(d.x.scratch.rows[:0])
			for _, i := range d.x.scratch.rows {
				if d.x.vacancies[i].bucket >= 0 { // else it is unsound, and was looked at
					d.examineWorker(i)
				}
			}
		}
		return
	}
	best := math.Inf(-1)
	for _, f := range d.found {
		best = max(best, f.Score)
	}
	for t := range c.set.tiers {
		if n := c.set.tiers[t].count; n*n <= 24*len(d.x.rows) {
			best = max(best, d.examineTier(c, &c.set.tiers[t], best))
		} else {
			best = max(best, d.walkBuckets(c, &c.set.tiers[t], best))
		}
	}
	if at := d.x.images[d.r.Image]; len(at) > 0 && !d.x.Exact && d.x.cacheOf(d.p).mindsImages(d.r) {
		d.examineRound(at, 0)
	}
}

// examineRound looks at workers in a round from a place that is drawn, until enough fit and at were looked at.
func (d *search) examineRound(rows []int32, at int) {
	before := len(d.found)
	for k := range rows {
		d.examineWorker(rows[(int(d.start%uint64(len(rows)))+k)%len(rows)])
		if k >= at && len(d.found)-before >= d.wanted {
			return
		}
	}
}

// mindsImages reports whether the policy scores a worker that has the image otherwise than one that has not.
func (b *policyCache) mindsImages(r *placement.Request) bool {
	if b.image == unknown {
		b.image = ignores
		var without cluster.Record
		with := cluster.Record{Images: []string{r.Image}}
		if b.policy.ScoreAt(r, &with) != b.policy.ScoreAt(r, &without) {
			b.image = minds
		}
	}
	return b.image == minds
}

// examineTier looks at a tier's workers in the order of their buckets' scores until enough fit. Where they are few,
// that is fewer steps than to walk until enough of them are met.
func (d *search) examineTier(c *class, t *tier, best float64) float64 {
	o := d.x.scratch.order[:0]
	d.x.scratch.rows = t.appendRows(d.x.scratch.rows[:0])
	for _, i := range d.x.scratch.rows {
		if b := d.x.vacancies[i].bucket; b >= 0 && d.x.vacancies[i].mayTake(&d.r.Resources) {
			if s := d.x.cachedScore(c, d.p, b); s >= -math.MaxFloat32 {
				o.pushScored(scored{i, s})
			}
		}
	}
	d.x.scratch.order = o
	for left := d.wanted; left > 0 && len(o) > 0; {
		top := o.popScored()
		if d.beatenBy(top, t, best) && left == d.wanted {
			break
		}
		if d.examineWorker(top.bucket) {
			score := d.found[len(d.found)-1].Score
			best = max(best, score)
			left--
			if d.firstGood && score >= float64(top.score)+t.bonus {
				return best
			}
		}
	}
	return best
}

// beatenBy reports whether a tier's best bucket promises less than what another tier has.
func (d *search) beatenBy(s scored, t *tier, best float64) bool {
	return float64(s.score)+t.bonus < best-tierSlack && !d.x.Exact
}

// walkBuckets looks at a tier's workers in the order of the class until enough fit. It does not begin where even the
// best bucket promises less than best, which another tier has.
func (d *search) walkBuckets(c *class, t *tier, best float64) float64 {
	x, cells := d.x, c.order.cells
	whole, left, next := t.count == len(x.byID), d.wanted, 0
	// how many workers of other tiers are met before this one's are picked out
	others, begin := 4*t.count+64, len(d.found)
	o := x.scratch.order[:0]
	defer func() { x.scratch.order = o[:0] }()
	for {
		for next < len(cells) && (len(o) == 0 || cells[next].middle > o[0].score) {
			r := &cells[next]
			next++
			live := x.live[r.cell]
			if live != 0 && r.block < 0 {
				r.block = c.order.blockOf(r.cell)
			}
			for ; live != 0; live &= live - 1 {
				sub := int32(bits.TrailingZeros16(live))
				var s float32
				if h := c.order.scores[r.block+sub]; h != unknownScore {
					s = r.middle + h.float()
				} else {
					s = x.learnScore(c, d.p, r.cell*perCell+sub)
				}
				if s >= -math.MaxFloat32 {
					o.pushScored(scored{r.cell*perCell + sub, s})
				}
			}
		}
		if len(o) == 0 {
			return best
		}
		e := o.popScored()
		if d.beatenBy(e, t, best) && left == d.wanted {
			return best // nothing of this tier comes near
		}
		members := x.members[e.bucket]
		at := int(d.start % uint64(len(members)))
		for range members {
			if at++; at >= len(members) {
				at = 0
			}
			i := members[at]
			if !whole && !t.hasRow(i) {
				if others--; others == 0 && !x.Exact {
					d.found = d.found[:begin]
					return d.examineTier(c, t, best)
				}
				continue
			}
			if !x.vacancies[i].mayTake(&d.r.Resources) {
				continue
			}
			if d.examineWorker(i) {
				score := d.found[len(d.found)-1].Score
				best = max(best, score)
				if left--; left == 0 || (d.firstGood && score >= float64(e.score)+t.bonus) {
					return best
				}
			}
		}
	}
}

// tierSlack is by how much a bucket's score may promise too little.
const tierSlack = 0.2

// examineWorker judges and scores a worker. The resources come first, because to refuse there costs no sentence; the
// judge, which sees the worker in any case, refuses for them as well.
func (d *search) examineWorker(i int32) bool {
	d.examined++
	if !d.x.vacancies[i].mayTake(&d.r.Resources) {
		return false
	}
	for k := range d.bounds {
		if !d.bounds[k].admitsRow(d.r, i, d.x.searches) {
			return false
		}
	}
	rec := &d.x.rows[i].rec
	if (len(d.r.Resources.Named) > 0 && !d.r.Resources.Fits(rec.Capacity.Sub(rec.Used))) ||
		(d.skip != nil && d.skip(rec.Worker)) {
		return false
	}
	if !d.ownApp {
		return d.admitWhole(d.x.wholeRecord(i), i)
	}
	apps := rec.Apps
	rec.Apps = d.x.scratch.appCount(d.r.App, d.app.machinesAt(i))
	ok := d.admitWhole(rec, i)
	rec.Apps = apps
	return ok
}

// admitWhole judges and scores a worker whole.
func (d *search) admitWhole(rec *cluster.Record, i int32) bool {
	if !d.p.Admits(d.r, rec) {
		return false
	}
	d.found = append(d.found, Choice{rec.Worker, d.p.ScoreAt(d.r, rec), i})
	return true
}

// appCount returns a map that has the count of one app, for who reads no other.
func (s *scratch) appCount(app string, n int) map[string]int {
	if n == 0 {
		return nil
	}
	if s.oneApp == nil {
		s.oneApp = map[string]int{}
	}
	clear(s.oneApp)
	s.oneApp[app] = n
	return s.oneApp
}

// workersNamed returns the workers that a request names by what it needs of them: its volumes, its worker, or an app
// that it must be near to. all says that no other worker can fit.
func (x *Index) workersNamed(r *placement.Request) (rows []int32, all bool) {
	out := x.scratch.rows[:0]
	defer func() { x.scratch.rows = out }()
	if len(r.Volumes) > 0 {
		out = append(out, x.volumes[r.Volumes[0]]...)
		return out, true
	}
	for i := range r.Scheduling.Require {
		q := &r.Scheduling.Require[i]
		if q.Attribute != "worker" || (q.Op != cluster.Equal && q.Op != cluster.In) {
			continue
		}
		for _, v := range q.Values {
			id, _ := v.Any().(string)
			if s, ok := x.byID[cluster.WorkerID(id)]; ok && v.Type() == "text" && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
		return out, true
	}
	for i := range r.Scheduling.Affinity {
		a := &r.Scheduling.Affinity[i]
		if a.Weight == 0 && !a.Anti && a.App != "" && a.Within == "" {
			for _, at := range x.rowsRunning(a.App) {
				out = append(out, at.row)
			}
			return out, true
		}
	}
	return out, false
}
