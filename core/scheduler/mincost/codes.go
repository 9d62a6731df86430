package mincost

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeFlowArcBounds    fault.Code = "flow_arc_bounds"    // an arc's bounds are out of range
	codeFlowArcCost      fault.Code = "flow_arc_cost"      // an arc's cost is out of range
	codeFlowArcEnds      fault.Code = "flow_arc_ends"      // an arc's ends are no nodes
	codeFlowDimacs       fault.Code = "flow_dimacs"        // the graph in DIMACS form cannot be read
	codeFlowInfeasible   fault.Code = "flow_infeasible"    // no flow meets every supply
	codeFlowNoArc        fault.Code = "flow_no_arc"        // there is no such arc
	codeFlowNoNode       fault.Code = "flow_no_node"       // there is no such node
	codeFlowNotConserved fault.Code = "flow_not_conserved" // a node keeps units
	codeFlowNotOptimal   fault.Code = "flow_not_optimal"   // an arc could carry a better flow
	codeFlowTooLarge     fault.Code = "flow_too_large"     // the graph is too large
	codeFlowUnbalanced   fault.Code = "flow_unbalanced"    // the supplies do not sum to zero
)
