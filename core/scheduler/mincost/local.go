package mincost

import "math"

// Limits of the searches from one source. They only bound wasted work; the solution does not depend on them.
const (
	localBudget = 10000 // edges a search may read
	localMisses = 30    // failed searches in a row
	localFails  = 100   // searches that may fail at all, and one more for every localFair that did not
	localFair   = 64
	localTries  = 4 // searches from one source
)

// solveLocally works the sources off one by one. A free place is usually near, so that a search reads few edges. A
// search that reaches its limit keeps the raised prices, and its source is tried again after the others; if that
// fails, too, as when nearly all nodes are tied, the source is left for a search from all.
//
// It reports whether it was worth while.
func (g *Graph) solveLocally() bool {
	misses, fails, tries := 0, 0, 0
	for range localTries {
		g.compactSources()
		if len(g.sources) == 0 {
			return true
		}
		g.waiting = append(g.waiting[:0], g.sources...)
		for _, s := range g.waiting {
			for g.cold[s].excess > 0 && int(g.cold[s].live) < localBudget {
				if tries++; misses > localMisses || fails > localFails+tries/localFair {
					return false
				}
				g.stats.Local++
				reach, end := g.searchPaths([]int32{s}, 1, localBudget)
				if reach < 0 {
					return false // there is no way at all: the search from all sources finds out how much is left
				}
				g.raisePrices(reach)
				if end < 0 {
					g.stats.GaveUp++
					misses++
					fails++
					break
				}
				misses = 0
				g.tracePath(end)
				g.sendAlongPath(s, end)
			}
		}
	}
	return true
}

// tracePath sets path to the shortest path to end.
func (g *Graph) tracePath(end int32) {
	g.path = g.path[:0]
	for e := g.hot[end].by; e >= 0; e = g.hot[g.tailOf(e)].by {
		g.path = append(g.path, e)
	}
}

// fillFreedPlaces fills places that changes have freed. A task that prefers such a place is usually near; if there is
// none, the place stays empty, which becomes surplus of the node that all places lead to. So it searches from each
// place.
func (g *Graph) fillFreedPlaces() {
	misses := 0
	for _, n := range g.takers {
		c := &g.cold[n]
		c.lacks = false
		for !c.gone && c.excess < 0 && misses <= localMisses && len(c.edges) < localBudget {
			g.stats.Local++
			reach, start := g.searchBack([]int32{n}, 1, localBudget)
			if reach < 0 {
				break
			}
			g.lowerTo(reach)
			if start < 0 {
				g.stats.GaveUp++
				misses++
				break
			}
			misses = 0
			g.path = g.path[:0]
			for e := g.hot[start].by; e >= 0; e = g.hot[g.tailOf(e^1)].by {
				g.path = append(g.path, e)
			}
			g.sendAlongPath(start, n)
		}
	}
	g.takers = g.takers[:0]
}

// searchBack is searchPaths in the opposite direction: from nodes that take flow to nodes with surplus.
func (g *Graph) searchBack(from []int32, want, budget int64) (reach int64, start int32) {
	g.nextEpoch()
	g.heap.reset()
	g.touched = append(g.touched[:0], from...)
	for _, n := range from {
		h := &g.hot[n]
		h.epoch, h.dist, h.level, h.by = g.epoch, 0, 0, -1
		g.heap.pushNode(0, n)
	}
	reach, start = -1, -1
	limit, scanned := int64(math.MaxInt64), int64(0)
	defer func() { g.stats.Scanned += scanned }()
	for g.heap.size > 0 {
		it := g.heap.popLeast()
		h, c := &g.hot[it.node], &g.cold[it.node]
		if it.key > h.dist {
			continue
		}
		if c.excess > 0 {
			reach, start = it.key, it.node
			if want -= c.excess; want <= 0 {
				break
			}
		}
		if scanned+int64(len(c.edges)) > budget { // also a hub that very many could come from
			return it.key, -1
		}
		base, level := it.key+h.price, h.level-1
		scanned += int64(len(c.edges))
		for i := range c.edges {
			e := &c.edges[i]
			if e.back == 0 {
				continue
			}
			tail := e.to
			v := &g.hot[tail]
			d := base - int64(e.cost) - v.price
			if d > limit || v.epoch == g.epoch && v.dist <= d {
				continue
			}
			if v.epoch != g.epoch {
				v.epoch = g.epoch
				g.touched = append(g.touched, tail)
			}
			v.dist, v.level, v.by = d, level, e.name^1
			if want == 1 && g.cold[tail].excess > 0 {
				limit = d
			}
			g.heap.pushNode(d, tail)
		}
	}
	return reach, start
}
