// Package mincost solves minimum-cost flow exactly, and solves it again cheaply after a change: a task that arrived or
// ended, a cost that moved, a worker that died. It is a primal-dual method (Ford and Fulkerson's, as Hungarian methods
// use it): node prices under which no residual arc has a negative reduced cost, raised by one shortest-path search
// from every node with surplus at once, and a blocking flow over the arcs that are tight. The prices survive a change,
// so that only the affected part is searched again. If searches do not pay, because there is more supply than room and
// nearly everything is tied, the rest is auctioned (Goldberg's cost scaling, see auction), which ends with exact
// prices too.
//
// Prices are the proof: Verify checks conservation, bounds and complementary slackness, so a solution that passes is
// optimal, however it was found.
package mincost

import (
	"math"

	"github.com/soukhq/souk/fault"
)

// Node and Arc are names of a node and an arc of one Graph. A removed name may be reused.
type (
	// Node is a place where flow starts, ends or passes.
	Node int32
	// Arc leads from one node to another.
	Arc int32
)

// Bounds of a Graph; they keep every sum within 64 bits.
const (
	MaxCost     = 1 << 30 // of one unit on one arc, either sign
	MaxCapacity = math.MaxInt32
	MaxNodes    = 1 << 28
	MaxArcs     = 1 << 29
)

// edge is one direction of an arc as its tail keeps it. It has all that a search reads of an arc, in reading order:
// there are many arcs, and searches are bound by memory.
type edge struct {
	to   int32
	cost int32
	res  int32 // units that can still be sent this way
	back int32 // units that can still be sent the other way
	twin int32 // index of the other direction in the edges of to
	name int32 // 2a forwards, 2a+1 backwards
}

// ends locates an arc's two edges.
type ends struct {
	from, to int32
	pos      int32 // index of the forward edge in the edges of from; -1 when the arc is gone
	lower    int32 // the flow is lower plus the backward edge's res
}

// hot is what a search reads of every node it sees.
type hot struct {
	price int64 // upper estimate of the cost of a unit from here; tight along used arcs
	dist  int64 // of this search, when epoch says so
	epoch int32
	level int32 // hops of the shortest path; makes the tight arcs acyclic
	by    int32 // the edge of the shortest path that leads here
}

// cold is the rest of a node. Its live edges, those with res > 0, come first, so that a search reads no dead ones.
type cold struct {
	edges  []edge
	live   int32
	cur    int32
	epoch  int32 // of cur
	excess int64 // supply + inflow - outflow
	supply int64
	queued bool // in sources
	lacks  bool // in takers
	gone   bool
	fresh  bool // its price is not yet set
}

// Graph is a network with a flow and prices. The zero value is not ready: use New. It is not safe for concurrent use.
type Graph struct {
	arcs    []ends
	hot     []hot
	cold    []cold
	freeArc []Arc
	freeNd  []Node
	sources []int32 // nodes that may have surplus
	fresh   []int32 // nodes without a price yet
	takers  []int32 // nodes that take flow since a change
	touched []int32 // nodes labelled by this search
	path    []int32
	waiting []int32 // sources, while they are handled one by one
	ends    []int32 // nodes that take flow, in a search from all sources
	heap    radix
	epoch   int32
	solved  bool
	base    int64 // cost of the lower bounds
	stats   Stats
}

// Stats counts the work of the last Solve.
type Stats struct {
	Searches      int   // shortest-path searches from all sources at once
	Local         int   // shortest-path searches from one source
	GaveUp        int   // searches among Local that reached their limit of work
	Scanned       int64 // edges read by searches
	Auctions      int   // 1 when surplus was auctioned
	Augmentations int   // paths along which flow was sent
}

// New makes an empty graph with room for this many nodes and arcs; both may grow.
func New(nodes, arcs int) *Graph {
	return &Graph{
		arcs: make([]ends, 0, max(arcs, 0)), hot: make([]hot, 0, max(nodes, 0)), cold: make([]cold, 0, max(nodes, 0)),
	}
}

// Nodes returns the number of node names ever used; valid names are below it.
func (g *Graph) Nodes() int { return len(g.hot) }

