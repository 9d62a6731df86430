// Package mincost solves minimum-cost flow exactly, and solves it again cheaply after a change: a task that arrived or
// ended, a cost that moved, a worker that died. It is a primal-dual method (Ford and Fulkerson's, as Hungarian methods
// use it): node prices under which no residual arc has a negative reduced cost, raised by one shortest-path search from
// every node with surplus at once, and a blocking flow over the arcs that are tight. The prices survive a change, so
// that only what the change disturbed is searched again.
//
// Prices are the proof: Verify checks conservation, bounds and complementary slackness, so an answer that passes is
// optimal whatever the code that found it did.
package mincost

import (
	"math"

	"github.com/soukhq/souk/fault"
)

// Node and Arc name a node and an arc of one Graph. A removed name may be given out again.
type (
	// Node is a place where flow starts, ends or passes.
	Node int32
	// Arc leads from one node to another.
	Arc int32
)

// Bounds of what a Graph takes; they keep every sum inside 64 bits.
const (
	MaxCost     = 1 << 30 // of one unit on one arc, either sign
	MaxCapacity = math.MaxInt32
	MaxNodes    = 1 << 28
	MaxArcs     = 1 << 29
)

// edge is one direction of an arc: 2a leads forwards, 2a+1 backwards.
type edge struct {
	to   int32
	cost int32
	res  int32 // units that can still be sent this way
	pos  int32 // index in the tail's adjacency
}

// hot is what a search reads of every node it sees.
type hot struct {
	price int64 // upper estimate of what a unit still costs from here; tight along used arcs
	dist  int64 // of this search, when epoch says so
	epoch int32
	level int32 // hops of the shortest path; makes the tight arcs acyclic
	by    int32 // the edge of the shortest path that leads here
}

// cold is the rest of a node. Its edges with res > 0 come first, live of them, so that a search never reads a dead one.
type cold struct {
	edges  []int32
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
	edges   []edge
	lower   []int32 // of each arc; the flow is lower plus the backward edge's res
	hot     []hot
	cold    []cold
	freeArc []Arc
	freeNd  []Node
	sources []int32 // nodes that may have surplus
	fresh   []int32 // nodes without a price
	takers  []int32 // nodes that came to take flow by a change
	touched []int32 // nodes labelled by this search
	path    []int32
	waiting []int32 // sources, while they are worked off one by one
	ends    []int32 // nodes that take flow, in a search from all
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
	GaveUp        int   // of those, the ones that met the limit of their work
	Scanned       int64 // edges read by them
	Augmentations int   // paths along which flow was sent
}

// New gives an empty graph with room for that many nodes and arcs; both may grow.
func New(nodes, arcs int) *Graph {
	return &Graph{
		edges: make([]edge, 0, 2*max(arcs, 0)), lower: make([]int32, 0, max(arcs, 0)),
		hot: make([]hot, 0, max(nodes, 0)), cold: make([]cold, 0, max(nodes, 0)),
	}
}

// Nodes gives how many node names are in use or were; valid names are below it.
func (g *Graph) Nodes() int { return len(g.hot) }

// Arcs gives how many arc names are in use or were; valid names are below it.
func (g *Graph) Arcs() int { return len(g.lower) }

func (g *Graph) arcOK(a Arc) bool {
	return a >= 0 && int(a) < len(g.lower) && g.edges[2*a].pos >= 0
}

func (g *Graph) nodeOK(n Node) bool {
	return n >= 0 && int(n) < len(g.cold) && !g.cold[n].gone
}

func invalid(code, format string, args ...any) error {
	return fault.New(fault.Invalid, "flow_"+code, format, args...)
}

// AddNode adds a node that gives supply units into the network, or takes them when supply is negative.
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
	g.give(int32(n), supply)
	return n
}

// give adds surplus to a node, and remembers the node when it has some.
func (g *Graph) give(n int32, units int64) {
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
		g.cold[n].edges = append(make([]int32, 0, arcs), g.cold[n].edges...)
	}
}

