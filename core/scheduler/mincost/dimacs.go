package mincost

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// ReadDIMACS reads a network in the DIMACS minimum-cost-flow format: "p min NODES ARCS", "n ID SUPPLY", "a FROM TO
// LOWER UPPER COST", "c comment". Node i of the file is Node(i-1). It refuses any other file with the number of the
// wrong line. It does not trust the announced sizes: memory grows with the actual content.
func ReadDIMACS(r io.Reader) (*Graph, error) {
	var d dimacs
	in := bufio.NewScanner(r)
	for in.Scan() {
		d.lines++
		if err := d.readLine(strings.Fields(in.Text())); err != nil {
			return nil, invalidNetwork(codeFlowDimacs, "Line %d of the flow graph: %v.", d.lines,
				strings.TrimSuffix(err.Error(), "."))
		}
	}
	if err := in.Err(); err != nil {
		return nil, invalidNetwork(codeFlowDimacs, "The flow graph cannot be read after line %d: %v.", d.lines, err)
	}
	return d.makeGraph()
}

// dimacs is the part of a file that was read.
type dimacs struct {
	lines       int
	begun       bool // the problem line was read
	nodes, arcs int64
	supplies    []stated
	edges       []stated
}

// stated is the content of a line, for error messages.
type stated struct {
	line int
	n    [5]int64
}

// freeNodes is how many nodes without a line of their own a file may announce.
const freeNodes = 1 << 16

func (d *dimacs) readLine(f []string) error {
	if len(f) == 0 || f[0] == "c" {
		return nil
	}
	var err error
	switch {
	case f[0] == "p":
		return d.readProblem(f)
	case !d.begun:
		return invalidNetwork(codeFlowDimacs, "the problem line comes first")
	case f[0] == "n":
		x := stated{line: d.lines}
		if x.n, err = parseNumbers(f[1:], 2); err == nil && (x.n[0] < 1 || x.n[0] > d.nodes) {
			err = invalidNetwork(codeFlowDimacs, "there is no node %d", x.n[0])
		}
		d.supplies = append(d.supplies, x)
	case f[0] == "a":
		x := stated{line: d.lines}
		x.n, err = parseNumbers(f[1:], 5)
		if err == nil && (min(x.n[0], x.n[1]) < 1 || max(x.n[0], x.n[1]) > d.nodes) {
			err = invalidNetwork(codeFlowDimacs, "an arc from %d to %d leaves the %d nodes", x.n[0], x.n[1], d.nodes)
		}
		d.edges = append(d.edges, x)
	default:
		err = invalidNetwork(codeFlowDimacs, "a line starts with c, p, n or a, and this one with %.20q", f[0])
	}
	return err
}

// makeGraph makes the network from a file.
func (d *dimacs) makeGraph() (*Graph, error) {
	if !d.begun {
		return nil, invalidNetwork(codeFlowDimacs, "The flow graph has no problem line (p min NODES ARCS).")
	}
	if int64(len(d.edges)) != d.arcs {
		return nil, invalidNetwork(codeFlowDimacs, "The flow graph announces %d arcs and has %d.", d.arcs, len(d.edges))
	}
	if most := freeNodes + 2*d.arcs + int64(len(d.supplies)); d.nodes > most {
		return nil, invalidNetwork(codeFlowDimacs,
			"The flow graph announces %d nodes, of which its lines are about %d at most.",
			d.nodes, most-freeNodes)
	}
	g := New(int(d.nodes), len(d.edges))
	for range d.nodes {
		g.AddNode(0)
	}
	wrong := func(x stated, err error) error {
		return invalidNetwork(codeFlowDimacs, "Line %d of the flow graph: %v.", x.line, strings.TrimSuffix(err.Error(),
			"."))
	}
	for _, x := range d.supplies {
		if err := g.SetSupply(Node(x.n[0]-1), x.n[1]); err != nil {
			return nil, wrong(x, err)
		}
	}
	for _, x := range d.edges {
		if _, err := g.AddArc(Node(x.n[0]-1), Node(x.n[1]-1), x.n[2], min(x.n[3], MaxCapacity), x.n[4]); err != nil {
			return nil, wrong(x, err)
		}
	}
	return g, nil
}

// parseNumbers reads the fields of a line as integers.
func parseNumbers(f []string, want int) ([5]int64, error) {
	var out [5]int64
	if len(f) != want {
		return out, invalidNetwork(codeFlowDimacs, "%d numbers were wanted, and %d are there", want, len(f))
	}
	for i, s := range f {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < -1<<40 || n > 1<<40 {
			return out, invalidNetwork(codeFlowDimacs, "%.40q is not an integer of a size that can be handled", s)
		}
		out[i] = n
	}
	return out, nil
}

func (d *dimacs) readProblem(f []string) error {
	if d.begun {
		return invalidNetwork(codeFlowDimacs, "there is a second problem line")
	}
	if len(f) < 2 || f[1] != "min" {
		return invalidNetwork(codeFlowDimacs, "only min problems can be read")
	}
	n, err := parseNumbers(f[2:], 2)
	if err != nil {
		return err
	}
	if n[0] < 0 || n[0] > MaxNodes || n[1] < 0 || n[1] > MaxArcs {
		return invalidNetwork(codeFlowDimacs, "%d nodes and %d arcs are more than can be handled", n[0], n[1])
	}
	d.begun, d.nodes, d.arcs = true, n[0], n[1]
	return nil
}