// Arcs returns the number of arc names ever used; valid names are below it.
func (g *Graph) Arcs() int { return len(g.arcs) }

func (g *Graph) arcOK(a Arc) bool {
	return a >= 0 && int(a) < len(g.arcs) && g.arcs[a].pos >= 0
}

func (g *Graph) nodeOK(n Node) bool {
	return n >= 0 && int(n) < len(g.cold) && !g.cold[n].gone
}

func invalidNetwork(code fault.Code, format string, args ...any) error {
	return fault.New(fault.Invalid, code, format, args...)
}

// AddNode adds a node with a supply: it gives units into the network, or takes them if supply is negative.
func (g *Graph) AddNode(supply int64) Node {
	var n Node
	if k := len(g.freeNd); k > 0 {
		n = g.freeNd[k-1]
		g.freeNd = g.freeNd[:k-1]
		keep := g.cold[n].edges[:0]
		g.hot[n], g.cold[n] = hot{}, cold{edges: keep}
	} else {
		n = Node(len(g.hot))
		g.hot, g.cold = append(g.hot, hot{}), append(g.cold, cold{})
	}
	g.cold[n].supply = supply
	g.cold[n].fresh = true
	g.fresh = append(g.fresh, int32(n))
	g.addSurplus(int32(n), supply)
	return n
}

// addSurplus adds surplus to a node, and adds the node to the sources if it has any.
func (g *Graph) addSurplus(n int32, units int64) {
	c := &g.cold[n]
	c.excess += units
	if c.excess > 0 && !c.queued {
		c.queued = true
		g.sources = append(g.sources, n)
	}
	if c.excess < 0 && !c.lacks && g.solved {
		c.lacks = true
		g.takers = append(g.takers, n)
	}
}

// Reserve makes room for a node's arcs, so that adding them does not copy.
func (g *Graph) Reserve(n Node, arcs int) {
	if g.nodeOK(n) && cap(g.cold[n].edges) < arcs {
		g.cold[n].edges = append(make([]edge, 0, arcs), g.cold[n].edges...)
	}
}

// AddArc adds an arc for between lower and upper units of flow, each at cost.
func (g *Graph) AddArc(from, to Node, lower, upper, cost int64) (Arc, error) {
	if err := g.checkArc(from, to, lower, upper, cost); err != nil {
		return -1, err
	}
	var a Arc
	if k := len(g.freeArc); k > 0 {
		a = g.freeArc[k-1]
		g.freeArc = g.freeArc[:k-1]
	} else {
		a = Arc(len(g.arcs))
		g.arcs = append(g.arcs, ends{})
	}
	tail, head := &g.cold[from], &g.cold[to]
	i, j := int32(len(tail.edges)), int32(len(head.edges))
	g.arcs[a] = ends{from: int32(from), to: int32(to), pos: i, lower: int32(lower)}
	room := int32(upper - lower)
	tail.edges = append(tail.edges, edge{to: int32(to), cost: int32(cost), res: room, twin: j, name: 2 * int32(a)})
	head.edges = append(head.edges, edge{to: int32(from), cost: int32(-cost), back: room, twin: i,
		name: 2*int32(a) + 1})
	g.placeEdge(int32(from), i)
	if lower != 0 {
		g.base += lower * cost
		g.addSurplus(int32(from), -lower)
		g.addSurplus(int32(to), lower)
	}
	g.settleArc(a)
	return a, nil
}

func (g *Graph) checkArc(from, to Node, lower, upper, cost int64) error {
	switch {
	case !g.nodeOK(from) || !g.nodeOK(to) || from == to:
		return invalidNetwork(codeFlowArcEnds, "An arc needs two different nodes of the graph, and got %d and %d.",
			from, to)
	case lower < 0 || upper < lower || upper > MaxCapacity:
		return invalidNetwork(codeFlowArcBounds,
			"An arc's bounds must be 0 <= lower <= upper <= %d, and are %d and %d.",
			MaxCapacity, lower, upper)
	case cost < -MaxCost || cost > MaxCost:
		return invalidNetwork(codeFlowArcCost, "An arc's cost must be from -%d to %[1]d, and is %d.", MaxCost, cost)
	case len(g.arcs) >= MaxArcs || len(g.hot) >= MaxNodes:
		return invalidNetwork(codeFlowTooLarge, "The graph is larger than %d nodes or %d arcs.", MaxNodes, MaxArcs)
	}
	return nil
}