// AddArc adds an arc on which between lower and upper units flow, each at that cost.
func (g *Graph) AddArc(from, to Node, lower, upper, cost int64) (Arc, error) {
	if err := g.checkArc(from, to, lower, upper, cost); err != nil {
		return -1, err
	}
	var a Arc
	if k := len(g.freeArc); k > 0 {
		a = g.freeArc[k-1]
		g.freeArc = g.freeArc[:k-1]
	} else {
		a = Arc(len(g.lower))
		g.lower = append(g.lower, 0)
		g.edges = append(g.edges, edge{}, edge{})
	}
	g.lower[a] = int32(lower)
	g.edges[2*a] = edge{to: int32(to), cost: int32(cost), res: int32(upper - lower)}
	g.edges[2*a+1] = edge{to: int32(from), cost: int32(-cost)}
	g.link(2*int32(a), int32(from))
	g.link(2*int32(a)+1, int32(to))
	if lower != 0 {
		g.base += lower * cost
		g.give(int32(from), -lower)
		g.give(int32(to), lower)
	}
	g.settle(a)
	return a, nil
}

func (g *Graph) checkArc(from, to Node, lower, upper, cost int64) error {
	switch {
	case !g.nodeOK(from) || !g.nodeOK(to) || from == to:
		return invalid("arc_ends", "An arc needs two different nodes of the graph, and got %d and %d.", from, to)
	case lower < 0 || upper < lower || upper > MaxCapacity:
		return invalid("arc_bounds", "An arc's bounds must be 0 <= lower <= upper <= %d, and are %d and %d.", MaxCapacity, lower, upper)
	case cost < -MaxCost || cost > MaxCost:
		return invalid("arc_cost", "An arc's cost must be from -%d to %[1]d, and is %d.", MaxCost, cost)
	case len(g.lower) >= MaxArcs || len(g.hot) >= MaxNodes:
		return invalid("too_large", "The graph is larger than %d nodes or %d arcs.", MaxNodes, MaxArcs)
	}
	return nil
}

// link puts an edge into its tail's adjacency, among the live ones when it can carry flow.
func (g *Graph) link(e, tail int32) {
	c := &g.cold[tail]
	g.edges[e].pos = int32(len(c.edges))
	c.edges = append(c.edges, e)
	if g.edges[e].res > 0 {
		g.swap(c, g.edges[e].pos, c.live)
		c.live++
	}
}

func (g *Graph) unlink(e, tail int32) {
	c := &g.cold[tail]
	if i := g.edges[e].pos; i < c.live {
		c.live--
		g.swap(c, i, c.live)
	}
	last := int32(len(c.edges) - 1)
	g.swap(c, g.edges[e].pos, last)
	c.edges = c.edges[:last]
	g.edges[e].pos = -1
}

func (g *Graph) swap(c *cold, i, j int32) {
	if i == j {
		return
	}
	c.edges[i], c.edges[j] = c.edges[j], c.edges[i]
	g.edges[c.edges[i]].pos, g.edges[c.edges[j]].pos = i, j
}

// push sends units along an edge and keeps both tails' live edges in front. It does not touch the excesses.
func (g *Graph) push(e int32, units int32) {
	f, b := &g.edges[e], &g.edges[e^1]
	if f.res -= units; f.res == 0 {
		c := &g.cold[b.to]
		c.live--
		g.swap(c, f.pos, c.live)
	}
	if b.res == 0 {
		c := &g.cold[f.to]
		g.swap(c, b.pos, c.live)
		c.live++
	}
	b.res += units
}

// shift is push together with the excesses.
func (g *Graph) shift(e int32, units int32) {
	if units == 0 {
		return
	}
	from, to := g.edges[e^1].to, g.edges[e].to
	g.push(e, units)
	g.give(from, -int64(units))
	g.give(to, int64(units))
}

// settle restores the invariant of an arc whose cost, bounds or ends' prices changed: no residual edge has a negative
// reduced cost. What it moves shows up as surplus, which Solve then sends elsewhere. An arc of a node that has no price
// yet waits for the price.
func (g *Graph) settle(a Arc) {
	e := 2 * int32(a)
	from, to := g.edges[e^1].to, g.edges[e].to
	if !g.solved || g.cold[from].fresh || g.cold[to].fresh {
		return
	}
	switch rc := int64(g.edges[e].cost) + g.hot[to].price - g.hot[from].price; {
	case rc < 0:
		g.shift(e, g.edges[e].res)
	case rc > 0:
		g.shift(e^1, g.edges[e^1].res)
	}
}
