package flow

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/core/scheduler/mincost"
)

// Model is which ways a task's flow has besides its own preferences.
type Model uint8

// The models.
const (
	LoadSpreading Model = iota // the n-th task of a worker costs n
	Quincy                     // any worker costs Task.Anywhere; preferred workers cost what Prefers says
	Interfering                // a worker costs CoCo of the task's class and its running tasks
)

// Bounds of a network.
const (
	MaxSlots = 4096 // of one worker
	MaxCost  = 1 << 24
)

// moving is the cost of a new place beyond its interference, so that among equal places the present one is cheaper.
const moving = 1

// Task is a task's input to the network.
type Task struct {
	Class       Class
	Anywhere    int64         // Quincy: cost of a worker that is not preferred
	Unscheduled int64         // cost of staying unscheduled; it should grow while the task waits
	Prefers     map[int]int64 // Quincy: cost of preferred workers, by index
}

type worker struct {
	node    mincost.Node
	slots   int
	inUse   int                  // slots of started tasks, which are not in the network
	out     mincost.Arc          // to the sink
	each    []mincost.Arc        // LoadSpreading: from any, one for each slot
	in      [classes]mincost.Arc // from the classes' nodes, for Interfering
	running [4]int
	stale   bool // Interfering: running has changed since the costs were set
}

type task struct {
	Task
	node  mincost.Node
	leave mincost.Arc
	on    int         // worker, or -1
	stay  mincost.Arc // Interfering: arc to the present worker, or -1
	kept  int         // the worker that stay leads to
	live  bool
}

// Network is the present scheduling problem. It is not safe for concurrent use.
type Network struct {
	model       Model
	graph       *mincost.Graph
	sink        mincost.Node
	any         mincost.Node          // leads to every worker
	class       [classes]mincost.Node // lead to every worker at the class's cost
	idle        mincost.Node          // unscheduled tasks
	workers     []worker
	tasks       []task
	unusedNodes []int
	byNode      map[mincost.Node]int // workers
}

// New makes an empty network.
func New(m Model) (*Network, error) {
	n := &Network{model: m, graph: mincost.New(0, 0), byNode: map[mincost.Node]int{}}
	n.sink, n.any, n.idle = n.graph.AddNode(0), n.graph.AddNode(0), n.graph.AddNode(0)
	for c := range n.class {
		n.class[c] = n.graph.AddNode(0)
	}
	_, err := n.graph.AddArc(n.idle, n.sink, 0, mincost.MaxCapacity, 0)
	return n, err
}

// AddWorker adds a worker with slots and returns its index.
func (n *Network) AddWorker(slots int) (int, error) {
	if slots < 1 || slots > MaxSlots {
		return 0, invalidArgument("A worker has from 1 to %d slots, and %d were given.", MaxSlots, slots)
	}
	w := worker{node: n.graph.AddNode(0), slots: slots}
	var err error
	arc := func(from, to mincost.Node, upper, cost int64) mincost.Arc {
		a, e := n.graph.AddArc(from, to, 0, upper, cost)
		if err == nil {
			err = e
		}
		return a
	}
	w.out = arc(w.node, n.sink, int64(slots), 0)
	switch n.model {
	case LoadSpreading:
		for k := range slots { // the cheapest fill first, so that together they are one convex cost
			w.each = append(w.each, arc(n.any, w.node, 1, int64(k)))
		}
	case Quincy:
		arc(n.any, w.node, int64(slots), 0)
	case Interfering:
		for c := range n.class {
			w.in[c] = arc(n.class[c], w.node, int64(slots), 0)
		}
		w.stale = true
	}
	n.byNode[w.node] = len(n.workers)
	n.workers = append(n.workers, w)
	return len(n.workers) - 1, err
}

// AddTask adds a task and returns its index.
func (n *Network) AddTask(t Task) (int, error) {
	if t.Unscheduled < 0 || t.Unscheduled > MaxCost || t.Anywhere < 0 || t.Anywhere > MaxCost || t.Class >= classes {
		return 0, invalidArgument("A task's costs must be from 0 to %d and its class known.", MaxCost)
	}
	k := task{Task: t, node: n.graph.AddNode(1), on: -1, stay: -1, live: true}
	var err error
	if k.leave, err = n.graph.AddArc(k.node, n.idle, 0, 1, t.Unscheduled); err != nil {
		return 0, err
	}
	to := n.any
	if n.model == Interfering {
		to = n.class[t.Class]
	}
	if _, err = n.graph.AddArc(k.node, to, 0, 1, t.Anywhere); err != nil {
		return 0, err
	}
	prefers := make([]int, 0, len(t.Prefers))
	for w := range t.Prefers {
		prefers = append(prefers, w)
	}
	slices.Sort(prefers) // the order of arcs must not depend on the map's
	for _, w := range prefers {
		if w < 0 || w >= len(n.workers) {
			return 0, invalidArgument("There is no worker %d to prefer.", w)
		}
		if _, err = n.graph.AddArc(k.node, n.workers[w].node, 0, 1, t.Prefers[w]); err != nil {
			return 0, err
		}
	}
	if err = n.graph.SetSupply(n.sink, n.graph.Supply(n.sink)-1); err != nil {
		return 0, err
	}
	i := len(n.tasks)
	if s := len(n.unusedNodes); s > 0 {
		i, n.unusedNodes = n.unusedNodes[s-1], n.unusedNodes[:s-1]
		n.tasks[i] = k
	} else {
		n.tasks = append(n.tasks, k)
	}
	return i, nil
}

