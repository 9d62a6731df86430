package mincost

// SetSupply changes a node's supply.
func (g *Graph) SetSupply(n Node, supply int64) error {
	if !g.nodeOK(n) {
		return noNode(n)
	}
	d := supply - g.cold[n].supply
	g.cold[n].supply = supply
	g.addSurplus(int32(n), d)
	return nil
}

// Supply returns a node's supply.
func (g *Graph) Supply(n Node) int64 { return g.cold[n].supply }

// SetCost changes the cost of a unit on an arc.
func (g *Graph) SetCost(a Arc, cost int64) error {
	if !g.arcOK(a) {
		return noArc(a)
	}
	if cost < -MaxCost || cost > MaxCost {
		return invalidNetwork(codeFlowArcCost, "An arc's cost must be from -%d to %[1]d, and is %d.", MaxCost, cost)
	}
	e := g.forwardEdge(a)
	g.base += int64(g.arcs[a].lower) * (cost - int64(e.cost))
	e.cost, g.cold[e.to].edges[e.twin].cost = int32(cost), int32(-cost)
	g.settleArc(a)
	return nil
}

// SetUpper changes an arc's upper bound. Units above it go back to the arc's start.
func (g *Graph) SetUpper(a Arc, upper int64) error {
	if !g.arcOK(a) {
		return noArc(a)
	}
	low := int64(g.arcs[a].lower)
	if upper < low || upper > MaxCapacity {
		return invalidNetwork(codeFlowArcBounds,
			"An arc's bounds must be 0 <= lower <= upper <= %d, and are %d and %d.",
			MaxCapacity, low, upper)
	}
	if over := int64(g.forwardEdge(a).back) - (upper - low); over > 0 {
		g.shiftFlow(2*int32(a)+1, int32(over))
	}
	e := g.forwardEdge(a)
	e.res = int32(upper-low) - e.back
	g.cold[e.to].edges[e.twin].back = e.res
	g.placeEdge(g.arcs[a].from, g.arcs[a].pos)
	g.settleArc(a)
	return nil
}

// RemoveArc removes an arc; its flow goes back to its start.
func (g *Graph) RemoveArc(a Arc) error {
	if !g.arcOK(a) {
		return noArc(a)
	}
	at, flow := &g.arcs[a], g.Flow(a)
	e := *g.forwardEdge(a)
	g.base -= int64(at.lower) * int64(e.cost)
	g.cutEdge(at.from, at.pos)
	g.cutEdge(at.to, e.twin)
	at.pos = -1
	g.addSurplus(at.from, flow)
	g.addSurplus(at.to, -flow)
	g.freeArc = append(g.freeArc, a)
	return nil
}

// RemoveNode removes a node with its arcs and its supply: the caller changes the other supplies so that they sum to
// zero again.
func (g *Graph) RemoveNode(n Node) error {
	if !g.nodeOK(n) {
		return noNode(n)
	}
	for len(g.cold[n].edges) > 0 {
		if err := g.RemoveArc(Arc(g.cold[n].edges[len(g.cold[n].edges)-1].name / 2)); err != nil {
			return err
		}
	}
	c := &g.cold[n]
	c.excess, c.supply, c.gone, c.fresh = 0, 0, true, false
	if !c.queued { // otherwise the next Solve drops it from the sources, and frees the name then
		g.freeNd = append(g.freeNd, n)
	}
	return nil
}

// Flow returns the units on an arc.
func (g *Graph) Flow(a Arc) int64 { return int64(g.forwardEdge(a).back) + int64(g.arcs[a].lower) }

// Ends returns where an arc starts and ends.
func (g *Graph) Ends(a Arc) (from, to Node) { return Node(g.arcs[a].from), Node(g.arcs[a].to) }

// Bounds returns an arc's lower and upper bound and its cost.
func (g *Graph) Bounds(a Arc) (lower, upper, cost int64) {
	lower = int64(g.arcs[a].lower)
	e := g.forwardEdge(a)
	return lower, lower + int64(e.res) + int64(e.back), int64(e.cost)
}

// Cost returns the cost of the present flow.
func (g *Graph) Cost() int64 {
	sum := g.base
	for n := range g.cold {
		for i := range g.cold[n].edges {
			if e := &g.cold[n].edges[i]; e.name&1 == 0 {
				sum += int64(e.back) * int64(e.cost)
			}
		}
	}
	return sum
}

// OutArcs yields the arcs that start at a node, in a repeatable order.
func (g *Graph) OutArcs(n Node) func(yield func(Arc) bool) {
	return func(yield func(Arc) bool) {
		for _, e := range g.cold[n].edges {
			if e.name&1 == 0 && !yield(Arc(e.name/2)) {
				return
			}
		}
	}
}

func noArc(a Arc) error { return invalidNetwork(codeFlowNoArc, "The graph has no arc %d.", a) }

func noNode(n Node) error { return invalidNetwork(codeFlowNoNode, "The graph has no node %d.", n) }
