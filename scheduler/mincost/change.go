package mincost

// SetSupply changes what a node gives or takes.
func (g *Graph) SetSupply(n Node, supply int64) error {
	if !g.nodeOK(n) {
		return noNode(n)
	}
	d := supply - g.cold[n].supply
	g.cold[n].supply = supply
	g.give(int32(n), d)
	return nil
}

// Supply gives what a node gives or takes.
func (g *Graph) Supply(n Node) int64 { return g.cold[n].supply }

// SetCost changes the cost of a unit on an arc.
func (g *Graph) SetCost(a Arc, cost int64) error {
	if !g.arcOK(a) {
		return noArc(a)
	}
	if cost < -MaxCost || cost > MaxCost {
		return invalid("arc_cost", "An arc's cost must be from -%d to %[1]d, and is %d.", MaxCost, cost)
	}
	g.base += int64(g.lower[a]) * (cost - int64(g.edges[2*a].cost))
	g.edges[2*a].cost, g.edges[2*a+1].cost = int32(cost), int32(-cost)
	g.settle(a)
	return nil
}

// SetUpper changes how many units an arc can carry. Units above the new bound go back to the arc's start.
func (g *Graph) SetUpper(a Arc, upper int64) error {
	if !g.arcOK(a) {
		return noArc(a)
	}
	low := int64(g.lower[a])
	if upper < low || upper > MaxCapacity {
		return invalid("arc_bounds", "An arc's bounds must be 0 <= lower <= upper <= %d, and are %d and %d.", MaxCapacity, low, upper)
	}
	e := 2 * int32(a)
	if over := int64(g.edges[e^1].res) - (upper - low); over > 0 {
		g.shift(e^1, int32(over))
	}
	want := int32(upper-low) - g.edges[e^1].res
	c := &g.cold[g.edges[e^1].to]
	switch had := g.edges[e].res; {
	case had == 0 && want > 0:
		g.swap(c, g.edges[e].pos, c.live)
		c.live++
	case had > 0 && want == 0:
		c.live--
		g.swap(c, g.edges[e].pos, c.live)
	}
	g.edges[e].res = want
	g.settle(a)
	return nil
}

// RemoveArc takes an arc away; its flow goes back to where it came from.
func (g *Graph) RemoveArc(a Arc) error {
	if !g.arcOK(a) {
		return noArc(a)
	}
	e := 2 * int32(a)
	from, to := g.edges[e^1].to, g.edges[e].to
	flow := int64(g.edges[e^1].res) + int64(g.lower[a])
	g.base -= int64(g.lower[a]) * int64(g.edges[e].cost)
	g.unlink(e, from)
	g.unlink(e^1, to)
	g.give(from, flow)
	g.give(to, -flow)
	g.freeArc = append(g.freeArc, a)
	return nil
}

// RemoveNode takes a node and its arcs away, with its supply: the caller changes the other supplies so that they sum
// to zero again.
func (g *Graph) RemoveNode(n Node) error {
	if !g.nodeOK(n) {
		return noNode(n)
	}
	for len(g.cold[n].edges) > 0 {
		if err := g.RemoveArc(Arc(g.cold[n].edges[len(g.cold[n].edges)-1] / 2)); err != nil {
			return err
		}
	}
	c := &g.cold[n]
	c.excess, c.supply, c.gone, c.fresh = 0, 0, true, false
	if !c.queued { // else the next Solve drops it from the sources, and frees the name then
		g.freeNd = append(g.freeNd, n)
	}
	return nil
}

// Flow gives the units on an arc.
func (g *Graph) Flow(a Arc) int64 { return int64(g.edges[2*a+1].res) + int64(g.lower[a]) }

// Ends gives where an arc starts and ends.
func (g *Graph) Ends(a Arc) (from, to Node) { return Node(g.edges[2*a+1].to), Node(g.edges[2*a].to) }

// Bounds gives an arc's lower and upper bound and its cost.
func (g *Graph) Bounds(a Arc) (lower, upper, cost int64) {
	lower = int64(g.lower[a])
	return lower, lower + int64(g.edges[2*a].res) + int64(g.edges[2*a+1].res), int64(g.edges[2*a].cost)
}

// Cost gives the cost of the flow as it stands.
func (g *Graph) Cost() int64 {
	sum := g.base
	for a := range g.lower {
		if g.edges[2*a].pos >= 0 {
			sum += int64(g.edges[2*a+1].res) * int64(g.edges[2*a].cost)
		}
	}
	return sum
}

// OutArcs yields the arcs that start at a node, in an order that repeats when the run repeats.
func (g *Graph) OutArcs(n Node) func(yield func(Arc) bool) {
	return func(yield func(Arc) bool) {
		for _, e := range g.cold[n].edges {
			if e&1 == 0 && !yield(Arc(e/2)) {
				return
			}
		}
	}
}

func noArc(a Arc) error { return invalid("no_arc", "The graph has no arc %d.", a) }

func noNode(n Node) error { return invalid("no_node", "The graph has no node %d.", n) }
