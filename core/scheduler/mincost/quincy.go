package mincost

import "math/rand/v2"

// Quincy is a generated scheduling network of the shape of Quincy (SOSP'09) and Firmament (OSDI'16): every task has an
// arc to its job's unscheduled node, one to the cluster, a few to racks and several to machines that hold its data; the
// cluster leads to racks, racks to machines, machines to the sink. Costs are data to be moved and time waited.
type Quincy struct {
	Graph    *Graph
	Sink     Node
	Cluster  Node
	Racks    []Node
	Machines []Node
	Jobs     []Node // the unscheduled nodes
	Wait     []int64
	Tasks    []Node
	shape    QuincyShape
}

// QuincyShape is the size of a Quincy network.
type QuincyShape struct {
	Machines, Slots, PerRack int
	Tasks, PerJob            int
	RackArcs, MachineArcs    int // preferences of a task
}

// FirmamentShape is the size Firmament and Quincy are quoted at: 12,500 machines of 12 slots, 95 % of them taken, 15.2
// arcs a task.
func FirmamentShape() QuincyShape {
	return QuincyShape{Machines: 12500, Slots: 12, PerRack: 40, Tasks: 142500, PerJob: 50, RackArcs: 3, MachineArcs: 10}
}

// NewQuincy generates a network. The same shape and seed give the same network.
func NewQuincy(shape QuincyShape, rng *rand.Rand) (*Quincy, error) {
	racks := (shape.Machines + shape.PerRack - 1) / shape.PerRack
	jobs := (shape.Tasks + shape.PerJob - 1) / shape.PerJob
	nodes := 2 + racks + shape.Machines + jobs + shape.Tasks
	q := &Quincy{shape: shape, Graph: New(nodes, shape.Tasks*(2+shape.RackArcs+shape.MachineArcs)+racks+
		2*shape.Machines+jobs)}
	g := q.Graph
	q.Sink, q.Cluster = g.AddNode(0), g.AddNode(0)
	for range racks {
		q.Racks = append(q.Racks, g.AddNode(0))
		if _, err := g.AddArc(q.Cluster, q.Racks[len(q.Racks)-1], 0, int64(shape.PerRack*shape.Slots), 0); err != nil {
			return nil, err
		}
	}
	for i := range shape.Machines {
		m := g.AddNode(0)
		q.Machines = append(q.Machines, m)
		if _, err := g.AddArc(q.Racks[i/shape.PerRack], m, 0, int64(shape.Slots), 0); err != nil {
			return nil, err
		}
		if _, err := g.AddArc(m, q.Sink, 0, int64(shape.Slots), 0); err != nil {
			return nil, err
		}
	}
	for range jobs {
		j := g.AddNode(0)
		q.Jobs, q.Wait = append(q.Jobs, j), append(q.Wait, 100+rng.Int64N(900))
		if _, err := g.AddArc(j, q.Sink, 0, MaxCapacity, 0); err != nil {
			return nil, err
		}
	}
	for i := range shape.Tasks {
		if err := q.Arrive(i/shape.PerJob, rng); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// Arrive adds a task of a job, with preferences drawn from rng.
func (q *Quincy) Arrive(job int, rng *rand.Rand) error {
	g := q.Graph
	t := g.AddNode(1)
	q.Tasks = append(q.Tasks, t)
	g.Reserve(t, 2+q.shape.RackArcs+q.shape.MachineArcs)
	arc := func(to Node, cost int64) error {
		_, err := g.AddArc(t, to, 0, 1, cost)
		return err
	}
	worst := 20 + rng.Int64N(60) // all of the task's data across the core
	if err := arc(q.Jobs[job], q.Wait[job]); err != nil {
		return err
	}
	if err := arc(q.Cluster, worst); err != nil {
		return err
	}
	for range q.shape.RackArcs {
		if err := arc(q.Racks[rng.IntN(len(q.Racks))], worst/4+rng.Int64N(worst/2)); err != nil {
			return err
		}
	}
	for range q.shape.MachineArcs {
		if err := arc(q.Machines[rng.IntN(len(q.Machines))], rng.Int64N(worst/2)); err != nil {
			return err
		}
	}
	return g.SetSupply(q.Sink, g.Supply(q.Sink)-1)
}

// Complete removes the i-th task of Tasks; the last one takes its place.
func (q *Quincy) Complete(i int) error {
	g := q.Graph
	if err := g.RemoveNode(q.Tasks[i]); err != nil {
		return err
	}
	q.Tasks[i] = q.Tasks[len(q.Tasks)-1]
	q.Tasks = q.Tasks[:len(q.Tasks)-1]
	return g.SetSupply(q.Sink, g.Supply(q.Sink)+1)
}
