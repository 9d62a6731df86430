package mincost

import (
	"math"

	"github.com/soukhq/souk/fault"
)

// Result is the result of Solve.
type Result struct {
	Cost  int64
	Stats Stats
}

// Solve makes the flow feasible and optimal for the present graph. The first call starts from nothing; later ones from
// the existing flow and prices. Supplies must sum to zero. If no flow can meet every supply, the error says how many
// units are left over; the graph can then be changed and solved again.
func (g *Graph) Solve() (Result, error) {
	g.stats = Stats{}
	var sum int64
	for i := range g.cold {
		sum += g.cold[i].supply
	}
	if sum != 0 {
		return Result{}, invalidNetwork(codeFlowUnbalanced, "The supplies must sum to zero, and sum to %d.", sum)
	}
	skip, pause := 0, 1 // rounds without local searches
	if g.priceNodes() {
		skip = 1 // at first most surplus has a tight way out, which a blocking flow finds at once
	} else {
		g.fillFreedPlaces()
	}
	for {
		if skip--; skip < 0 && !g.solveLocally() {
			skip, pause = pause, 2*pause
		}
		left := g.compactSources()
		if left == 0 {
			return Result{Cost: g.Cost(), Stats: g.stats}, nil
		}
		if g.stats.Auctions == 0 && g.auctionPays(left) {
			g.stats.Auctions++
			g.runAuction()
			continue
		}
		g.stats.Searches++
		reach := g.searchAll(left)
		if reach < 0 {
			return Result{}, fault.New(fault.Exhausted, codeFlowInfeasible,
				"no flow meets every supply: %d units have nowhere to go", left)
		}
		for _, s := range g.sources {
			g.augmentPaths(s, reach)
		}
	}
}

// auctionPays estimates whether an auction would finish earlier than searches from all sources.
func (g *Graph) auctionPays(left int64) bool {
	return g.stats.Searches > 0 && (g.stats.Searches >= auctionAfter || left > int64(len(g.hot)/auctionShare))
}

// searchAll makes the shortest ways between surplus and the nodes that take it tight. It searches from the side with
// fewer nodes, which yields the distance of every node on the other side. It returns the distance of the farthest
// needed one.
func (g *Graph) searchAll(left int64) (reach int64) {
	g.ends = g.ends[:0]
	for i := range g.cold {
		if g.cold[i].excess < 0 {
			g.ends = append(g.ends, int32(i))
		}
	}
	if len(g.ends) <= len(g.sources) {
		reach, start := g.searchBack(g.ends, left, math.MaxInt64)
		if start < 0 {
			return -1
		}
		g.lowerTo(reach)
		return reach
	}
	reach, end := g.searchPaths(g.sources, left, math.MaxInt64)
	if end < 0 {
		return -1
	}
	g.raisePrices(reach)
	return reach
}