// RemoveTask removes a task that has ended or was withdrawn. Its index may be reused.
func (n *Network) RemoveTask(i int) error {
	if i < 0 || i >= len(n.tasks) || !n.tasks[i].live {
		return invalidArgument("There is no task %d.", i)
	}
	t := &n.tasks[i]
	if t.on >= 0 {
		n.countBeside(t.on, t.Class, -1)
	}
	t.live = false
	n.unusedNodes = append(n.unusedNodes, i)
	if err := n.graph.RemoveNode(t.node); err != nil {
		return err
	}
	return n.graph.SetSupply(n.sink, n.graph.Supply(n.sink)+1)
}

// SetUnscheduled changes what it costs to leave a task unscheduled.
func (n *Network) SetUnscheduled(i int, cost int64) error {
	if i < 0 || i >= len(n.tasks) || !n.tasks[i].live || cost < 0 || cost > MaxCost {
		return invalidArgument("There is no task %d, or %d is not a cost from 0 to %d.", i, cost, MaxCost)
	}
	n.tasks[i].Unscheduled = cost
	return n.graph.SetCost(n.tasks[i].leave, cost)
}

// Change is a move of a task; From or To is -1 for unscheduled.
type Change struct{ Task, From, To int }

// Schedule solves the network and returns the changes, by task. Under Interfering the costs are those of the tasks
// that ran before: tasks that arrive together see each other only in the next round, as in Firmament.
func (n *Network) Schedule() ([]Change, error) {
	if n.model == Interfering {
		if err := n.updateCosts(); err != nil {
			return nil, err
		}
	}
	if _, err := n.graph.Solve(); err != nil {
		return nil, err
	}
	return n.readFlow(), nil
}

// updateCosts updates the costs for the running tasks. A placed task has a separate arc to its place, as it does not
// disturb itself.
func (n *Network) updateCosts() error {
	for i := range n.workers {
		w := &n.workers[i]
		if !w.stale {
			continue
		}
		w.stale = false
		for c := range n.class {
			if err := n.graph.SetCost(w.in[c], moving+min(CoCo(Class(c), w.running, w.slots), MaxCost)); err != nil {
				return err
			}
		}
	}
	for i := range n.tasks {
		t := &n.tasks[i]
		if !t.live {
			continue
		}
		if t.stay >= 0 && t.kept != t.on {
			if err := n.graph.RemoveArc(t.stay); err != nil {
				return err
			}
			t.stay = -1
		}
		if t.on < 0 {
			continue
		}
		w := &n.workers[t.on]
		others := w.running
		others[t.Class]--
		cost := min(CoCo(t.Class, others, w.slots), MaxCost)
		var err error
		if t.stay >= 0 {
			err = n.graph.SetCost(t.stay, cost)
		} else {
			t.kept = t.on
			t.stay, err = n.graph.AddArc(t.node, w.node, 0, 1, cost)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Cost returns the cost of the last solution.
func (n *Network) Cost() int64 { return n.graph.Cost() }

// On returns the worker that a task is placed on, or -1.
func (n *Network) On(i int) int { return n.tasks[i].on }

// readFlow splits the flow into one way for each task. Tasks that share a node on their way are interchangeable there,
// so a placed task keeps its place if it can.
func (n *Network) readFlow() []Change {
	room := map[mincost.Node]map[int]int64{} // flow from a shared node to each worker
	for _, hub := range append([]mincost.Node{n.any}, n.class[:]...) {
		room[hub] = map[int]int64{}
		for a := range n.graph.OutArcs(hub) {
			if f := n.graph.Flow(a); f > 0 {
				_, to := n.graph.Ends(a)
				room[hub][n.byNode[to]] += f
			}
		}
	}
	var out []Change
	var later []int // tasks that have lost their place, with their node in via
	via := map[int]mincost.Node{}
	move := func(i, to int) {
		t := &n.tasks[i]
		if t.on == to {
			return
		}
		out = append(out, Change{i, t.on, to})
		if t.on >= 0 {
			n.countBeside(t.on, t.Class, -1)
		}
		if t.on = to; to >= 0 {
			n.countBeside(to, t.Class, 1)
		}
	}
	for i := range n.tasks {
		if !n.tasks[i].live {
			continue
		}
		to := n.nextNode(n.tasks[i].node)
		w, direct := n.byNode[to]
		switch hub, shared := room[to]; {
		case direct:
			move(i, w)
		case !shared:
			move(i, -1)
		case hub[n.tasks[i].on] > 0:
			hub[n.tasks[i].on]--
		default:
			later, via[i] = append(later, i), to
		}
	}
	order := map[mincost.Node][]int{}
	for hub, to := range room {
		for w := range to {
			order[hub] = append(order[hub], w)
		}
		slices.Sort(order[hub])
	}
	for _, i := range later {
		hub := via[i]
		for room[hub][order[hub][0]] == 0 {
			order[hub] = order[hub][1:]
		}
		room[hub][order[hub][0]]--
		move(i, order[hub][0])
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Task, b.Task) })
	return out
}

// nextNode returns where a task's unit flows to.
func (n *Network) nextNode(from mincost.Node) mincost.Node {
	for a := range n.graph.OutArcs(from) {
		if n.graph.Flow(a) > 0 {
			_, to := n.graph.Ends(a)
			return to
		}
	}
	panic("flow: a task of a solved network has no flow")
}
