package mincost

import (
	"math"

	"github.com/soukhq/souk/fault"
)

// Result is what Solve found.
type Result struct {
	Cost  int64
	Stats Stats
}

// Solve makes the flow feasible and optimal for the graph as it stands. The first call starts from nothing; later ones
// from the flow and prices there are. Supplies must sum to zero. When no flow can meet every supply the error says how
// many units are left over, and the graph can be changed and solved again.
func (g *Graph) Solve() (Result, error) {
	g.stats = Stats{}
	var sum int64
	for i := range g.cold {
		sum += g.cold[i].supply
	}
	if sum != 0 {
		return Result{}, invalid("unbalanced", "The supplies must sum to zero, and sum to %d.", sum)
	}
	g.price()
	for {
		left := g.compact()
		if left == 0 {
			return Result{Cost: g.Cost(), Stats: g.stats}, nil
		}
		reach, ok := g.search()
		if !ok {
			return Result{}, fault.New(fault.Exhausted, "flow_infeasible", "No flow meets every supply: %d units have nowhere to go.", left)
		}
		g.raise(reach)
		for _, s := range g.sources {
			g.augment(s, reach)
		}
	}
}

// compact drops the nodes without surplus from the sources, and gives the sum of the surplus.
func (g *Graph) compact() int64 {
	var left int64
	kept := g.sources[:0]
	for _, n := range g.sources {
		c := &g.cold[n]
		switch {
		case c.gone:
			c.queued = false
			g.freeNd = append(g.freeNd, Node(n))
		case c.excess > 0:
			left += c.excess
			kept = append(kept, n)
		default:
			c.queued = false
		}
	}
	g.sources = kept
	return left
}

// price gives every new node its price, and restores the invariant on the arcs around it.
func (g *Graph) price() {
	if !g.solved {
		g.solved = true
		g.priceAll()
		return
	}
	for _, n := range g.fresh {
		c := &g.cold[n]
		if !c.fresh || c.gone {
			continue
		}
		best := int64(math.MaxInt64)
		for _, e := range c.edges[:c.live] {
			if to := g.edges[e].to; !g.cold[to].fresh {
				best = min(best, int64(g.edges[e].cost)+g.hot[to].price)
			}
		}
		if best == math.MaxInt64 {
			best = 0
			for _, e := range c.edges { // nothing leads on: dear enough that nothing is drawn in
				if to := g.edges[e].to; !g.cold[to].fresh && e&1 == 1 {
					best = max(best, g.hot[to].price+int64(g.edges[e].cost))
				}
			}
		}
		g.hot[n].price = best
		c.fresh = false
	}
	for _, n := range g.fresh {
		if g.cold[n].gone {
			continue
		}
		g.path = append(g.path[:0], g.cold[n].edges...) // a copy: settling moves edges about
		for _, e := range g.path {
			g.settle(Arc(e / 2))
		}
	}
	g.fresh = g.fresh[:0]
}

// priceAll prices a graph that has no flow yet: arcs with a negative cost are filled, and each node's price becomes the
// length of the shortest way to a node that takes flow, so that all surplus starts with a tight way out.
func (g *Graph) priceAll() {
	for i := range g.cold {
		g.cold[i].fresh = false
	}
	g.fresh = g.fresh[:0]
	for a := range g.lower {
		if e := 2 * int32(a); g.edges[e].pos >= 0 && g.edges[e].cost < 0 {
			g.shift(e, g.edges[e].res)
		}
	}
	const far = math.MaxInt64
	g.heap.reset()
	for i := range g.cold {
		g.hot[i].price = far
		if g.cold[i].excess < 0 {
			g.hot[i].price = 0
			g.heap.push(0, int32(i))
		}
	}
	var most int64
	for g.heap.size > 0 {
		it := g.heap.pop()
		if it.key > g.hot[it.node].price {
			continue
		}
		most = it.key
		for _, e := range g.cold[it.node].edges {
			in := &g.edges[e^1] // leads from the other end to here
			if in.res == 0 {
				continue
			}
			from := g.edges[e].to
			if d := it.key + int64(in.cost); d < g.hot[from].price {
				g.hot[from].price = d
				g.heap.push(d, from)
			}
		}
	}
	for i := range g.hot {
		if g.hot[i].price == far {
			g.hot[i].price = most
		}
	}
}

