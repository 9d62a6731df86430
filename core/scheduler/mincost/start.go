package mincost

import (
	"cmp"
	"math"
	"slices"
)

// priceAll prices a graph that has no flow yet: arcs with a negative cost are filled, and each node's price becomes
// the length of the shortest way to a node that takes flow, so that all surplus starts with a tight way out.
//
// When more surplus wants to leave over narrow arcs (machines) than they carry, and there are wide ones (staying
// unscheduled), a toll on all narrow arcs is part of those lengths: the one at which just as many units prefer them as
// fit. Any start is correct; this one is near the final prices, which would otherwise be approached in small steps.
func (g *Graph) priceAll() {
	for i := range g.cold {
		g.cold[i].fresh = false
		g.hot[i].price = 0
	}
	g.fresh = g.fresh[:0]
	for a := range g.arcs {
		if g.arcs[a].pos < 0 {
			continue
		}
		if e := g.forwardEdge(Arc(a)); e.cost < 0 {
			g.shiftFlow(2*int32(a), e.res)
		}
	}
	surplus := g.compactSources()
	narrow, wide := make([]int64, len(g.hot)), make([]int64, len(g.hot))
	room := g.fillDistances(narrow, func(res int64) bool { return res < surplus })
	g.fillDistances(wide, func(res int64) bool { return res >= surplus })
	toll := g.narrowToll(narrow, wide, room)
	var most int64
	for i := range g.hot {
		p := wide[i]
		if narrow[i] < far-toll {
			p = min(p, narrow[i]+toll)
		}
		if g.cold[i].excess < 0 {
			p = 0
		}
		if g.hot[i].price = p; p < far {
			most = max(most, p)
		}
	}
	for i := range g.hot {
		g.hot[i].price = min(g.hot[i].price, most)
	}
	for a := range g.arcs {
		if g.arcs[a].pos >= 0 {
			g.settleArc(Arc(a))
		}
	}
	for _, n := range g.takers {
		g.cold[n].lacks = false
	}
	g.takers = g.takers[:0]
}

const far = math.MaxInt64 / 2

// fillDistances sets dist to the length of each node's shortest way to a node that takes flow, over last edges that
// match, and returns how much those edges can carry.
func (g *Graph) fillDistances(dist []int64, match func(res int64) bool) (room int64) {
	g.heap.reset()
	for i := range dist {
		dist[i] = far
	}
	relax := func(n int32, key int64, last bool) {
		edges := g.cold[n].edges
		for i := range edges {
			e := &edges[i] // back units lead from its other end to here
			if e.back == 0 || g.cold[e.to].excess < 0 || last && !match(int64(e.back)) {
				continue
			}
			if last {
				room += int64(e.back)
			}
			if d := key - int64(e.cost); d < dist[e.to] {
				dist[e.to] = d
				g.heap.pushNode(d, e.to)
			}
		}
	}
	for i := range g.cold {
		if g.cold[i].excess < 0 {
			relax(int32(i), 0, true)
		}
	}
	for g.heap.size > 0 {
		if it := g.heap.popLeast(); it.key == dist[it.node] {
			relax(it.node, it.key, false)
		}
	}
	return room
}

// narrowToll returns the toll on a unit over a narrow edge at which no more than room of them prefer it.
func (g *Graph) narrowToll(narrow, wide []int64, room int64) int64 {
	type want struct{ gain, units int64 }
	var wants []want
	for _, s := range g.sources {
		if narrow[s] < wide[s] && wide[s] < far {
			wants = append(wants, want{wide[s] - narrow[s], g.cold[s].excess})
		} else if wide[s] == far {
			room -= g.cold[s].excess // it has no alternative
		}
	}
	slices.SortFunc(wants, func(a, b want) int { return cmp.Compare(b.gain, a.gain) })
	for _, w := range wants {
		if room -= w.units; room < 0 {
			return w.gain
		}
	}
	return 0
}