// tailOf returns the node an edge leads from.
func (g *Graph) tailOf(name int32) int32 {
	if name&1 == 0 {
		return g.arcs[name>>1].from
	}
	return g.arcs[name>>1].to
}

// findEdge returns the tail of an edge, and its index in the tail's edges.
func (g *Graph) findEdge(name int32) (tail, i int32) {
	a := &g.arcs[name>>1]
	if name&1 == 0 {
		return a.from, a.pos
	}
	return a.to, g.cold[a.from].edges[a.pos].twin
}

// placeEdge moves the i-th edge of a node into or out of the live ones, if its res requires it.
func (g *Graph) placeEdge(n, i int32) {
	c := &g.cold[n]
	switch live := c.edges[i].res > 0; {
	case live && i >= c.live:
		g.swapEdges(n, i, c.live)
		c.live++
	case !live && i < c.live:
		c.live--
		g.swapEdges(n, i, c.live)
	}
}

// cutEdge removes the i-th edge of a node; others take its place.
func (g *Graph) cutEdge(n, i int32) {
	c := &g.cold[n]
	fill := func(with int32) {
		if with != i {
			c.edges[i] = c.edges[with]
			g.noteMoved(&c.edges[i], i)
		}
		i = with
	}
	if i < c.live {
		c.live--
		fill(c.live)
	}
	fill(int32(len(c.edges) - 1))
	c.edges = c.edges[:i]
}

func (g *Graph) swapEdges(n, i, j int32) {
	if i == j {
		return
	}
	es := g.cold[n].edges
	es[i], es[j] = es[j], es[i]
	g.noteMoved(&es[i], i)
	g.noteMoved(&es[j], j)
}

// noteMoved records an edge's new index.
func (g *Graph) noteMoved(e *edge, i int32) {
	g.cold[e.to].edges[e.twin].twin = i
	if e.name&1 == 0 {
		g.arcs[e.name>>1].pos = i
	}
}

// pushFlow sends units along an edge and keeps both tails' live edges first. It does not change the excesses.
func (g *Graph) pushFlow(name int32, units int32) {
	tail, i := g.findEdge(name)
	g.pushAt(tail, i, units)
}

// pushAt is pushFlow along the i-th edge of a node.
func (g *Graph) pushAt(tail, i, units int32) {
	e := &g.cold[tail].edges[i]
	head, j := e.to, e.twin
	t := &g.cold[head].edges[j]
	e.res, e.back, t.res, t.back = e.res-units, e.back+units, t.res+units, t.back-units
	g.placeEdge(tail, i)
	g.placeEdge(head, j)
}

// shiftFlow is pushFlow that also updates the excesses.
func (g *Graph) shiftFlow(name int32, units int32) {
	if units == 0 {
		return
	}
	from, to := g.arcs[name>>1].from, g.arcs[name>>1].to
	if name&1 == 1 {
		from, to = to, from
	}
	g.pushFlow(name, units)
	g.addSurplus(from, -int64(units))
	g.addSurplus(to, int64(units))
}

// settleArc restores the invariant of an arc whose cost, bounds or ends' prices changed: no residual edge has a
// negative reduced cost. Flow that it moves becomes surplus, which Solve then sends elsewhere. It skips an arc of a
// node without a price.
func (g *Graph) settleArc(a Arc) {
	at := g.arcs[a]
	if !g.solved || g.cold[at.from].fresh || g.cold[at.to].fresh {
		return
	}
	e := g.cold[at.from].edges[at.pos]
	switch rc := int64(e.cost) + g.hot[at.to].price - g.hot[at.from].price; {
	case rc < 0:
		g.shiftFlow(2*int32(a), e.res)
	case rc > 0:
		g.shiftFlow(2*int32(a)+1, e.back)
	}
}

// forwardEdge returns the forward edge of an arc.
func (g *Graph) forwardEdge(a Arc) *edge {
	at := &g.arcs[a]
	return &g.cold[at.from].edges[at.pos]
}
