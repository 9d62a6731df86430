package mincost

import (
	"math"
	"math/bits"
	"slices"
)

// When surplus is auctioned, and how. The solution does not depend on these.
const (
	auctionAfter = 8       // searches from all sources; an auction costs about as much as ten
	auctionShare = 1000    // or at once, if a unit of surplus is left for this many nodes
	auctionFirst = 4       // the first step is this fraction of the distance of the farthest surplus
	auctionAlpha = 16      // each next step is this fraction of the previous one
	auctionReads = 128     // how often an auction may read all arcs before it gives up
	hubEdges     = 512     // a node with more edges finds the cheapest by a heap
	wideRounds   = 8       // passes that may lower prices before arcs are filled
	auctionTop   = 1 << 61 // prices beyond it make the auction give up
	auctionFar   = 1 << 54 // distances are capped here, so that sums fit 64 bits
)

// auction is Goldberg's cost scaling ("An efficient implementation of a scaling minimum-cost flow algorithm", 1997) in
// the form of Bertsekas' auctions: a node with surplus sends it over its cheapest edge and raises its own price to the
// cost of the second cheapest, plus eps. The flow is then optimal up to eps on each arc; eps shrinks until there are
// integer prices under which it is optimal. Costs are multiplied by more than the number of nodes, so that there are
// such prices when eps is 1 at the latest.
//
// It is good where searches are bad: if nearly all nodes are tied, each search walks over the ties and then places a
// few units, while here each unit only displaces others directly.
type auction struct {
	g           *Graph
	shift       uint // costs are times 1<<shift
	eps         int64
	price       []int64
	dist        []int64
	queue, next []int32 // nodes with surplus, of this turn and the next
	queued      []bool
	hubs        map[int32]*offers
	reads       int64 // edges
}

// runAuction sends all surplus by an auction. If it gives up, for instance because no flow meets every supply, some is
// left.
func (g *Graph) runAuction() {
	a := &auction{g: g, shift: uint(bits.Len(uint(len(g.hot)))), price: make([]int64, len(g.hot)),
		dist: make([]int64, len(g.hot)), queued: make([]bool, len(g.hot))}
	for n := range g.hot {
		p := g.hot[n].price
		if max(p, -p) >= auctionTop>>(a.shift+1) {
			return
		}
		a.price[n] = p << a.shift
	}
	a.eps = max(a.updatePrices(), 1<<a.shift) / auctionFirst
	a.enqueueSurplus()
	for a.runRounds() && !a.roundPrices() && a.eps > 1 {
		a.tightenEpsilon(max(1, a.eps/auctionAlpha))
	}
	for arc := range g.arcs { // nothing to do, unless it gave up: then the prices from before say what is to be undone
		if g.arcs[arc].pos >= 0 {
			g.settleArc(Arc(arc))
		}
	}
	for n := range g.cold {
		g.addSurplus(int32(n), 0)
	}
	for _, n := range g.takers {
		g.cold[n].lacks = false
	}
	g.takers = g.takers[:0]
	g.stats.Scanned += a.reads
}

// enqueueSurplus queues every node with surplus.
func (a *auction) enqueueSurplus() {
	for n := range a.g.cold {
		if a.g.cold[n].excess > 0 {
			a.addNode(int32(n))
		}
	}
	a.queue, a.next = a.next, a.queue[:0]
}

func (a *auction) addNode(n int32) {
	if !a.queued[n] {
		a.queued[n] = true
		a.next = append(a.next, n)
	}
}

// runRounds moves surplus until none is left; false: it gave up.
func (a *auction) runRounds() bool {
	arcs := int64(len(a.g.arcs))
	for again := int64(0); len(a.queue) > 0; {
		if a.reads > again {
			a.updatePrices()
			a.hubs = map[int32]*offers{}
			again = a.reads + arcs
		}
		for _, n := range a.queue {
			a.queued[n] = false
			for a.g.cold[n].excess > 0 {
				if !a.sendSurplus(n) {
					return false
				}
			}
		}
		a.queue, a.next = a.next, a.queue[:0]
	}
	return true
}

// sendSurplus sends surplus of a node over its cheapest edge.
func (a *auction) sendSurplus(n int32) bool {
	c := &a.g.cold[n]
	i, best, second := a.cheapestEdge(n)
	if i < 0 || a.reads > auctionReads*int64(len(a.g.arcs)+64) || max(best, -best) > auctionTop {
		return false
	}
	e := c.edges[i]
	units := int32(min(c.excess, int64(e.res)))
	if units < e.res {
		second = best
	}
	if second < math.MaxInt64 {
		a.price[n] = max(a.price[n], second+a.eps)
	}
	a.g.pushAt(n, i, units)
	c.excess -= int64(units)
	to := &a.g.cold[e.to]
	if to.excess += int64(units); to.excess > 0 {
		a.addNode(e.to)
	}
	if len(to.edges) > hubEdges && a.hubs[e.to] != nil {
		a.hubs[e.to].pushOffer(offer{a.price[n] - int64(e.cost)<<a.shift, e.name ^ 1})
	}
	return true
}