// compactSources drops sources without surplus, and returns the sum of the surplus.
func (g *Graph) compactSources() int64 {
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

// priceNodes gives every new node its price, and restores the invariant on the arcs around it. It reports whether all
// are new.
func (g *Graph) priceNodes() (first bool) {
	if !g.solved {
		g.solved = true
		g.priceAll()
		return true
	}
	for _, n := range g.fresh {
		c := &g.cold[n]
		if !c.fresh || c.gone {
			continue
		}
		best := int64(math.MaxInt64)
		for i := range c.edges[:c.live] {
			if e := &c.edges[i]; !g.cold[e.to].fresh {
				best = min(best, int64(e.cost)+g.hot[e.to].price)
			}
		}
		if best == math.MaxInt64 {
			best = 0
			for i := range c.edges { // nothing leads on: dear enough that nothing is drawn in
				if e := &c.edges[i]; !g.cold[e.to].fresh && e.name&1 == 1 {
					best = max(best, g.hot[e.to].price+int64(e.cost))
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
		g.path = g.path[:0] // a copy: settling moves edges about
		for i := range g.cold[n].edges {
			g.path = append(g.path, g.cold[n].edges[i].name)
		}
		for _, e := range g.path {
			g.settleArc(Arc(e / 2))
		}
	}
	g.fresh = g.fresh[:0]
	return false
}

// searchPaths runs Dijkstra's algorithm over reduced costs from the sources, until the reached nodes can take want
// units, or all are found. It returns the distance of the last such node, and the node: once prices are raised to that
// distance, the shortest ways to all of them are tight. If the budget of edges is used up first, it returns the
// distance up to which everything is known, and node -1; if there is no way, distance -1.
func (g *Graph) searchPaths(from []int32, want, budget int64) (reach int64, end int32) {
	g.nextEpoch()
	g.heap.reset()
	g.touched = g.touched[:0]
	for _, s := range from {
		h := &g.hot[s]
		h.epoch, h.dist, h.level, h.by = g.epoch, 0, 0, -1
		g.heap.pushNode(0, s)
		g.touched = append(g.touched, s)
	}
	reach, end = math.MaxInt64, -1
	limit := int64(math.MaxInt64) // no node farther than this matters
	scanned := int64(0)
	defer func() { g.stats.Scanned += scanned }()
	for g.heap.size > 0 && want > 0 {
		it := g.heap.popLeast()
		if it.key > limit {
			break
		}
		h := &g.hot[it.node]
		if it.key > h.dist {
			continue
		}
		c := &g.cold[it.node]
		if c.excess < 0 {
			reach, end = it.key, it.node
			if want += c.excess; want <= 0 {
				break
			}
		}
		if scanned > budget {
			return it.key, -1
		}
		base, level := it.key-h.price, h.level+1
		scanned += int64(c.live)
		edges := c.edges[:c.live]
		for i := range edges {
			ed := &edges[i]
			v := &g.hot[ed.to]
			d := base + int64(ed.cost) + v.price
			if d > limit || v.epoch == g.epoch && v.dist <= d {
				continue
			}
			if v.epoch != g.epoch {
				v.epoch = g.epoch
				g.touched = append(g.touched, ed.to)
			}
			v.dist, v.level, v.by = d, level, ed.name
			if want == 1 && g.cold[ed.to].excess < 0 {
				limit = d
			}
			g.heap.pushNode(d, ed.to)
		}
	}
	if end < 0 {
		return -1, -1
	}
	return reach, end
}

// nextEpoch invalidates all labels; when the counter overflows it clears them.
func (g *Graph) nextEpoch() {
	if g.epoch == math.MaxInt32 {
		for i := range g.hot {
			g.hot[i].epoch, g.cold[i].epoch = 0, 0
		}
		g.epoch = 0
	}
	g.epoch++
}

// lowerTo lowers the prices of all nodes within reach, which makes the ways of a backward search tight.
func (g *Graph) lowerTo(reach int64) {
	for _, n := range g.touched {
		if h := &g.hot[n]; h.dist < reach {
			h.price -= reach - h.dist
		}
	}
}

// raisePrices raises the prices of all nodes nearer than reach, which makes the shortest ways tight.
func (g *Graph) raisePrices(reach int64) {
	for _, n := range g.touched {
		if h := &g.hot[n]; h.dist < reach {
			h.price += reach - h.dist
		}
	}
}

// augmentPaths sends a source's surplus along tight edges that lead to a higher level, depth first, until none is left
// or there is no way. An edge once found useless stays so for this search, because levels make the ways acyclic; cur
// walks downwards, because pushing moves only edges at or above it.
func (g *Graph) augmentPaths(s int32, reach int64) {
	g.path = g.path[:0]
	u := s
	for {
		cu := &g.cold[u]
		if cu.excess < 0 {
			g.sendAlongPath(s, u)
			if g.cold[s].excess <= 0 {
				return
			}
			g.path = g.path[:0]
			u = s
			continue
		}
		if e := g.nextTightEdge(u, reach); e >= 0 {
			g.path = append(g.path, e)
			u = g.tailOf(e ^ 1)
			continue
		}
		if u == s {
			return
		}
		k := len(g.path) - 1
		u = g.tailOf(g.path[k])
		g.path = g.path[:k]
		g.cold[u].cur--
	}
}

// nextTightEdge returns the next edge of u that is tight and leads on, or -1.
func (g *Graph) nextTightEdge(u int32, reach int64) int32 {
	c := &g.cold[u]
	if c.epoch != g.epoch {
		c.epoch, c.cur = g.epoch, c.live-1
	}
	hu := g.hot[u]
	for c.cur = min(c.cur, c.live-1); c.cur >= 0; c.cur-- {
		ed := &c.edges[c.cur]
		v := &g.hot[ed.to]
		if v.epoch == g.epoch && v.dist <= reach && v.level > hu.level && int64(ed.cost)+v.price == hu.price {
			return ed.name
		}
	}
	return -1
}

// sendAlongPath sends as much as the path allows from its start to its end.
func (g *Graph) sendAlongPath(from, to int32) {
	units := min(g.cold[from].excess, -g.cold[to].excess, math.MaxInt32)
	for _, e := range g.path {
		tail, i := g.findEdge(e)
		units = min(units, int64(g.cold[tail].edges[i].res))
	}
	for _, e := range g.path {
		g.pushFlow(e, int32(units))
	}
	g.cold[from].excess -= units
	g.cold[to].excess += units
	g.stats.Augmentations++
}

// Verify proves that the flow is feasible and that no cheaper one exists: bounds and conservation hold, and under the
// prices no residual edge has a negative reduced cost. A failure is a defect of this package.
func (g *Graph) Verify() error {
	net := make([]int64, len(g.cold))
	for a := range g.arcs {
		at := g.arcs[a]
		if at.pos < 0 {
			continue
		}
		e := g.forwardEdge(Arc(a))
		net[at.from] -= g.Flow(Arc(a))
		net[at.to] += g.Flow(Arc(a))
		rc := int64(e.cost) + g.hot[at.to].price - g.hot[at.from].price
		if e.res < 0 || e.back < 0 || e.res > 0 && rc < 0 || e.back > 0 && rc > 0 {
			return fault.New(fault.Internal, codeFlowNotOptimal, "arc %d has reduced cost %d with flow %d", a, rc,
				g.Flow(Arc(a)))
		}
	}
	for n := range net {
		if c := &g.cold[n]; !c.gone && net[n]+c.supply != 0 {
			return fault.New(fault.Internal, codeFlowNotConserved, "node %d keeps %d units", n, net[n]+c.supply)
		}
	}
	return nil
}
