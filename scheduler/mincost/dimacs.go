package mincost

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// ReadDIMACS reads a network in the DIMACS minimum-cost-flow format: "p min NODES ARCS", "n ID SUPPLY",
// "a FROM TO LOWER UPPER COST", "c comment". Node i of the file is Node(i-1). A file that is not so is refused with the
// number of the line that is wrong.
func ReadDIMACS(r io.Reader) (*Graph, error) {
	var g *Graph
	in := bufio.NewScanner(r)
	arcs, line := 0, 0
	for in.Scan() {
		line++
		f := strings.Fields(in.Text())
		if len(f) == 0 || f[0] == "c" {
			continue
		}
		var err error
		switch {
		case f[0] == "p":
			g, arcs, err = problem(g, f)
		case g == nil:
			err = invalid("dimacs", "the problem line comes first")
		case f[0] == "n":
			err = supplyLine(g, f)
		case f[0] == "a":
			err = arcLine(g, f)
		default:
			err = invalid("dimacs", "a line starts with c, p, n or a, and this one with %.20q", f[0])
		}
		if err != nil {
			return nil, invalid("dimacs", "Line %d of the flow graph: %v.", line, strings.TrimSuffix(err.Error(), "."))
		}
	}
	if err := in.Err(); err != nil {
		return nil, invalid("dimacs", "The flow graph cannot be read after line %d: %v.", line, err)
	}
	if g == nil {
		return nil, invalid("dimacs", "The flow graph has no problem line (p min NODES ARCS).")
	}
	if g.Arcs() != arcs {
		return nil, invalid("dimacs", "The flow graph announces %d arcs and has %d.", arcs, g.Arcs())
	}
	return g, nil
}

// numbers reads the fields of a line as integers.
func numbers(f []string, want int) ([5]int64, error) {
	var out [5]int64
	if len(f) != want {
		return out, invalid("dimacs", "%d numbers were wanted, and %d are there", want, len(f))
	}
	for i, s := range f {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < -1<<40 || n > 1<<40 {
			return out, invalid("dimacs", "%.40q is not an integer of a size that can be handled", s)
		}
		out[i] = n
	}
	return out, nil
}

func problem(g *Graph, f []string) (*Graph, int, error) {
	if g != nil {
		return nil, 0, invalid("dimacs", "there is a second problem line")
	}
	if len(f) < 2 || f[1] != "min" {
		return nil, 0, invalid("dimacs", "only min problems can be read")
	}
	n, err := numbers(f[2:], 2)
	if err != nil {
		return nil, 0, err
	}
	if n[0] < 0 || n[0] > MaxNodes || n[1] < 0 || n[1] > MaxArcs {
		return nil, 0, invalid("dimacs", "%d nodes and %d arcs are more than can be handled", n[0], n[1])
	}
	g = New(0, 0) // what is announced is not believed: memory grows with what is there
	if n[0] > 1<<24 {
		return nil, 0, invalid("dimacs", "%d nodes are more than the %d a file may announce", n[0], 1<<24)
	}
	for range n[0] {
		g.AddNode(0)
	}
	return g, int(n[1]), nil
}

func supplyLine(g *Graph, f []string) error {
	n, err := numbers(f[1:], 2)
	if err != nil {
		return err
	}
	if n[0] < 1 || n[0] > int64(g.Nodes()) {
		return invalid("dimacs", "there is no node %d", n[0])
	}
	return g.SetSupply(Node(n[0]-1), n[1])
}

func arcLine(g *Graph, f []string) error {
	n, err := numbers(f[1:], 5)
	if err != nil {
		return err
	}
	if nodes := int64(g.Nodes()); n[0] < 1 || n[0] > nodes || n[1] < 1 || n[1] > nodes {
		return invalid("dimacs", "an arc from %d to %d leaves the %d nodes", n[0], n[1], nodes)
	}
	_, err = g.AddArc(Node(n[0]-1), Node(n[1]-1), n[2], min(n[3], MaxCapacity), n[4])
	return err
}