// cheapestEdge returns the edge of a node over which a unit costs least, that cost, and the second lowest; -1 if there
// is no edge.
func (a *auction) cheapestEdge(n int32) (at int32, best, second int64) {
	c := &a.g.cold[n]
	if len(c.edges) > hubEdges {
		return a.cheapestHubEdge(n)
	}
	at, best, second = -1, math.MaxInt64, math.MaxInt64
	edges := c.edges[:c.live]
	a.reads += int64(len(edges))
	for i := range edges {
		e := &edges[i]
		if d := int64(e.cost)<<a.shift + a.price[e.to]; d < best {
			at, best, second = int32(i), d, best
		} else if d < second {
			second = d
		}
	}
	return at, best, second
}

// cheapestHubEdge is cheapestEdge for a node with very many edges, like the sink. Until the next updatePrices, prices
// only rise, so the costs in its heap are never too high: the first one that is still correct is the lowest.
func (a *auction) cheapestHubEdge(n int32) (at int32, best, second int64) {
	c, h := &a.g.cold[n], a.hubs[n]
	if h == nil {
		h = &offers{}
		a.hubs[n] = h
		for i := range c.edges[:c.live] {
			e := &c.edges[i]
			h.pushOffer(offer{int64(e.cost)<<a.shift + a.price[e.to], e.name})
		}
		a.reads += int64(c.live)
	}
	for len(*h) > 0 {
		a.reads++
		top := &(*h)[0]
		_, i := a.g.findEdge(top.name)
		e := &c.edges[i]
		d := int64(e.cost)<<a.shift + a.price[e.to]
		switch {
		case e.res == 0:
			h.dropFirst()
		case d > top.cost:
			top.cost = d
			h.siftDown()
		default:
			second = math.MaxInt64
			for _, o := range (*h)[1:min(3, len(*h))] {
				second = min(second, o.cost)
			}
			return i, d, second
		}
	}
	return -1, 0, 0
}

// roundPrices finds whole prices that prove the flow optimal. Prices are cut at one fraction. An arc's reduced cost is
// -eps at the least, so it can be below 0 afterwards only where a price lies within eps of the cut: any gap that is
// wider will do.
func (a *auction) roundPrices() bool {
	one := int64(1) << a.shift
	rest := a.dist
	for n, p := range a.price {
		rest[n] = p & (one - 1)
	}
	slices.Sort(rest)
	gap, cut := one-rest[len(rest)-1]+rest[0], rest[0]
	for i := range rest[1:] {
		if d := rest[i+1] - rest[i]; d > gap {
			gap, cut = d, rest[i+1]
		}
	}
	if gap <= a.eps {
		return false
	}
	for n, p := range a.price {
		a.g.hot[n].price = (p + one - cut) >> a.shift
	}
	return true
}

// tightenEpsilon makes the flow optimal up to a smaller eps: it fills the arcs that are too cheap. If an arc could
// carry all there is, it lowers the price of its tail instead, if possible.
func (a *auction) tightenEpsilon(eps int64) {
	g := a.g
	a.eps = eps
	for again, k := true, 0; again && k < wideRounds; k++ {
		again = false
		for n := range g.cold {
			c := &g.cold[n]
			for i := range c.edges[:c.live] {
				e := &c.edges[i]
				if d := int64(e.cost)<<a.shift + a.price[e.to] + eps; int(e.res) > len(g.cold) && d < a.price[n] {
					a.price[n], again = d, true
				}
			}
		}
	}
	for n := range g.cold {
		c := &g.cold[n]
		for i := int32(0); i < c.live; {
			e := c.edges[i]
			if int64(e.cost)<<a.shift+a.price[e.to]-a.price[n] >= -eps {
				i++
				continue
			}
			g.pushAt(int32(n), i, e.res) // another edge comes to i
			c.excess -= int64(e.res)
			g.cold[e.to].excess += int64(e.res)
		}
	}
	a.enqueueSurplus()
}

// updatePrices is Goldberg's global update: it sets each node's price to its distance from the nodes that take flow.
// It returns the distance of the farthest surplus.
func (a *auction) updatePrices() (reach int64) {
	g, want := a.g, int64(0)
	g.heap.reset()
	for n := range a.dist {
		a.dist[n] = auctionFar
		if x := g.cold[n].excess; x < 0 {
			a.dist[n] = 0
			g.heap.pushNode(0, int32(n))
		} else {
			want += x
		}
	}
	for g.heap.size > 0 && want > 0 {
		it := g.heap.popLeast()
		if it.key > a.dist[it.node] {
			continue
		}
		c := &g.cold[it.node]
		reach = it.key
		want -= max(0, c.excess)
		a.reads += int64(len(c.edges))
		base := it.key + a.price[it.node] + a.eps
		for i := range c.edges {
			e := &c.edges[i]
			if e.back == 0 {
				continue
			}
			if d := base - int64(e.cost)<<a.shift - a.price[e.to]; d < a.dist[e.to] {
				a.dist[e.to] = d
				g.heap.pushNode(d, e.to)
			}
		}
	}
	for n := range a.price {
		a.price[n] -= reach - min(a.dist[n], reach)
	}
	return reach
}