// search runs Dijkstra's algorithm over reduced costs from every source until it has all nodes at the distance of the
// nearest node that takes flow, and gives that distance.
func (g *Graph) search() (reach int64, ok bool) {
	g.stats.Searches++
	g.nextEpoch()
	g.heap.reset()
	g.touched = g.touched[:0]
	for _, s := range g.sources {
		h := &g.hot[s]
		h.epoch, h.dist, h.level = g.epoch, 0, 0
		g.heap.push(0, s)
		g.touched = append(g.touched, s)
	}
	reach = math.MaxInt64
	for g.heap.size > 0 {
		it := g.heap.pop()
		if it.key > reach {
			break
		}
		h := &g.hot[it.node]
		if it.key > h.dist {
			continue
		}
		c := &g.cold[it.node]
		if c.excess < 0 {
			reach = it.key
			continue
		}
		base, level := it.key-h.price, h.level+1
		g.stats.Scanned += int64(c.live)
		for _, e := range c.edges[:c.live] {
			ed := &g.edges[e]
			v := &g.hot[ed.to]
			d := base + int64(ed.cost) + v.price
			if d > reach || v.epoch == g.epoch && v.dist <= d {
				continue
			}
			if v.epoch != g.epoch {
				v.epoch = g.epoch
				g.touched = append(g.touched, ed.to)
			}
			v.dist, v.level = d, level
			g.heap.push(d, ed.to)
		}
	}
	return reach, reach != math.MaxInt64
}

// nextEpoch makes every label old; when the counter is used up it clears them all.
func (g *Graph) nextEpoch() {
	if g.epoch == math.MaxInt32 {
		for i := range g.hot {
			g.hot[i].epoch, g.cold[i].epoch = 0, 0
		}
		g.epoch = 0
	}
	g.epoch++
}

// raise lifts the prices of all nodes nearer than reach, which makes the shortest ways tight.
func (g *Graph) raise(reach int64) {
	for _, n := range g.touched {
		if h := &g.hot[n]; h.dist < reach {
			h.price += reach - h.dist
		}
	}
}

// augment sends a source's surplus along tight edges that lead to a higher level, depth first, until none is left or
// no way is. An edge once found useless stays so for this search, because levels make the ways acyclic; cur walks
// downwards, because pushing moves only edges at or above it.
func (g *Graph) augment(s int32, reach int64) {
	g.path = g.path[:0]
	u := s
	for {
		cu := &g.cold[u]
		if cu.excess < 0 {
			g.send(s, u)
			if g.cold[s].excess <= 0 {
				return
			}
			g.path = g.path[:0]
			u = s
			continue
		}
		if e := g.advance(u, reach); e >= 0 {
			g.path = append(g.path, e)
			u = g.edges[e].to
			continue
		}
		if u == s {
			return
		}
		k := len(g.path) - 1
		u = g.edges[g.path[k]^1].to
		g.path = g.path[:k]
		g.cold[u].cur--
	}
}

// advance gives the next edge of u that is tight and leads on, or -1.
func (g *Graph) advance(u int32, reach int64) int32 {
	c := &g.cold[u]
	if c.epoch != g.epoch {
		c.epoch, c.cur = g.epoch, c.live-1
	}
	hu := g.hot[u]
	for c.cur = min(c.cur, c.live-1); c.cur >= 0; c.cur-- {
		e := c.edges[c.cur]
		ed := &g.edges[e]
		v := &g.hot[ed.to]
		if v.epoch == g.epoch && v.dist <= reach && v.level > hu.level && int64(ed.cost)+v.price == hu.price {
			return e
		}
	}
	return -1
}

// send moves as much as the path allows from its start to its end.
func (g *Graph) send(from, to int32) {
	units := min(g.cold[from].excess, -g.cold[to].excess, math.MaxInt32)
	for _, e := range g.path {
		units = min(units, int64(g.edges[e].res))
	}
	for _, e := range g.path {
		g.push(e, int32(units))
	}
	g.cold[from].excess -= units
	g.cold[to].excess += units
	g.stats.Augmentations++
}

// Verify proves that the flow is feasible and that no cheaper one exists: bounds and conservation hold, and under the
// prices no residual edge has a negative reduced cost. A failure is a defect of this package.
func (g *Graph) Verify() error {
	net := make([]int64, len(g.cold))
	for a := range g.lower {
		e := 2 * int32(a)
		if g.edges[e].pos < 0 {
			continue
		}
		from, to := g.edges[e^1].to, g.edges[e].to
		net[from] -= g.Flow(Arc(a))
		net[to] += g.Flow(Arc(a))
		rc := int64(g.edges[e].cost) + g.hot[to].price - g.hot[from].price
		if g.edges[e].res < 0 || g.edges[e^1].res < 0 || g.edges[e].res > 0 && rc < 0 || g.edges[e^1].res > 0 && rc > 0 {
			return fault.New(fault.Internal, "flow_not_optimal", "Arc %d has reduced cost %d with flow %d.", a, rc, g.Flow(Arc(a)))
		}
	}
	for n := range net {
		if c := &g.cold[n]; !c.gone && net[n]+c.supply != 0 {
			return fault.New(fault.Internal, "flow_not_conserved", "Node %d keeps %d units.", n, net[n]+c.supply)
		}
	}
	return nil
}
