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

// goesBefore reports whether a ranks before b for a machine, as in placement.Rank.
func (c *Choice) goesBefore(b *Choice, machine string) bool {
	return placement.Precedes(machine, c.Worker, c.Score, b.Worker, b.Score)
}

// PickN returns up to n workers for a request, best first: a buyer that is refused by one asks the next. It leaves out
// workers for which skip, which may be nil, is true. If it returns fewer than n, more may fit; if it returns none,
// none fits.
//
// All are fully judged and exactly scored. If few workers match, or the request names its worker, its volume or an app
// to be near to, the list has all that fit. Otherwise it has the best of the first workers found in the best buckets,
// as many as Policy.Sample if that is set. The best Policy.Best are in the order of placement.SortByTieBreak. chance
// may be nil: then the choice depends only on the machine's ID. The list is valid until the next call.
func (x *Index) PickN(r *placement.Request, p *placement.Policy, n int, skip func(cluster.WorkerID) bool,
	chance *rand.Rand) (best []Choice, examined int) {
	if !r.Funds.Enough() {
		return nil, 0 // no worker accepts a request that cannot be paid
	}
	d := search{x: x, r: r, p: p, skip: skip, wanted: max(examineMost, n, p.Best), found: x.scratch.found[:0]}
	if len(r.Scheduling.Affinity)+len(r.Scheduling.Spread) > 0 {
		d.wanted = max(4*examineMost, d.wanted) // neighbours are looked up for each worker
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

// bestFound returns the best of the found workers, as a list of one.
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

// Chosen returns the record of a worker that PickN returned, like Record but faster.
func (x *Index) Chosen(c *Choice) (*cluster.Record, bool) {
	if s := int(c.row); s < len(x.rows) && x.rows[s].used && x.rows[s].rec.Worker == c.Worker {
		return x.wholeRecord(int32(s)), true
	}
	return x.Record(c.Worker)
}

// search is the state of one pick.
type search struct {
	x         *Index
	r         *placement.Request
	p         *placement.Policy
	skip      func(cluster.WorkerID) bool
	wanted    int  // how many fitting workers to find in a tier
	firstGood bool // stop at a worker that is as good as its bucket's score
	start     uint64
	bounds    []skewBound
	app       *appRows // of the request
	ownApp    bool     // the policy reads only the request's app of a worker's Apps
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
				if d.x.vacancies[i].bucket >= 0 { // otherwise it is unsound, and was looked at
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

// examineRound looks at workers in turn, from a random start, until enough fit and at least at were looked at.
func (d *search) examineRound(rows []int32, at int) {
	before := len(d.found)
	for k := range rows {
		d.examineWorker(rows[(int(d.start%uint64(len(rows)))+k)%len(rows)])
		if k >= at && len(d.found)-before >= d.wanted {
			return
		}
	}
}

// mindsImages reports whether the policy's score depends on the worker having the image.
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

// examineTier sorts a tier's workers by their buckets' scores and looks at them until enough fit. For a small tier
// that is faster than walking buckets until enough of its workers are met.
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

// beatenBy reports whether a tier's best bucket scores below what another tier has found.
func (d *search) beatenBy(s scored, t *tier, best float64) bool {
	return float64(s.score)+t.bonus < best-tierSlack && !d.x.Exact
}

// walkBuckets looks at a tier's workers in the class's order until enough fit. It does not start if even the best
// bucket scores below best, which another tier has found.
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
			return best // no bucket of this tier comes near
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

// tierSlack is how much lower a bucket's score may be than its workers'.
const tierSlack = 0.2

// examineWorker judges and scores a worker. It checks the resources first, since a refusal there needs no sentence;
// the judge checks them, too.
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

// admitWhole judges and scores a worker by its whole record.
func (d *search) admitWhole(rec *cluster.Record, i int32) bool {
	if !d.p.Admits(d.r, rec) {
		return false
	}
	d.found = append(d.found, Choice{rec.Worker, d.p.ScoreAt(d.r, rec), i})
	return true
}

// appCount returns a map with the count of one app, for a policy that reads only that.
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

// workersNamed returns the workers that a request is bound to by its volumes, its worker, or a required affinity. all:
// no other worker can fit.
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
